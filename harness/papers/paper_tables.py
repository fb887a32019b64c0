"""A paper's table in its own layout: for each printed number our value, and what both keep of their own full cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.papers.cell_index import CellIndex
from harness.papers.diagnostic_values import DiagnosticLookup
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.kept_shares import our_kept, printed_kept
from harness.papers.published import FLAGS, Scale
from harness.papers.table_cells import MatchingCells, NoValueError, PlaceLookup
from harness.papers.table_gates import place_gate, tie_of
from harness.papers.table_layouts import Layout, PrintedNumber, layout, printed_numbers
from harness.papers.table_values import MeasuredValue, measured_value

Key = tuple[str, ...]

# Two numbers are compared where they differ in the layout's `best` fields, and in none of these.
COMPARED_FIELDS = (
    "model", "method", "task", "budget", "block_size", "metric", "panel", "recent", "eviction_rate", "seq_len",
    "in_tokens", "out_tokens", "hash_bits",
)  # fmt: skip


@dataclass(frozen=True)
class ComparedNumber:
    """A printed number and our value for it. ``rank``: best, second or empty, among the printed numbers.

    ``kept``, ``our_kept``: what each keeps of its own dense (`harness.papers.kept_shares`), NaN where it is not known.
    ``identity``: equal for printed numbers that one number of ours stands for; None where there is none of ours.
    ``gate``: why our value can show nothing about methods. ``reason``: why there is no value of ours.
    """

    printed: PrintedNumber
    ours: MeasuredValue | None
    cells: MatchingCells | None  # that our value was measured on
    reason: str = ""
    rank: str = ""
    kept: float = math.nan
    our_kept: float = math.nan
    identity: tuple[object, ...] | None = None
    gate: str = ""
    note: int = 0  # of the table's suspect numbers, from 1; 0: none

    @property
    def is_printed(self) -> bool:
        """Whether the paper's text has the number."""
        return not math.isnan(self.printed.value)

    @property
    def is_dense(self) -> bool:
        """Whether it is a number of the full cache."""
        return self.printed.at["method"] == "dense"


@dataclass(frozen=True)
class TableRow:
    """``heads``: values of the layout's row fields."""

    panel: Key
    heads: Key
    numbers: tuple[ComparedNumber | None, ...]


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
    computed: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # what page and files share

    @property
    def numbers(self) -> list[ComparedNumber]:
        """Every printed number of the table once, row by row."""
        found = [number for row in self.rows for number in row.numbers if number]
        return list({id(number): number for number in found}.values())

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
    def our_numbers(self) -> int:
        """How many numbers of ours stand in the table's places: a proxy task's is one, wherever it stands."""
        return len({number.identity for number in self.numbers if number.identity})

    @property
    def same_model(self) -> bool:
        """Whether our numbers are of the paper's own model and tasks, so that a difference means something."""
        return self.scale == "full"

    @property
    def proxy_sentence(self) -> tuple[str, ...]:
        """The proxies as a sentence; empty where there are none."""
        by_name: dict[str, list[str]] = {}
        for each in self.proxies:
            stands, between, own = each.partition(" for ")
            by_name.setdefault(stands + between, []).append(own)
        said = "; ".join(stands + ", ".join(own) for stands, own in by_name.items())
        return (f"Stands in for the paper's setting: {said}.",) if said else ()


