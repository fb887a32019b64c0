"""What every task says about a parameter it cannot accept: sentences with the task, the field and a way out."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import TypeVar

from tasks.base import TaskError

Item = TypeVar("Item")


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that offers known names for an unknown one, the nearest first."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(options)}."


def whole(where: str, value: object, low: int, high: int | None = None) -> int:
    """``value`` as an int from ``low`` to ``high``; ``where`` names the task and the field."""
    span = f"of {low} or more" if high is None else f"from {low} to {high}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TaskError(f"{where} must be a whole number {span}; got {value!r}.") from None
    if number < low or (high is not None and number > high):
        raise TaskError(f"{where} must be a whole number {span}; got {number}.")
    return number


def listed(where: str, values: Iterable[Item]) -> tuple[Item, ...]:
    """``values``, any sequence, as a tuple."""
    try:
        return tuple(values)
    except TypeError:
        raise TaskError(f"{where} must be a list in brackets; got {values!r}.") from None


def grid(where: str, values: Iterable[int], low: int, high: int | None = None) -> tuple[int, ...]:
    """``values`` as a tuple of distinct ints from ``low`` to ``high``, in the order given."""
    return distinct(where, tuple(whole(f"Each of {where}", item, low, high) for item in listed(where, values)))


def distinct(where: str, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """``items`` unchanged, if there are any and none is repeated (a repeated one would repeat sample ids)."""
    if not items:
        raise TaskError(f"{where} is empty, so the task has no samples; give at least one.")
    for index, item in enumerate(items):
        if item in items[:index]:
            raise TaskError(f"{where} lists {item} twice; give each once.")
    return items
