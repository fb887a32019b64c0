"""A table of our own measurements: lines under columns, and the conditions they were measured under."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import UserError


class Ranged(float):
    """The median of several rounds; a number like any other, that a page shows with its smallest and largest round."""

    low: float
    high: float

    @classmethod
    def of(cls, rounds: Iterable[float]) -> Ranged:
        """Of one measurement a round."""
        values = [float(each) for each in rounds]
        made = cls(statistics.median(values))
        made.low, made.high = min(values), max(values)
        return made


Value = str | int | float | None  # None: an empty place; NaN: a value that is not a number


@dataclass(frozen=True)
class MeasuredTable:
    """Lines under columns, with the conditions under which they were measured.

    ``name``: for file names, unique within its item (``keydiff-scoring``). ``conditions``: sentences, never empty.
    ``columns``: titles with their units; the first column names the line. ``lines``: one value for each column.
    """

    name: str
    title: str
    caption: str
    conditions: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        if not self.conditions:
            raise ValueError(f"Table '{self.name}' says nothing about its conditions: a number without them is no use.")
        for line in self.lines:
            if len(line) != len(self.columns):
                raise ValueError(
                    f"A line of table '{self.name}' has {len(line)} values for {len(self.columns)} columns."
                )

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The lines as a page shows them; the numbers themselves, for a CSV, are in ``lines``."""
        return tuple(tuple(text_of(value) for value in line) for line in self.lines)


def text_of(value: Value) -> str:
    """Three significant digits, thousands with commas; a dash for what is not a number, nothing for None.

    What was measured in rounds that differ has their smallest and largest in brackets.
    """
    if value is None:
        return ""
    if isinstance(value, Ranged) and value.low < value.high:
        return f"{text_of(float(value))} [{text_of(value.low)} to {text_of(value.high)}]"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:,d}" if isinstance(value, int) else f"{value:,.3g}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.2e}"


class NotMeasuredError(UserError):
    """The stored rows are not enough for a table; the message says why, and which command measures it."""
