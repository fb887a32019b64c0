"""Which table belongs to which item of which paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from harness.papers import cost_tables
from harness.papers.efficiency import MeasuredTable
from harness.papers.own_comparisons import oracle_gap, realised, regimes
from harness.papers.own_leaderboard import leaderboards, readings
from harness.papers.published import PAPERS

OURS = "ours"
SPEED = "Speed and memory"  # of a paper's methods on our machine, beyond what it prints

_COSTS: Mapping[tuple[str, str], Callable[[Path], MeasuredTable]] = {
    ("keydiff", "Table 4"): cost_tables.keydiff_table_4,
    ("caote", "Table 6"): cost_tables.caote_table_6,
    ("caote", "Table 7"): cost_tables.caote_table_7,
    ("hashevict", "Table 1"): cost_tables.hashevict_table_1,
    ("kvec", "Table 8"): cost_tables.kvec_table_8,
    ("kvec", "Table 9"): cost_tables.kvec_table_9,
    **{(paper, SPEED): partial(cost_tables.throughput, paper) for paper in PAPERS},
}
_OURS: Mapping[str, Callable[[pd.DataFrame], Sequence[MeasuredTable]]] = {
    "Leaderboard": leaderboards,
    "Oracle gap": lambda rows: [oracle_gap(rows)],
    "Realised budget": lambda rows: [realised(rows)],
    "Prompt regimes": lambda rows: [regimes(rows)],
    "Both readings": lambda rows: [readings(rows)],
}


def extras(paper: str) -> tuple[str, ...]:
    """Items to show beyond those that the paper prints; for ``ours`` all there are."""
    return tuple(_OURS) if paper == OURS else (SPEED,)


def tables(paper: str, item: str, rows: pd.DataFrame, results: Path) -> list[MeasuredTable]:
    """The tables of one item; empty where it is not about costs.

    ``rows``: of `harness.store.loading.load_rows`. ``results``: the folder with ``efficiency/``. Raises
    `harness.papers.efficiency.NotMeasuredError` where nothing is stored to make them of.
    """
    if paper == OURS:
        return list(_OURS[item](rows))
    made = _COSTS.get((paper, item))
    return [made(results)] if made else []
