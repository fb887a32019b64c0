"""One check of all settings: each against the annotation of the dataclass field that takes it.

YAML reads ``nan``, ``1e9``, ``true`` and an empty value as something, and Python takes a truth value for a number, so
types are checked strictly, by pydantic. Ranges are annotations too (``Annotated[int, Ge(1)]``, with ``doc`` where that
would not be plain), or checks of the class.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import DocInfo, Ge, Gt, Le, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from harness.errors import UserError
from tasks.base import nearest  # policies would load torch, which what reads results does without

STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
SHOWN = 60  # characters of a value in a message
LARGEST = 2**63 - 1  # of a whole number: what rows and generators of random numbers hold
ONE: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    Path: "a path",
    NoneType: "null",
    Any: "anything",
}
SEVERAL: dict[object, str] = {int: "whole numbers", float: "finite numbers", str: "texts"}
LIMITS = {Ge: ("ge", "at least"), Gt: ("gt", "above"), Le: ("le", "at most"), Lt: ("lt", "below")}


def check_settings(kind: Callable[..., Any], settings: object, key: str = "") -> None:
    """Raise `UserError` for the first setting that does not fit the field of the dataclass ``kind`` with its name.

    ``key``: where the settings stand in a configuration, such as ``policy.scorer``. Names that ``kind`` does not have
    are left to whoever builds it.
    """
    wants = _annotations(kind)
    given = check_value(Mapping[str, Any], settings, key or "The configuration")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        where = f"{key}.{field.name}" if key else field.name
        if field.name in given:
            check_value(wants[field.name], given[field.name], where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where} is missing: give {wanted(wants[field.name])}.")


def check_names(names: Iterable[str], known: Collection[str], owner: str = "") -> None:
    """Raise `UserError` for a setting that is not ``known``, with the nearest ones. ``owner``: "The model", say."""
    for name in names:
        if name not in known:
            said = f"{owner} has no setting '{name}'." if owner else f"There is no setting '{name}'."
            raise UserError(f"{said} {nearest(str(name), known)}")


def check_value(annotation: Any, value: Any, key: str) -> Any:
    """The value, lists as tuples. Raises `UserError` with the key, what was given and what is wanted."""
    if get_origin(annotation) is Literal and isinstance(value, (int, float)) and not _is_choice(annotation, value):
        raise UserError(_sentence(annotation, value, key))
    try:
        return _adapter(annotation).validate_python(_with_tuples(value))
    except ValidationError as error:
        raise UserError(_sentence(annotation, value, key)) from error
    except OverflowError as error:
        raise UserError(f"{key}={_shown(value)} is too large: give at most {LARGEST:,}.") from error


def wanted(annotation: Any) -> str:
    """What an annotation takes, in words."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated and isinstance(parts[-1], DocInfo):
        return parts[-1].documentation
    if kind is Annotated:
        limits = [f"{words} {getattr(limit, name):,}" for limit in parts[1:] for name, words in [LIMITS[type(limit)]]]
        return f"{wanted(parts[0])}, {' and '.join(limits)}"
    if kind is Literal:
        return f"one of {', '.join(map(_shown, parts))}"
    if kind in (Union, UnionType):
        return ", or ".join(wanted(part) for part in parts)
    if kind in (tuple, Sequence):
        return f"a list of {_several(parts[0])} in brackets"
    return "settings with names" if kind is Mapping else ONE.get(annotation, getattr(annotation, "__name__", "another"))


# Parts of the above.


def _several(annotation: Any) -> str:
    if get_origin(annotation) is tuple:
        return f"lists of {_several(get_args(annotation)[0])}"
    return SEVERAL.get(annotation, "settings with names")


@cache
def _annotations(kind: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=STRICT)


def _with_tuples(value: Any) -> Any:
    """The value with lists as tuples. Raises OverflowError for a whole number that 64 bits do not hold."""
    if isinstance(value, int) and abs(value) > LARGEST:
        raise OverflowError(value)
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _sentence(annotation: Any, value: Any, key: str) -> str:
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    if choices and isinstance(value, str) and value:
        return f"{key}={_shown(value)} is not known. {nearest(value, map(str, choices))}"
    listed = f", {key}=[{_shown(value)}]" if get_origin(annotation) is tuple and _fits(annotation, (value,)) else ""
    return f"{key}={_shown(value)} does not fit: give {wanted(annotation)}{listed}."


def _is_choice(annotation: Any, number: float) -> bool:
    """Whether this number is among the choices: Python takes 0 for false and 1.0 for 1."""
    return any(type(choice) is type(number) and choice == number for choice in get_args(annotation))


def _fits(annotation: Any, value: Any) -> bool:
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _shown(value: Any) -> str:
    """As one would type it, cut to a line."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    text = " ".join(text.split()) or "''"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
