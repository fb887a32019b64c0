"""A table with each number of ours in one place: rows and columns that one cell of ours stands for are one.

At scale=mini a task of the testbed stands in for several of the paper's, and the testbed for each of its models. Where
two columns (or rows) differ in the task or the model alone and hold the same numbers of ours throughout, they are
merged. A number of ours that still comes a second time (the same setting in two panels) says where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.papers.kept_shares import UNUSABLE_FLAGS, kept_as
from harness.papers.paper_tables import COMPARED_FIELDS, ComparedNumber, Key, PaperTable, TableRow

At = TypeVar("At")

STANDS_FOR_SEVERAL = ("task", "model")  # fields in which merged columns and rows may differ


@dataclass(frozen=True)
class MergedPlace:
    """One place: the printed numbers of each merged row, and our number for all of them.

    ``theirs``, ``our_rank``: ranks among what the table compares, by what is kept; 0: none.
    ``again``: our number stands in an earlier place already.
    """

    printed: tuple[tuple[ComparedNumber, ...], ...]  # by printed row
    again: bool = False
    their_ranks: tuple[int, ...] = ()
    our_rank: int = 0

    @property
    def first(self) -> ComparedNumber | None:
        """One of the printed numbers, the one with ours if there is one; None where the paper's table has no place."""
        found = [number for row in self.printed for number in row]
        return next((number for number in found if number.ours), found[0] if found else None)


@dataclass(frozen=True)
class MergedRow:
    """``rows``: the printed rows, which our numbers of ``places`` (one for each column) stand for."""

    rows: tuple[TableRow, ...]
    places: tuple[MergedPlace, ...]


@dataclass(frozen=True)
class MergedTable:
    """``columns``: for each the keys of the printed columns that it merges."""

    table: PaperTable
    columns: tuple[tuple[Key, ...], ...]
    rows: tuple[MergedRow, ...]

    @property
    def has_order(self) -> bool:
        """Whether any number has a rank."""
        return any(place.our_rank or any(place.their_ranks) for row in self.rows for place in row.places)


def merged(table: PaperTable) -> MergedTable:
    """The table with every number of ours once, and ranks of what is kept."""
    names = (*table.layout.panels, *table.layout.rows)
    groups = _groups(
        [(*row.panel, *row.heads) for row in table.rows], names, [_identities(row.numbers) for row in table.rows]
    )
    by_column = [_identities([row.numbers[i] for row in table.rows]) for i in range(len(table.columns))]
    columns = _groups(table.columns, table.layout.columns, by_column)
    places = [
        [tuple(_there(table.rows[i].numbers[j] for j in column) for i in group) for column in columns]
        for group in groups
    ]
    ours, theirs = _our_ranks(places, table), _their_ranks(places, table)
    seen: set[tuple[object, ...]] = set()
    rows = []
    for r, group in enumerate(groups):
        found = []
        for c, printed in enumerate(places[r]):
            first = MergedPlace(printed).first
            identity = first.identity if first else None
            ranks = tuple(theirs.get((r, c, k), 0) for k in range(len(printed)))
            found.append(MergedPlace(printed, identity in seen, ranks, ours.get((r, c), 0)))
            if identity is not None:
                seen.add(identity)
        rows.append(MergedRow(tuple(table.rows[i] for i in group), tuple(found)))
    return MergedTable(table, tuple(tuple(table.columns[i] for i in column) for column in columns), tuple(rows))


def kept_of(numbers: Sequence[ComparedNumber]) -> float:
    """What the paper keeps in a merged place: the mean over its numbers; NaN where not all are known."""
    values = [number.kept for number in numbers if number.is_printed]
    return math.fsum(values) / len(values) if values else math.nan


def order_value(numbers: Sequence[ComparedNumber]) -> float:
    """What the paper orders its methods by: what is kept, else the printed numbers; NaN where one is unusable."""
    usable = [number for number in numbers if number.is_printed and number.printed.flag not in UNUSABLE_FLAGS]
    if not usable or len(usable) < len(numbers):
        return math.nan
    kept = kept_of(usable)
    return math.fsum(number.printed.value for number in usable) / len(usable) if math.isnan(kept) else kept


