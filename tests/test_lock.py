"""The lock file: it lies within the declared bounds, and names versions and nothing else."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_lock_file_lies_within_the_bounds():
    lines = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!]+", line) for line in lines)  # no address, no path
    locked = {name.lower().replace("_", "-"): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for text in project["dependencies"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked[requirement.name.lower().replace("_", "-")]), text


def test_every_locked_package_has_its_licence_listed():
    lines = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines()[1:]
    rows = re.findall(r"^\| ([\w.-]+) \| ([\w.+!]+) \| .+ \|$", (REPOSITORY / "docs" / "licences.md").read_text(), re.M)
    assert [f"{name}=={version}" for name, version in rows[1:]] == lines  # below the table's head
