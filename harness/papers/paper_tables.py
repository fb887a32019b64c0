"""A paper's table in its own layout, with ours beside each printed number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd

from harness.papers.cell_lookup import Answer, CellLookup, NoAnswerError
from harness.papers.printed_quantities import DiagnosticLookup, MeasuredValue, measured
from harness.papers.published import FLAGS
from harness.papers.row_index import RowIndex
from harness.papers.table_layouts import Layout, Printed, group, layout, printed
from harness.papers.verdicts import Scale
from harness.store.store import Store

Key = tuple[str, ...]


@dataclass(frozen=True)
class TablePlace:
    """One printed place and ours. ``rank``, ``our_rank``: best, second or empty. ``reason``: why there is no ours."""

    printed: Printed
    ours: MeasuredValue | None
    answer: Answer | None
    reason: str = ""
    rank: str = ""
    our_rank: str = ""
    note: int = 0  # of the table's suspect numbers, from 1; 0: none

    @property
    def printed_here(self) -> bool:
        """Whether the paper's text has a number at this place."""
        return not math.isnan(self.printed.value)


@dataclass(frozen=True)
class TableSpan:
    """Neighbours of one row that the same cells answer: at scale=mini one task stands for several of the paper's."""

    places: tuple[TablePlace | None, ...]  # None: the paper's table has nothing there

    @property
    def ours(self) -> MeasuredValue | None:
        """What we measured for the cell, as all its places share it; None where nothing was."""
        return self.places[0].ours if self.places[0] else None

    @property
    def difference(self) -> float:
        """Ours less the mean of the printed numbers beside it; NaN where one of the two is not there."""
        numbers = [place.printed.value for place in self.places if place and place.printed_here]
        return self.ours.value - sum(numbers) / len(numbers) if self.ours and numbers else math.nan


@dataclass(frozen=True)
class TableRow:
    """``heads``: values of the layout's row fields."""

    panel: Key
    heads: Key
    places: tuple[TablePlace | None, ...]

    @cached_property
    def spans(self) -> tuple[TableSpan, ...]:
        """The places of the row, neighbours that print one number for several columns joined."""
        out: list[list[TablePlace | None]] = []
        for place in self.places:
            last = out[-1][-1] if out else None
            if place and last and _together(last, place):
                out[-1].append(place)
            else:
                out.append([place])
        return tuple(TableSpan(tuple(each)) for each in out)


@dataclass(frozen=True)
class PaperTable:
    """``suspects``: (kind, reason) by number. ``reasons``: why places are empty. ``stand_ins``: for what."""

    paper: str
    item: str
    scale: Scale
    layout: Layout
    columns: tuple[Key, ...]
    rows: tuple[TableRow, ...]
    suspects: tuple[tuple[str, str], ...]
    command: str
    reasons: tuple[str, ...] = field(default=())
    stand_ins: tuple[str, ...] = field(default=())

    @property
    def places(self) -> list[TablePlace]:
        """Every place of the table that prints or measures something, row by row."""
        return [place for row in self.rows for place in row.places if place]

    @property
    def has_printed(self) -> bool:
        """Whether any place of this layout has a number in print."""
        return any(place.printed_here for place in self.places)

    @property
    def has_ours(self) -> bool:
        """Whether any place has a number of ours."""
        return any(place.ours for place in self.places)

    @property
    def samples(self) -> tuple[int, ...]:
        """How many samples stand behind our numbers, each count once."""
        return tuple(sorted({place.ours.n for place in self.places if place.ours}))

    @property
    def stand_in_sentence(self) -> tuple[str, ...]:
        """What stands in for the paper's own setting, as a sentence; empty where nothing does."""
        by_name: dict[str, list[str]] = {}
        for each in self.stand_ins:
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
            heading = group(task)
            same = bool(out) and out[-1][0] == heading
            out = [*out[:-1], (heading, out[-1][1] + 1)] if same else [*out, (heading, 1)]
        return out


