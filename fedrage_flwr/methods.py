"""``python -m fedrage_flwr.methods``: what each method aims at, what it stores and what it must know, as a Markdown table.

The words stand in the strategies' docstrings, where a test compares each aim with what the method does (tests/strategies).
"""

import re
from importlib import import_module
from inspect import getdoc

from fedrage_flwr.settings import lookup
from strategies import STRATEGIES

FIELDS = ("Aims at", "Stores", "Must know")


def facts(name: str) -> dict[str, str]:
    """Return the three facts of a strategy, from its class docstring; ``KeyError`` if one is missing."""
    lines = (getdoc(lookup(STRATEGIES, name)) or "").splitlines()
    found = {field: line.split(": ", 1)[1] for line in lines for field in FIELDS if line.startswith(f"{field}: ")}
    return {field: found[field] for field in FIELDS}


def source(name: str) -> str:
    """Return the paper named on top of a strategy's file, or nothing."""
    first = (import_module(STRATEGIES[name].partition(":")[0]).__doc__ or "").splitlines()[0]
    cited = re.search(r"\(([^()]*(?:paper|\d{4})[^()]*)\)", first)
    return cited[1] if cited else ""


def table() -> str:
    """Return the whole page."""
    rows = [_row(name, *facts(name).values(), source(name)) for name in sorted(STRATEGIES)]
    return "\n".join(
        [
            "# Methods",
            "",
            "Made by `python -m fedrage_flwr.methods` from the docstrings in `strategies/`; `tests/strategies/` holds each",
            "aim to what the method does on quadratics. p_i is the weight client i bears under uniform averaging",
            "(docs/availability.md), f_i its local loss. *Must know*: what the server uses beyond the replies it averages.",
            "",
            "| `strategy=` | aims at | stores | must know | source |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _row(name: str, *cells: str) -> str:
    return " | ".join([f"| `{name}`", *(cell.replace("|", "\\|") for cell in cells)]) + " |"


if __name__ == "__main__":
    print(table(), end="")
