"""Settings dataclasses made of plain values, strictly, and what their annotations allow, in words."""

import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.words import nearest

STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def build(settings: type[Any], values: Any, section: str = "") -> Any:
    """Make a settings dataclass of plain values, field by field and without conversions.

    Raises:
        UserError: an unknown or missing key, or a value that is not allowed.
    """
    prefix = f"{section}." if section else ""
    unknown = [key for key in values if key not in _names(settings)]
    if unknown:
        raise UserError(f"{prefix}{unknown[0]}: no such key{nearest(unknown[0], _names(settings))}")
    hints = typing.get_type_hints(settings, include_extras=True)
    checked = {}
    for name in _names(settings):
        if name not in values:
            raise UserError(f"{prefix}{name} is missing")
        checked[name] = _check(f"{prefix}{name}", hints[name], values[name])
    try:
        return settings(**checked)
    except ValueError as error:
        raise UserError(one_line(error)) from error


def _check(path: str, hint: Any, value: Any) -> Any:
    if hint is Any or is_dataclass(hint):  # sections, checked already
        return value
    try:
        return TypeAdapter(hint, config=STRICT).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{path}={show(value)} is not allowed: must be {describe(hint)}") from error


def describe(hint: Any) -> str:
    """Say in words what a type annotation allows, e.g. ``a number in (0, 1]``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return f"{describe(arguments[0])}{_interval(arguments[1:])}"
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments)) if len(arguments) > 1 else str(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(describe(a) for a in arguments)
    if origin in (list, Sequence):
        return f"a list, each {describe(arguments[0])}"
    if origin is dict:
        return "names with values, {name: value, …}"
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return words.get(hint, str(hint))


def _interval(constraints: Iterable[Any]) -> str:
    lower, upper = ("(", "-∞"), ("∞", ")")
    for c in constraints:
        if (v := getattr(c, "gt", None)) is not None:
            lower = ("(", f"{v:g}" if abs(v) < 1e6 else str(v))
        if (v := getattr(c, "ge", None)) is not None:
            lower = ("[", f"{v:g}" if abs(v) < 1e6 else str(v))
        if (v := getattr(c, "lt", None)) is not None:
            upper = (f"{v:g}" if abs(v) < 1e6 else str(v), ")")
        if (v := getattr(c, "le", None)) is not None:
            upper = (f"{v:g}" if abs(v) < 1e6 else str(v), "]")
    return f" in {lower[0]}{lower[1]}, {upper[0]}{upper[1]}"


def _names(settings: type[Any]) -> list[str]:
    return [field.name for field in fields(settings)]


def show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else "null" if value is None else str(value)
