"""Settings: typed, frozen dataclasses declared beside the piece they belong to, found through name tables.

A *name table* maps the word typed on the command line to ``"module:Class"``. The class carries its settings dataclass as
``Class.Settings``; allowed ranges are written in the annotation, e.g. ``alpha: Annotated[float, Interval(gt=0, le=1)]``
(``annotated_types``), and cross-field rules in ``__post_init__`` (raise ``ValueError`` with one line). There are no
defaults here: defaults live in ``conf/`` only. Validation itself is in ``config.py``; this module is light enough for nodes.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Protocol

from annotated_types import Ge, Gt, Interval, Le, Lt

__all__ = ["Ge", "Gt", "HasSettings", "Interval", "Le", "Lt", "NameTable", "lookup"]

NameTable = Mapping[str, str]


class HasSettings(Protocol):
    """A class found through a name table."""

    Settings: ClassVar[type[Any]]


def lookup(table: NameTable, name: str) -> Any:
    """Import and return the class that ``table`` lists under ``name``; ``KeyError`` when it lists none."""
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
