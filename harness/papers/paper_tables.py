"""A paper's table in its own layout, with our value next to each printed number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd

from harness.papers.cell_index import CellIndex
from harness.papers.claim_verdicts import Scale
from harness.papers.published import FLAGS
from harness.papers.table_cells import CellLookup, MatchingCells, NoValueError
from harness.papers.table_layouts import Layout, PrintedNumber, column_group, layout, printed_numbers
from harness.papers.table_values import DiagnosticLookup, MeasuredValue, measured_value
from harness.store.store import Store

Key = tuple[str, ...]


@dataclass(frozen=True)
class ComparedNumber:
    """A printed number and our value for it. ``rank``, ``our_rank``: best, second or empty.

    ``reason``: why there is no value of ours.
    """

    printed: PrintedNumber
    ours: MeasuredValue | None
    cells: MatchingCells | None  # that our value was measured on
    reason: str = ""
    rank: str = ""
    our_rank: str = ""
    note: int = 0  # of the table's suspect numbers, from 1; 0: none

    @property
    def is_printed(self) -> bool:
        """Whether the paper's text has the number."""
        return not math.isnan(self.printed.value)


@dataclass(frozen=True)
class NumberSpan:
    """Neighbours in one row that share our cells: at scale=mini one task is the proxy for several of the paper's."""

    numbers: tuple[ComparedNumber | None, ...]  # None: the paper's table has nothing there

    @property
    def ours(self) -> MeasuredValue | None:
        """Our value, which all numbers of the span share; None where nothing was measured."""
        return self.numbers[0].ours if self.numbers[0] else None

    @property
    def difference(self) -> float:
        """Our value less the mean of the printed numbers; NaN where one of the two is missing."""
        numbers = [number.printed.value for number in self.numbers if number and number.is_printed]
        return self.ours.value - sum(numbers) / len(numbers) if self.ours and numbers else math.nan


@dataclass(frozen=True)
class TableRow:
    """``heads``: values of the layout's row fields."""

    panel: Key
    heads: Key
    numbers: tuple[ComparedNumber | None, ...]

    @cached_property
    def spans(self) -> tuple[NumberSpan, ...]:
        """The numbers of the row, with neighbours joined that share one value of ours."""
        out: list[list[ComparedNumber | None]] = []
        for number in self.numbers:
            last = out[-1][-1] if out else None
            if number and last and _same_cells(last, number):
                out[-1].append(number)
            else:
                out.append([number])
        return tuple(NumberSpan(tuple(each)) for each in out)


