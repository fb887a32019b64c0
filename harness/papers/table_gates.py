"""Why our value of a place can show nothing about methods: dense at the floor, all tied at an end, nothing evicted."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.papers.cell_index import CellRows
from harness.papers.dense_gate import dense_gate, nothing_evicted, tied_at_an_end
from harness.papers.kept_shares import kept_as
from harness.papers.published import Scale
from harness.papers.table_cells import MatchingCells, NoValueError
from harness.papers.table_layouts import PrintedNumber
from harness.papers.table_values import sample_scores

Cells = tuple[PrintedNumber, MatchingCells | None]


def place_gate(number: PrintedNumber, match: MatchingCells | None, scale: Scale, known: dict[object, str]) -> str:
    """The sentence of a place whose dense is at the floor, or whose budget held the whole prompt; else empty.

    An average is gated where each of its tasks is. A perplexity, a correlation or a share of the cache has no floor.
    ``known``: sentences by metric and dense cells, so that each is found once.
    """
    if match is None:
        return ""
    metric = number.at["metric"]
    if number.at["method"] not in ("dense", "none") and nothing_evicted(match.cells):
        return "nothing was evicted"
    if kept_as(metric) != "share" or not match.dense:
        return ""
    dense = MatchingCells(match.dense, match.dense)
    if (metric, dense.key) not in known:
        gates = [dense_gate(cell, values[0], metric) for cell, values in _scores(number, dense, scale)]
        closed = [gate.sentence for gate in gates if not gate.is_open]
        known[metric, dense.key] = closed[0] if closed and len(closed) == len(gates) else ""
    return known[metric, dense.key]


def tie_of(group: Sequence[Cells], scale: Scale) -> str:
    """``all at 1.00`` where every sample of all compared cells has that score; empty for less than two cells."""
    series: list[pd.Series] = []
    for number, match in group:
        if kept_as(number.at["metric"]) == "share" and match is not None:
            series += [each for _, values in _scores(number, match, scale) for each in values]
    distinct = {match.key for _, match in group if match is not None}
    return tied_at_an_end(series) if len(distinct) > 1 else ""


def _scores(number: PrintedNumber, match: MatchingCells, scale: Scale) -> list[tuple[CellRows, list[pd.Series]]]:
    try:
        return sample_scores(number.at["metric"], match, scale)
    except NoValueError:
        return []