class PaperTables:
    """The tables of one paper at one scale; a value that several tables show is computed once."""

    def __init__(self, paper: str, index: CellIndex, stored: FigureDataOfItems) -> None:
        self.paper, self.index, self.scale = paper, index, stored.scale
        self.diagnostics = DiagnosticLookup(paper, stored)
        self._known: dict[tuple[object, ...], MeasuredValue | str] = {}
        self._gates: dict[object, str] = {}

    def table(self, item: str) -> PaperTable | None:
        """The table of an item; None where it has no numbers to lay out."""
        own = layout(self.paper, item)
        if own is None:
            return None
        lookup = PlaceLookup.for_item(self.paper, item, self.index, self.scale)
        suspects: list[tuple[str, str]] = []
        found = [_numbered(self._compare(lookup, item, each), suspects) for each in printed_numbers(self.paper, item)]
        found = self._gated(_ranked(found, own), own)
        numbers = _placed(found, own)
        columns = tuple(dict.fromkeys(column for _, _, column in numbers))
        lines = dict.fromkeys((panel, row) for panel, row, _ in numbers)
        rows = tuple(
            TableRow(panel, row, tuple(numbers.get((panel, row, column)) for column in columns)) for panel, row in lines
        )
        return PaperTable(
            self.paper, item, self.scale, own, columns, rows, tuple(suspects), lookup.command(),
            tuple(dict.fromkeys(number.reason for number in found if number.reason)),
            tuple(dict.fromkeys(note for number in found if number.ours for note in number.ours.notes)),
        )  # fmt: skip

    def _compare(self, lookup: PlaceLookup, item: str, each: PrintedNumber) -> ComparedNumber:
        kept = printed_kept(self.paper, item, each)
        try:
            if found := self.diagnostics.measured(lookup.item, each):
                at = tuple(value for name, value in sorted(each.at.items()) if name != "model")
                return ComparedNumber(each, found, None, kept=kept, our_kept=found.value, identity=at)
            cells = lookup.find(each)
            identity = _identity(each, cells)
            ours = self._measured(identity, each, cells)
            own = our_kept(each, ours, cells, self.scale)
            return ComparedNumber(each, ours, cells, kept=kept, our_kept=own, identity=identity)
        except NoValueError as reason:
            return ComparedNumber(each, None, None, str(reason), kept=kept)

    def _measured(self, identity: tuple[object, ...], each: PrintedNumber, cells: MatchingCells) -> MeasuredValue:
        if identity not in self._known:
            try:
                self._known[identity] = measured_value(each.at["metric"], each.unit, each.at, cells, self.scale)
            except NoValueError as reason:
                self._known[identity] = str(reason)
        found = self._known[identity]
        if isinstance(found, str):
            raise NoValueError(found)
        notes = dict.fromkeys((*cells.notes, *found.notes))
        return replace(found, notes=tuple(notes))

    def _gated(self, numbers: Sequence[ComparedNumber], own: Layout) -> list[ComparedNumber]:
        """With the gate of each place, and of places that are all tied at the lowest or highest score."""
        out = [replace(each, gate=place_gate(each.printed, each.cells, self.scale, self._gates)) for each in numbers]
        for group in rivals(numbers, own):
            tied = tie_of([(numbers[i].printed, numbers[i].cells) for i in group], self.scale)
            for i in group:
                if tied and out[i].ours and not out[i].gate:
                    out[i] = replace(out[i], gate=tied)
        return out


def _identity(each: PrintedNumber, cells: MatchingCells) -> tuple[object, ...]:
    return (each.at["metric"], each.unit, each.at["method"] == "none", each.at.get("length_bin"), cells.key)


def _key(names: Iterable[str], each: PrintedNumber) -> Key:
    return tuple(each.at.get(name, "") for name in names)


def _placed(numbers: Sequence[ComparedNumber], own: Layout) -> dict[tuple[Key, Key, Key], ComparedNumber]:
    """The numbers by panel, row and column. A dense number that no row field names stands in every row of its panel."""
    found = {
        (_key(own.panels, each.printed), _key(own.rows, each.printed), _key(own.columns, each.printed)): each
        for each in numbers
    }
    out: dict[tuple[Key, Key, Key], ComparedNumber] = {}
    for (panel, row, column), number in found.items():
        beside = number.is_dense and "method" in own.columns and not any(row)
        others = dict.fromkeys(r for p, r, _ in found if p == panel and any(r)) if beside else {}
        for each in others or (row,):
            out[panel, each, column] = number
    return out


def _numbered(number: ComparedNumber, suspects: list[tuple[str, str]]) -> ComparedNumber:
    """With the note of what makes its printed value suspect; the same reason has the same note."""
    flag = number.printed.flag
    if not flag:
        return number
    entry = (FLAGS[flag], number.printed.flag_reason)
    if entry not in suspects:
        suspects.append(entry)
    return replace(number, note=suspects.index(entry) + 1)


def rivals(numbers: Sequence[ComparedNumber], own: Layout) -> list[list[int]]:
    """Positions of numbers that the table compares: they differ in the layout's ``best`` fields alone. Never dense."""
    groups: dict[Key, list[int]] = {}
    for i, number in enumerate(numbers):
        if own.best and not number.is_dense:
            same = {
                name: v for name, v in number.printed.at.items() if name not in own.best and name in COMPARED_FIELDS
            }
            groups.setdefault(tuple(f"{name}={v}" for name, v in sorted(same.items())), []).append(i)
    return list(groups.values())


def _ranked(numbers: Sequence[ComparedNumber], own: Layout) -> list[ComparedNumber]:
    """Best and second best of the printed numbers."""
    out = list(numbers)
    for group in rivals(numbers, own):
        lower = numbers[group[0]].printed.higher_is_better == "false"
        theirs = _best_two({i: numbers[i].printed.value for i in group if numbers[i].is_printed}, lower)
        for i in group:
            out[i] = replace(out[i], rank=theirs.get(i, ""))
    return out


def _best_two(values: Mapping[int, float], lower: bool) -> dict[int, str]:
    """Equal values share a rank; a lone value has none, nor have values that are all the same, nor a score of 0."""
    distinct = sorted({round(value, 9) for value in values.values()}, reverse=not lower)
    names = dict(zip(distinct, ("best", "second"), strict=False)) if len(distinct) > 1 else {}
    if not lower:
        names.pop(0.0, None)  # a score of 0 is never best, even where the others are no better
    return {number: names[round(v, 9)] for number, v in values.items() if round(v, 9) in names}