class Tables:
    """The tables of one paper at one scale; a cell that several tables show is computed once."""

    def __init__(self, paper: str, rows: pd.DataFrame, shelf: RowIndex, store: Store, scale: Scale) -> None:
        self.paper, self.shelf, self.scale = paper, shelf, scale
        self.inside = DiagnosticLookup(paper, rows, store, scale)
        self._known: dict[tuple[object, ...], MeasuredValue | str] = {}

    def table(self, item: str) -> PaperTable | None:
        """The table of an item; None where it has no numbers to lay out."""
        own = layout(self.paper, item)
        if own is None:
            return None
        desk = CellLookup.of(self.paper, item, self.shelf, self.scale)
        suspects: list[tuple[str, str]] = []
        places = {}
        for each in printed(self.paper, item):
            place = self._place(desk, each)
            places[_key(own.panels, each), _key(own.rows, each), _key(own.columns, each)] = _numbered(place, suspects)
        places = dict(zip(places, _ranked(list(places.values()), own), strict=True))
        columns = tuple(dict.fromkeys(column for _, _, column in places))
        lines = dict.fromkeys((panel, row) for panel, row, _ in places)
        rows = tuple(
            TableRow(panel, row, tuple(places.get((panel, row, column)) for column in columns)) for panel, row in lines
        )
        found = list(places.values())
        return PaperTable(
            self.paper, item, self.scale, own, columns, rows, tuple(suspects), desk.command(),
            tuple(dict.fromkeys(place.reason for place in found if place.reason)),
            tuple(dict.fromkeys(note for place in found if place.ours for note in place.ours.notes)),
        )  # fmt: skip

    def _place(self, desk: CellLookup, each: Printed) -> TablePlace:
        try:
            if found := self.inside.measured(desk.item, each):
                return TablePlace(each, found, None)
            answer = desk.answer(each)
            return TablePlace(each, self._measured(each, answer), answer)
        except NoAnswerError as gap:
            return TablePlace(each, None, None, str(gap))

    def _measured(self, each: Printed, answer: Answer) -> MeasuredValue:
        metric, unit = each.at["metric"], each.unit
        key = (metric, unit, each.at["method"] == "none", each.at.get("length_bin"), answer.key)
        if key not in self._known:
            try:
                self._known[key] = measured(metric, unit, each.at, answer, self.scale == "mini")
            except NoAnswerError as gap:
                self._known[key] = str(gap)
        found = self._known[key]
        if isinstance(found, str):
            raise NoAnswerError(found)
        notes = dict.fromkeys((*answer.notes, *found.notes))
        return replace(found, notes=tuple(notes))


def _key(names: Iterable[str], each: Printed) -> Key:
    return tuple(each.at.get(name, "") for name in names)


def _together(left: TablePlace, right: TablePlace) -> bool:
    """Whether the same cells answer both, in columns that differ by the task alone."""
    same = left.answer and right.answer and left.answer.key == right.answer.key and left.ours and right.ours
    return bool(same) and all(left.printed.at[name] == right.printed.at[name] for name in ("model", "metric", "budget"))


def _numbered(place: TablePlace, suspects: list[tuple[str, str]]) -> TablePlace:
    """With the number of what makes its printed value suspect; the same reason has the same number."""
    flag = place.printed.flag
    if not flag:
        return place
    entry = (FLAGS[flag], place.printed.flag_reason)
    if entry not in suspects:
        suspects.append(entry)
    return replace(place, note=suspects.index(entry) + 1)


def _ranked(places: Sequence[TablePlace], own: Layout) -> list[TablePlace]:
    """Best and second best among what differs by the layout's ``best`` fields alone; dense is beside the contest."""
    if not own.best:
        return list(places)
    rivals: dict[Key, list[int]] = {}
    for number, place in enumerate(places):
        if place.printed.at["method"] != "dense":
            same = {n: v for n, v in place.printed.at.items() if n not in own.best and n in _COMPARED}
            rivals.setdefault(tuple(f"{n}={v}" for n, v in sorted(same.items())), []).append(number)
    out = list(places)
    for numbers in rivals.values():
        lower = places[numbers[0]].printed.higher_is_better == "false"
        theirs = _places({n: places[n].printed.value for n in numbers if places[n].printed_here}, lower)
        ours = _places({n: own_value.value for n in numbers if (own_value := places[n].ours)}, lower)
        for number in numbers:
            out[number] = replace(out[number], rank=theirs.get(number, ""), our_rank=ours.get(number, ""))
    return out


_COMPARED = ("model", "method", "task", "budget", "block_size", "metric", "panel", "recent", "eviction_rate", "seq_len")


def _places(values: Mapping[int, float], lower: bool) -> dict[int, str]:
    """Equal values share a place; a lone value has none, nor have values that are all the same, nor a score of 0."""
    distinct = sorted({round(value, 9) for value in values.values()}, reverse=not lower)
    names = dict(zip(distinct, ("best", "second"), strict=False)) if len(distinct) > 1 else {}
    if not lower:
        names.pop(0.0, None)  # nothing right is no merit, even where the rest is no better
    return {number: names[round(v, 9)] for number, v in values.items() if round(v, 9) in names}
