"""The words that can be typed, as the files of ``conf/`` say, and one line for each mistake in what was."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from fedrage_flwr.errors import UserError, one_line


def conf_dir() -> Path:
    """Return the folder of the YAML files: inside the package when installed, beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "conf", here.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise UserError(f"the conf folder is missing beside {here}: install fedrage-flwr again")


def choices(group: str) -> list[str]:
    """Return the words that can be typed for a config group."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml") if not path.stem.startswith("_"))


def groups() -> set[str]:
    """Return the names of the config groups."""
    return {path.name for path in conf_dir().iterdir() if path.is_dir()}


def check_choices(overrides: Sequence[str]) -> None:
    """Raise ``UserError`` if a group is given a word that it has not."""
    known_groups = groups()
    for override in overrides:
        group, equals, word = override.partition("=")
        name = group.lstrip("+")
        if name in known_groups and word.startswith("["):
            raise UserError(f"{override}: one {name}, not a list; known: {', '.join(choices(name))}")
        if not equals or group not in known_groups or not word or "," in word or "(" in word or word == "~":
            continue
        known = choices(group)
        if word not in known and (group, word) != ("experiment", "null"):
            raise UserError(f"{override}: no such {group}{nearest(word, known)}; known: {', '.join(known)}")


def explain(error: Exception, overrides: Sequence[str], mode: RunMode) -> str:
    """Turn one of Hydra's messages into a line that helps."""
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:
            key, equals, value = override.partition("=")
            hint = f"; quote values that hold = or , twice, as in '{key}=\"{value}\"'" if equals else ""
            return f"{override}: cannot be read{hint}"
        if parsed.is_sweep_override() and mode is RunMode.RUN:
            return (
                f"{override} names several values: add -m to run them all, write [..] for a list,"
                f" or quote twice for text with a comma, as in '{parsed.key_or_group}=\"…\"'"
            )
        if parsed.key_or_group and f"Could not override '{parsed.key_or_group}'" in str(error):
            return f"{override}: no such key{_where(parsed, mode)}"
    if isinstance(error, TypeError):  # Hydra takes a list for names
        return (
            f"{' '.join(override for override in overrides if '=[' in override)}: a list of something else than names"
        )
    return one_line(error)


def _where(override: Override, mode: RunMode) -> str:
    """Say which words a key goes with, or which key was probably meant."""
    key, known = str(override.key_or_group), _known_keys()
    if key not in known:
        return nearest(key, known)
    quoted = f"{key}=choice({override.get_value_element_as_str()})"
    swept = f"; where those are swept over, type '{quoted}'" if mode is RunMode.MULTIRUN else ""
    return f" with these words; it goes with {', '.join(known[key])}{swept}"


def _known_keys() -> dict[str, list[str]]:
    """Return every key of a run, with the words that bring it along."""

    def walk(node: Any, prefix: str) -> Iterable[str]:
        for key, value in node.items():
            yield prefix + str(key)
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")

    keys: dict[str, list[str]] = {}
    for path in sorted(conf_dir().rglob("*.yaml")):
        if path.parent.name == "tuning":  # spaces to search, no settings of a run
            continue
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        group = (
            path.parent.name
            if path.parent != conf_dir() and path.parent.name not in ("strategy", "experiment", "tuned")
            else ""
        )
        if isinstance(content, dict):
            content.pop("defaults", None)
            content.pop("hydra", None)
            words = [f"{path.parent.name}={path.stem}"] if path.parent.name in groups() - {"experiment"} else []
            for key in walk(content, f"{group}." if group else ""):
                keys.setdefault(key, []).extend(words)
    return keys


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word was probably meant; nothing if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
