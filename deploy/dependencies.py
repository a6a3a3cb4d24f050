#!/usr/bin/env python3
"""Write ``requirements.lock`` and ``docs/licences.md`` from the environment this runs in: ``python deploy/dependencies.py``.

Both list what ``pip install .`` needs here, directly or not, and nothing else the environment holds. The lock file is for
reproduction on the same kind of machine: ``pip install -r requirements.lock``.
"""

import platform
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

HOME = Path(__file__).resolve().parents[1]
LOCK, LICENCES = HOME / "requirements.lock", HOME / "docs" / "licences.md"


def main() -> None:
    """Write both files."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = sorted(closure(project["dependencies"]).values(), key=lambda one: one.name.lower())
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    pins = [f"{one.name}=={one.version}" for one in found]
    LOCK.write_text("\n".join([f"# {where}; made by deploy/dependencies.py", *pins]) + "\n", encoding="utf-8")
    rows = [f"| {one.name} | {one.version} | {licence(one)} |" for one in found]
    head = [
        "# Licences of what is installed with the project",
        "",
        f"As each package states it in its metadata; {where}; made by `deploy/dependencies.py`.",
        "",
        "| package | version | licence |",
        "| --- | --- | --- |",
    ]
    LICENCES.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")


def closure(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Every installed package that the requirements lead to, by name."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            one = distribution(requirement.name)
        except PackageNotFoundError:
            sys.exit(f"error: {requirement} is not installed here")
        found[one.name] = one
        for wanted in ("", *requirement.extras):
            if (one.name, wanted) not in seen:
                seen.add((one.name, wanted))
                waiting += [(Requirement(text), wanted) for text in one.requires or ()]
    return found


def licence(one: Distribution) -> str:
    """What the metadata says, in one line: the expression, else the classifiers, else a short licence field."""
    expression = one.metadata.get("License-Expression")
    classifiers = [
        text.rsplit(" :: ", 1)[1] for text in one.metadata.get_all("Classifier") or () if text.startswith("License :: ")
    ]
    field = (one.metadata.get("License") or "").strip().splitlines()
    return expression or ", ".join(classifiers) or (field[0][:60] if field else "not stated")


if __name__ == "__main__":
    main()