@dataclass(frozen=True)
class PaperTable:
    """One table. ``suspects``: (kind, reason) of suspect printed numbers, in the order of their notes.

    ``reasons``: why values of ours are missing. ``proxies``: what was measured in place of what, "a for b".
    """

    paper: str
    item: str
    scale: Scale
    layout: Layout
    columns: tuple[Key, ...]
    rows: tuple[TableRow, ...]
    suspects: tuple[tuple[str, str], ...]
    command: str
    reasons: tuple[str, ...] = field(default=())
    proxies: tuple[str, ...] = field(default=())

    @property
    def numbers(self) -> list[ComparedNumber]:
        """Every number of the table, row by row."""
        return [number for row in self.rows for number in row.numbers if number]

    @property
    def has_printed(self) -> bool:
        """Whether the paper's text has any number of this table."""
        return any(number.is_printed for number in self.numbers)

    @property
    def has_ours(self) -> bool:
        """Whether we have measured any of it."""
        return any(number.ours for number in self.numbers)

    @property
    def samples(self) -> tuple[int, ...]:
        """The numbers of samples behind our values, each once."""
        return tuple(sorted({number.ours.n for number in self.numbers if number.ours}))

    @property
    def proxy_sentence(self) -> tuple[str, ...]:
        """The proxies as a sentence; empty where there are none."""
        by_name: dict[str, list[str]] = {}
        for each in self.proxies:
            stands, between, own = each.partition(" for ")
            by_name.setdefault(stands + between, []).append(own)
        said = "; ".join(stands + ", ".join(own) for stands, own in by_name.items())
        return (f"Stands in for the paper's setting: {said}.",) if said else ()

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings above the columns and how many columns each spans; empty where there are none."""
        if self.layout.columns != ("task",):
            return []
        out: list[tuple[str, int]] = []
        for (task,) in self.columns:
            heading = column_group(task)
            same = bool(out) and out[-1][0] == heading
            out = [*out[:-1], (heading, out[-1][1] + 1)] if same else [*out, (heading, 1)]
        return out


class PaperTables:
    """The tables of one paper at one scale; a value that several tables show is computed once."""

    def __init__(self, paper: str, rows: pd.DataFrame, index: CellIndex, store: Store, scale: Scale) -> None:
        self.paper, self.index, self.scale = paper, index, scale
        self.diagnostics = DiagnosticLookup(paper, rows, store, scale)
        self._known: dict[tuple[object, ...], MeasuredValue | str] = {}

    def table(self, item: str) -> PaperTable | None:
        """The table of an item; None where it has no numbers to lay out."""
        own = layout(self.paper, item)
        if own is None:
            return None
        lookup = CellLookup.for_item(self.paper, item, self.index, self.scale)
        suspects: list[tuple[str, str]] = []
        numbers = {}
        for each in printed_numbers(self.paper, item):
            number = self._compare(lookup, each)
            numbers[_key(own.panels, each), _key(own.rows, each), _key(own.columns, each)] = _numbered(number, suspects)
        numbers = dict(zip(numbers, _ranked(list(numbers.values()), own), strict=True))
        columns = tuple(dict.fromkeys(column for _, _, column in numbers))
        lines = dict.fromkeys((panel, row) for panel, row, _ in numbers)
        rows = tuple(
            TableRow(panel, row, tuple(numbers.get((panel, row, column)) for column in columns)) for panel, row in lines
        )
        found = list(numbers.values())
        return PaperTable(
            self.paper, item, self.scale, own, columns, rows, tuple(suspects), lookup.command(),
            tuple(dict.fromkeys(number.reason for number in found if number.reason)),
            tuple(dict.fromkeys(note for number in found if number.ours for note in number.ours.notes)),
        )  # fmt: skip

    def _compare(self, lookup: CellLookup, each: PrintedNumber) -> ComparedNumber:
        try:
            if found := self.diagnostics.measured(lookup.item, each):
                return ComparedNumber(each, found, None)
            cells = lookup.find(each)
            return ComparedNumber(each, self._measured(each, cells), cells)
        except NoValueError as reason:
            return ComparedNumber(each, None, None, str(reason))

    def _measured(self, each: PrintedNumber, cells: MatchingCells) -> MeasuredValue:
        metric, unit = each.at["metric"], each.unit
        key = (metric, unit, each.at["method"] == "none", each.at.get("length_bin"), cells.key)
        if key not in self._known:
            try:
                self._known[key] = measured_value(metric, unit, each.at, cells, self.scale == "mini")
            except NoValueError as reason:
                self._known[key] = str(reason)
        found = self._known[key]
        if isinstance(found, str):
            raise NoValueError(found)
        notes = dict.fromkeys((*cells.notes, *found.notes))
        return replace(found, notes=tuple(notes))


def _key(names: Iterable[str], each: PrintedNumber) -> Key:
    return tuple(each.at.get(name, "") for name in names)


def _same_cells(left: ComparedNumber, right: ComparedNumber) -> bool:
    """Whether our cells for both are the same, and their columns differ in the task alone."""
    same = left.cells and right.cells and left.cells.key == right.cells.key and left.ours and right.ours
    return bool(same) and all(left.printed.at[name] == right.printed.at[name] for name in ("model", "metric", "budget"))


def _numbered(number: ComparedNumber, suspects: list[tuple[str, str]]) -> ComparedNumber:
    """With the note of what makes its printed value suspect; the same reason has the same note."""
    flag = number.printed.flag
    if not flag:
        return number
    entry = (FLAGS[flag], number.printed.flag_reason)
    if entry not in suspects:
        suspects.append(entry)
    return replace(number, note=suspects.index(entry) + 1)


def _ranked(numbers: Sequence[ComparedNumber], own: Layout) -> list[ComparedNumber]:
    """Best and second best among numbers that differ in the layout's ``best`` fields alone; dense is not ranked."""
    if not own.best:
        return list(numbers)
    rivals: dict[Key, list[int]] = {}
    for i, number in enumerate(numbers):
        if number.printed.at["method"] != "dense":
            same = {name: v for name, v in number.printed.at.items() if name not in own.best and name in _COMPARED}
            rivals.setdefault(tuple(f"{name}={v}" for name, v in sorted(same.items())), []).append(i)
    out = list(numbers)
    for group in rivals.values():
        lower = numbers[group[0]].printed.higher_is_better == "false"
        theirs = _best_two({i: numbers[i].printed.value for i in group if numbers[i].is_printed}, lower)
        ours = _best_two({i: value.value for i in group if (value := numbers[i].ours)}, lower)
        for i in group:
            out[i] = replace(out[i], rank=theirs.get(i, ""), our_rank=ours.get(i, ""))
    return out


_COMPARED = ("model", "method", "task", "budget", "block_size", "metric", "panel", "recent", "eviction_rate", "seq_len")


def _best_two(values: Mapping[int, float], lower: bool) -> dict[int, str]:
    """Equal values share a rank; a lone value has none, nor have values that are all the same, nor a score of 0."""
    distinct = sorted({round(value, 9) for value in values.values()}, reverse=not lower)
    names = dict(zip(distinct, ("best", "second"), strict=False)) if len(distinct) > 1 else {}
    if not lower:
        names.pop(0.0, None)  # a score of 0 is never best, even where the others are no better
    return {number: names[round(v, 9)] for number, v in values.items() if round(v, 9) in names}
