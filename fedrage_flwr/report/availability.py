"""``python -m fedrage_flwr.report.availability [OUT] [OVERRIDES]``: p_i of each client, exact (FedeRage paper, Fig. 5).

No run is needed: M = 3 of N = 30 unless typed otherwise. The paper's own values are in its figure alone. OUT (default
``results/availability``) gets probabilities.csv (regime, client, inclusion P(i∈S), p = E[1{i∈S}/|S|]) and the figure.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.explain import make_law
from fedrage_flwr.report import plots
from fedrage_flwr.report.figures import save

REGIMES: Mapping[str, Sequence[str]] = {
    "uniform": ["ram=uniform"],
    "skewed, as in our tables (ram=inclusion: three clients with P(i∈S) = 0.5 %)": ["ram=inclusion"],
    "ram=rare: three clients with a small prior weight": ["ram=rare"],
    "ram=exponential: a long tail": ["ram=exponential"],
}


def table(typed: Sequence[str] = ()) -> pd.DataFrame:
    """Return regime, client, inclusion, p: one row each.

    Raises:
        UserError: an override is not allowed; or a law has no exact values.
    """
    tables = []
    for regime, words in REGIMES.items():
        config = validate(compose_config([*words, *typed]))
        law = make_law(config)
        inclusion, p = law.inclusion(), law.marginals()
        if not (inclusion.exact and p.exact):
            raise UserError(f"ram={config.ram.name}: its probabilities are estimates")
        clients = range(config.num_clients)
        tables.append(pd.DataFrame({"regime": regime, "client": clients, "inclusion": inclusion.values, "p": p.values}))
    return pd.concat(tables, ignore_index=True)


def main(arguments: Sequence[str]) -> None:
    """Write the table and draw it."""
    folders = [word for word in arguments if "=" not in word]
    if len(folders) > 1 or any(word.startswith("-") for word in folders):
        raise UserError("usage: python -m fedrage_flwr.report.availability [OUT] [KEY=VALUE …]")
    out = Path(folders[0] if folders else "results/availability")
    found = table([word for word in arguments if "=" in word])
    out.mkdir(parents=True, exist_ok=True)
    found.to_csv(out / "probabilities.csv", index=False, float_format="%.6g", lineterminator="\n")
    for path in save(
        plots.probabilities(found), out / "availability", "Command: python -m fedrage_flwr.report.availability."
    ):
        print(path)


if __name__ == "__main__":
    sys.exit(enter(main))
