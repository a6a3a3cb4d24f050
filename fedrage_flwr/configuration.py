"""``python -m fedrage_flwr.configuration``: every key that can be typed, as a Markdown page.

Types and ranges are those of the settings dataclasses, which check them; defaults and meanings are those of ``conf/``.
"""

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from clients.base import ClientSettings
from fedrage_flwr.config import SECTIONS, TABLES, Config
from fedrage_flwr.help import GROUPS, describe_file
from fedrage_flwr.schema import describe
from fedrage_flwr.settings import lookup
from fedrage_flwr.words import choices, conf_dir
from strategies.base import StrategySettings

LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):(?: +(?P<value>[^#\s].*?))??(?: +# (?P<meaning>.*))?")


@dataclass(frozen=True)
class Entry:
    """What a YAML file says of one key: its default as it is written, and the comment beside it."""

    default: str
    meaning: str


def entries(path: Path) -> dict[str, Entry]:
    """Return the keys of a file of ``conf/``, those of a section as ``section.key``."""
    found, section = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        matched = LINE.fullmatch(line.rstrip())
        if matched is None:
            continue
        if not matched["indent"]:
            section = ""
        if matched["value"] is None:
            section = f"{matched['key']}."
        elif len(matched["indent"]) <= 2:
            found[f"{section if matched['indent'] else ''}{matched['key']}"] = Entry(
                matched["value"], matched["meaning"] or ""
            )
    return found


def page() -> str:
    """Return the whole page."""
    top = entries(conf_dir() / "config.yaml")
    lines = [
        "# Configuration",
        "",
        "Made by `python -m fedrage_flwr.configuration` from the settings that check what is typed, and from the comments in",
        "`conf/`. Everything is typed as `key=value` behind `python -m fedrage_flwr`; a group is chosen by a word, as in",
        "`strategy=fedavg`, and its keys are typed with the group in front, as in `ram.clients_per_round=5`. Quote what holds",
        "brackets or commas: `'ram.weights=[1,2,3]'`. A value that is not allowed is refused in one line before anything starts.",
        "`python -m fedrage_flwr --cfg job` prints all keys of a run with their values.",
        "",
        "## The run",
        "",
        *_table(_rows(Config, top, "")),
    ]
    for section, settings in SECTIONS.items():
        lines += ["", f"## `{section}`", "", *_table(_rows(settings, top, f"{section}."))]
    base = entries(conf_dir() / "strategy" / "_base.yaml")
    lines += [
        "",
        "## `strategy` and `client`",
        "",
        f"`strategy=WORD` chooses {GROUPS['strategy']}. All of them have:",
        "",
    ]
    lines += _table([*_rows(StrategySettings, base, "strategy."), *_rows(ClientSettings, base, "client.")])
    for group in ("strategy", *(g for g in GROUPS if g not in ("strategy", "experiment"))):
        if group != "strategy":
            lines += ["", f"## `{group}`", "", f"`{group}=WORD` chooses {GROUPS[group]}."]
        for word in choices(group):
            lines += _word(group, word, base if group == "strategy" else {})
    return "\n".join([*lines, ""])


def _word(group: str, word: str, base: Mapping[str, Entry]) -> Iterator[str]:
    path = conf_dir() / group / f"{word}.yaml"
    yield from ("", f"### `{group}={word}`", "", f"{describe_file(path).rstrip('.')}.")
    own = entries(path)
    if group == "strategy":
        names = {section: own[f"{section}.name"].default for section in ("strategy", "client")}
        rows = [row for section, name in names.items() for row in _rows(_settings(section, name), own, f"{section}.")]
    else:
        rows = _rows(_settings(group, own["name"].default), {f"{group}.{k}": e for k, e in own.items()}, f"{group}.")
    rows = [
        [row[0], row[1], row[2], row[3] or base.get(row[0].strip("`"), Entry("", "")).meaning]
        for row in rows
        if row[0].strip("`") not in base or row[2]  # the shared ones again only where their default is another
    ]
    if rows:
        yield from ("", *_table(rows))


def _settings(section: str, name: str) -> type[Any]:
    settings: type[Any] = lookup(TABLES[section], name).Settings
    return settings


def _rows(settings: type[Any], known: Mapping[str, Entry], prefix: str) -> list[list[str]]:
    """Key, what it may be, default and meaning of every field but the name and the sections."""
    hints = typing.get_type_hints(settings, include_extras=True)
    rows = []
    for field in fields(settings):
        key = f"{prefix}{field.name}"
        if field.name == "name" or field.name in SECTIONS or (settings is Config and field.name in TABLES):
            continue
        entry = known.get(key, Entry("", ""))
        rows.append([f"`{key}`", describe(hints[field.name]), _default(entry.default), entry.meaning])
    return rows


def _default(text: str) -> str:
    return "" if not text else "must be given" if text == "???" else f"`{text}`"


def _table(rows: list[list[str]]) -> list[str]:
    return [
        "| key | may be | default | meaning |",
        "| --- | --- | --- | --- |",
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


if __name__ == "__main__":
    print(page(), end="")
