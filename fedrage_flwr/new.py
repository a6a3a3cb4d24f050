"""``python -m fedrage_flwr.new strategy NAME``: the four files of a new algorithm, and its line in each name table.

What it writes works: a federated average whose clients weigh a step by 1/(1 + damping · loss), with a test by hand. Change it
into your own, hook by hook (docs/own-algorithm.md).
"""

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from clients import CLIENTS
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.words import conf_dir
from strategies import STRATEGIES

USAGE = "python -m fedrage_flwr.new strategy NAME, a name in small letters such as my_average"

FILES = {
    "strategies/$name.py": '''"""$title, the server half: who wrote it, where, and which equation.

θ̂ = (1/|S^t|) Σ_{i∈S^t} θ_i
"""

from collections.abc import Sequence

from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy


class $title(BaseStrategy):
    """The mean of whoever arrived.

    Aims at: Σ p_i log(1 + damping · f_i)/damping for small steps; with damping 0 Σ p_i f_i, as FedAvg.
    Stores: nothing.
    Must know: nothing.
    """

    def weights(self, updates: Sequence[Update]) -> list[float] | None:
        """All alike; a list with one number per update weighs them."""
        return None
''',
    "clients/$name.py": '''"""$title, the client half: w = 1/(1 + damping · f) for a mini-batch of loss f."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from clients.base import ClientAlgorithm, ClientSettings
from fedrage_flwr.settings import Ge


@dataclass(frozen=True)
class ${title}Settings(ClientSettings):
    """Settings of the client half."""

    damping: Annotated[float, Ge(0)]


class ${title}Client(ClientAlgorithm):
    """Local SGD in which a large loss counts less."""

    Settings = ${title}Settings

    def step_weight(self, loss: Tensor) -> Tensor:
        """1/(1 + damping · loss)."""
        return 1 / (1 + self.settings.damping * loss)
''',
    "conf/strategy/$name.yaml": """# @package _global_
# $title: a step of loss f weighs 1/(1 + damping · f).
defaults: [_base]
strategy:
  name: $name
client:
  name: $name
  lr: 0.05
  damping: 1.0          # 0: agnostic FedAvg; above, a large loss counts less
""",
    "tests/strategies/test_$name.py": '''"""$title by hand, and as FedAvg."""

import pytest


def test_one_round_by_hand(federation, play):
    """f_i = ½(θ − a_i)² at θ = 0, a = 1 and 2: f = ½ and 2, w = ½ and 1/5 with damping 2; steps of 0.05 and 0.04."""
    _, path = play(federation([[1.0], [2.0]]), "$name", [(0, 1)], damping=2.0, lr=0.1, local_steps=1)
    assert path[0, 0] == pytest.approx(0.045)


def test_without_damping_it_is_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=$name", "client.damping=0")
''',
}
TABLES = {
    "strategies/__init__.py": ("STRATEGIES", '    "$name": "strategies.$name:$title",\n'),
    "clients/__init__.py": ("CLIENTS", '    "$name": "clients.$name:${title}Client",\n'),
}


def texts(name: str, root: Path) -> dict[Path, str]:
    """Return what the files of a new strategy will hold, the two tables with their new line included.

    Raises:
        UserError: the name cannot be used, or ``root`` is no checkout.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(f"{name}: not a name; small letters, digits and _, a letter first, no word of Python's own")
    if not (root / "tests" / "strategies").is_dir():
        raise UserError(f"{root} is no checkout of the project (tests/strategies is missing): clone it and start there")
    if name in {**STRATEGIES, **CLIENTS}:
        raise UserError(f"{name}: this name is in use, see python -m fedrage_flwr --help")
    words = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    made = {root / _fill(path, words): _fill(text, words) for path, text in FILES.items()}
    for file in made:
        if file.exists():
            raise UserError(f"{name}: {file.relative_to(root)} exists already; nothing is overwritten")
    for path, (table, line) in TABLES.items():
        made[root / path] = _with_line(root / path, table, _fill(line, words))
    return made


def write(files: Mapping[Path, str]) -> None:
    """Write all of them, or leave everything as it was.

    Raises:
        UserError: one of them cannot be written.
    """
    before = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in files}
    try:
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        for path, old in before.items():
            if old is None:
                path.unlink(missing_ok=True)
            elif path.read_text(encoding="utf-8") != old:
                path.write_text(old, encoding="utf-8")
        raise UserError(f"{error.filename} cannot be written: {error.strerror}; nothing was changed") from error


def _fill(text: str, words: Mapping[str, str]) -> str:
    return Template(text).substitute(words)


def _with_line(path: Path, table: str, line: str) -> str:
    """The text of a module with one line more at the end of a table."""
    pattern = re.compile(rf"^({table}\b[^\n]*= {{\n.*?)^}}", re.MULTILINE | re.DOTALL)
    text, count = pattern.subn(lambda found: f"{found[1]}{line}}}", path.read_text(encoding="utf-8"), count=1)
    if not count:
        raise UserError(f"{path} has no table {table}")
    return text


def main(arguments: Sequence[str]) -> None:
    """Write the files and say what comes next."""
    if len(arguments) != 2 or arguments[0] != "strategy":
        raise UserError(f"usage: {USAGE}")
    root, name = conf_dir().parent, arguments[1]
    files = texts(name, root)
    write(files)
    for path in files:
        print(f"{'changed' if path.name == '__init__.py' else 'new    '} {path.relative_to(root)}")
    print(
        f"\nnext:\n  python -m pytest -n 0 tests/strategies/test_{name}.py\n  python -m fedrage_flwr strategy={name}\n"
        "  python -m fedrage_flwr.methods > docs/methods.md\n"
        "  python -m fedrage_flwr.configuration > docs/configuration.md"
    )


if __name__ == "__main__":
    sys.exit(enter(main))
