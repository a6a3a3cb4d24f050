"""docs/configuration.md: complete, current, and a meaning for every key."""

from pathlib import Path

from fedrage_flwr.config import TABLES
from fedrage_flwr.configuration import entries, page
from fedrage_flwr.settings import lookup

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"


def rows():
    lines = [line for line in page().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")] for line in lines]


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m fedrage_flwr.configuration > docs/configuration.md"


def test_every_key_has_a_type_a_default_and_a_meaning():
    for key, allowed, default, meaning in rows():
        assert allowed, key
        assert "[" not in allowed.replace(" in [", ""), key  # a Python type that nobody has put into words
        assert default, key
        assert len(meaning) > 0, f"{key}: no comment in conf/"


def test_every_setting_of_every_class_is_there():
    typed = {key.strip("`") for key, *_ in rows()}
    for section, table in TABLES.items():
        for name in table:
            fields = set(lookup(table, name).Settings.__dataclass_fields__) - {"name"}
            assert {f"{section}.{field}" for field in fields} <= typed, (section, name)


def test_comments_and_defaults_by_hand(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "# What it is.\n# not: a key\nname: x\nsize: 3  # of it\nempty:\n\npart:\n  a: [1, 2]    # two # numbers\n  b: '#'\n"
        "  deep:\n    c: 1  # left out\ntop: ${x:y,z}/w # last\n"
    )
    found = {key: (entry.default, entry.meaning) for key, entry in entries(path).items()}
    assert found == {
        "name": ("x", ""), "size": ("3", "of it"), "part.a": ("[1, 2]", "two # numbers"), "part.b": ("'#'", ""),
        "top": ("${x:y,z}/w", "last"),
    }  # fmt: skip