def lower_is_better(number: ComparedNumber) -> bool:
    """Of what is kept as of the number itself: of a score never, of nats above dense always."""
    return kept_as(number.printed.at["metric"]) == "nats" or number.printed.higher_is_better == "false"


def rival_key(numbers: Sequence[ComparedNumber], table: PaperTable, with_model: bool) -> tuple[object, ...] | None:
    """Equal for places that the table compares with one another; None for dense, and where neither end is better."""
    if not numbers or not table.layout.best or numbers[0].is_dense or not numbers[0].printed.higher_is_better:
        return None
    at = numbers[0].printed.at
    tasks = tuple(dict.fromkeys(number.printed.at["task"] for number in numbers))
    left_out = {*table.layout.best, "task", *(() if with_model else ("model",))}
    same = tuple((name, at[name]) for name in COMPARED_FIELDS if name not in left_out and name in at)
    return (*tasks, *same)


def _identities(numbers: Sequence[ComparedNumber | None]) -> list[tuple[object, ...] | None]:
    """What our numbers are, () where the paper's table has no place."""
    return [() if number is None else number.identity for number in numbers]


def _groups(
    keys: Sequence[Key], names: Sequence[str], identities: Sequence[Sequence[tuple[object, ...] | None]]
) -> list[list[int]]:
    """Positions of keys that differ in task or model alone and have the same numbers of ours."""
    out: list[list[int]] = []
    for i, key in enumerate(keys):
        own = _same_fields(key, names)
        for group in out:
            first = group[0]
            if _same_fields(keys[first], names) == own and _alike(identities[first], identities[i]):
                group.append(i)
                break
        else:
            out.append([i])
    return out


def _same_fields(key: Key, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for name, value in zip(names, key, strict=True) if name not in STANDS_FOR_SEVERAL)


def _alike(left: Sequence[tuple[object, ...] | None], right: Sequence[tuple[object, ...] | None]) -> bool:
    """Whether they are equal wherever both have a place, and somewhere we have a number."""
    both = [(a, b) for a, b in zip(left, right, strict=True) if a != () and b != ()]
    return any(a is not None for a, _ in both) and all(a == b for a, b in both)


def _there(numbers: Iterable[ComparedNumber | None]) -> tuple[ComparedNumber, ...]:
    return tuple(number for number in numbers if number is not None)


Places = Sequence[Sequence[tuple[tuple[ComparedNumber, ...], ...]]]


def _our_ranks(places: Places, table: PaperTable) -> dict[tuple[int, int], int]:
    groups: dict[tuple[object, ...], dict[tuple[int, int], float]] = {}
    lower: dict[tuple[object, ...], bool] = {}
    for r, row in enumerate(places):
        for c, printed in enumerate(row):
            first = MergedPlace(printed).first
            key = rival_key([number for each in printed for number in each], table, with_model=False)
            if key is None or first is None or first.ours is None or first.gate:
                continue
            groups.setdefault(key, {})[r, c] = first.ours.value
            lower[key] = lower_is_better(first)
    return {at: rank for key, group in groups.items() for at, rank in _ranks(group, lower[key]).items()}


def _their_ranks(places: Places, table: PaperTable) -> dict[tuple[int, int, int], int]:
    groups: dict[tuple[object, ...], dict[tuple[int, int, int], float]] = {}
    lower: dict[tuple[object, ...], bool] = {}
    for r, row in enumerate(places):
        for c, printed in enumerate(row):
            for k, numbers in enumerate(printed):
                key = rival_key(numbers, table, with_model=True)
                value = order_value(numbers)
                if key is not None and not math.isnan(value):
                    groups.setdefault(key, {})[r, c, k] = value
                    lower[key] = lower_is_better(numbers[0])
    return {at: rank for key, group in groups.items() for at, rank in _ranks(group, lower[key]).items()}


def _ranks(values: Mapping[At, float], lower: bool) -> dict[At, int]:
    """1 for the best; equal values share a rank, and a lone value has none."""
    if len(values) < 2:
        return {}
    signed = {at: round(value if lower else -value, 9) for at, value in values.items()}
    return {at: 1 + sum(other < value for other in signed.values()) for at, value in signed.items()}
