"""The arrows of the house: doors → config → strategies, clients → tools → numpy, torch, flwr. Nothing points upward.

Imports are read from the source, those inside functions included; imports for type checkers only are left out.
"""

import ast
from pathlib import Path

import pytest

from clients import CLIENTS
from strategies import STRATEGIES

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("fedrage_flwr", "strategies", "clients")
SOURCES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((REPOSITORY / package).rglob("*.py"))
}
DOORS = {"fedrage_flwr.__main__", "fedrage_flwr.server_app", "fedrage_flwr.client_app"}


def imported(tree: ast.AST) -> set[str]:
    """Modules that a piece of source imports when it runs."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        else:
            found |= imported(node)
    return found


IMPORTS = {
    name: imported(ast.parse(path.read_text(encoding="utf-8"))) & SOURCES.keys() for name, path in SOURCES.items()
}


def reachable(start: str, arrows: dict[str, set[str]] = IMPORTS) -> set[str]:
    """Our modules that importing one brings along, directly or not."""
    seen, waiting = set(), [start]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += arrows[name]
    return seen


def those(*beginnings: str) -> list[str]:
    return [name for name in SOURCES if name.startswith(beginnings)]


def test_the_reader_of_imports_reads_them():
    source = "import a.b\nfrom c import d\nif TYPE_CHECKING:\n    import e\ndef f():\n    from g import h\n"
    assert imported(ast.parse(source)) == {"a.b", "c", "c.d", "g", "g.h"}
    assert "strategies.base" in IMPORTS["fedrage_flwr.run"]


@pytest.mark.parametrize("name", those("strategies.", "clients."))
def test_algorithms_import_no_door_no_config_and_no_run(name):
    above = {
        "fedrage_flwr.config",
        "fedrage_flwr.command",
        "fedrage_flwr.parts",
        "fedrage_flwr.run",
        "fedrage_flwr.api",
        *DOORS,
    }
    assert not reachable(name) & above


@pytest.mark.parametrize("name", those("strategies."))
def test_a_server_half_imports_no_law_and_no_training_loop(name):
    """The round loop's manager argument is typed by its class; the law itself is nowhere."""
    assert not [module for module in IMPORTS[name] if module.startswith("fedrage_flwr.availability")]
    assert "fedrage_flwr.training" not in IMPORTS[name]


@pytest.mark.parametrize("name", those("clients."))
def test_a_client_half_knows_no_server_and_no_other_client(name):
    assert not [module for module in reachable(name) if module.startswith("strategies")]


@pytest.mark.parametrize("name", those("fedrage_flwr.availability", "fedrage_flwr.data", "fedrage_flwr.grids"))
def test_the_tools_import_no_algorithm(name):
    """But for what every client half shares: the base class that answers messages."""
    algorithms = {m for m in IMPORTS[name] if m.startswith(("strategies", "clients"))}
    assert algorithms <= {"clients", "clients.base"}


@pytest.mark.parametrize("name", those("fedrage_flwr"))
def test_no_tool_imports_a_single_algorithm(name):
    """They are found by name, in the two tables."""
    halves = {path.partition(":")[0] for path in (*STRATEGIES.values(), *CLIENTS.values())}
    assert not IMPORTS[name] & halves


def test_nothing_is_imported_in_a_circle():
    """But for the module ``run``, which answers for the function of its name: it imports that when it is called."""
    arrows = {**IMPORTS, "fedrage_flwr.run": IMPORTS["fedrage_flwr.run"] - {"fedrage_flwr.api"}}
    assert arrows != IMPORTS
    for name in SOURCES:
        for other in arrows[name] - {name}:
            assert name not in reachable(other, arrows), f"{name} and {other} import each other"
