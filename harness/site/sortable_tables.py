"""Tables that a reader can sort and filter, every cell as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class TableCell:
    """One cell. ``order``: its sort key where that is not its text; empty cells stay at the bottom."""

    text: str
    order: str = ""
    small: str = ""  # behind the text, in small print
    link: str = ""
    tone: str = ""  # a class of the style sheet: better, worse, …


@dataclass(frozen=True)
class TableLine:
    """``keys``: what filters compare, by filter; several values where a line belongs to several papers."""

    entries: Sequence[TableCell]
    keys: dict[str, Sequence[str]]
    tone: str = ""


@dataclass(frozen=True)
class TableColumn:
    """``small``: what is printed under the title; ``number``: set to the right, and sorted with the greatest first."""

    title: str
    small: str = ""
    number: bool = False


@dataclass(frozen=True)
class TableFilter:
    """A choice above a table: lines with one value of a key."""

    name: str
    title: str
    options: Sequence[str]


@dataclass(frozen=True)
class SortableTable:
    """``noun``: what a line is, for "34 of 120 cells"."""

    name: str
    noun: str
    columns: Sequence[TableColumn]
    lines: Sequence[TableLine]
    filters: Sequence[TableFilter] = field(default=())
    common: Sequence[tuple[str, str]] = field(default=())  # columns left out because every line says the same


def filters_of(
    lines: Iterable[TableLine], titles: Mapping[str, str], orders: Mapping[str, Sequence[str]]
) -> list[TableFilter]:
    """A filter for every key in which lines differ. ``orders``: how its values are listed, else as they come."""
    lines = list(lines)
    found = []
    for name, title in titles.items():
        values = dict.fromkeys(value for line in lines for value in line.keys[name])
        listed = [value for value in orders.get(name, tuple(values)) if value in values]
        alike = all(set(line.keys[name]) == set(values) for line in lines)
        if values and not alike:
            found.append(TableFilter(name, title, listed))
    return found


def without_common(table: SortableTable, titles: Sequence[str]) -> SortableTable:
    """The table without those of the named columns in which all lines agree; ``common`` says what they agree on."""
    common = {
        at: (column.title, table.lines[0].entries[at].text)
        for at, column in enumerate(table.columns)
        if column.title in titles
        and len({(line.entries[at].text, line.entries[at].small) for line in table.lines}) == 1
    }
    kept = [at for at in range(len(table.columns)) if at not in common]
    return replace(
        table,
        columns=[table.columns[at] for at in kept],
        lines=[replace(line, entries=[line.entries[at] for at in kept]) for line in table.lines],
        common=list(common.values()),
    )


def number_cell(value: Any, text: str, small: str = "", tone: str = "") -> TableCell:
    """A cell that is sorted by ``value``; NaN and None have no order."""
    nothing = value is None or (isinstance(value, float) and not math.isfinite(value))
    return TableCell(text, "" if nothing else repr(float(value)), small, tone=tone)
