"""Which table belongs to which item of which paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from harness.measured import costs
from harness.measured.leaderboard import leaderboards
from harness.measured.oracle_gap import oracle_gap
from harness.measured.readings import readings
from harness.measured.realised import realised
from harness.measured.regimes import regimes
from harness.measured.table import Table
from harness.published import PAPERS

OURS = "ours"
SPEED = "Speed and memory"  # of a paper's methods on our machine, beyond what it prints

_COSTS: Mapping[tuple[str, str], Callable[[Path], Table]] = {
    ("keydiff", "Table 4"): costs.keydiff_table_4,
    ("caote", "Table 6"): costs.caote_table_6,
    ("caote", "Table 7"): costs.caote_table_7,
    ("hashevict", "Table 1"): costs.hashevict_table_1,
    ("kvec", "Table 8"): costs.kvec_table_8,
    ("kvec", "Table 9"): costs.kvec_table_9,
    **{(paper, SPEED): partial(costs.throughput, paper) for paper in PAPERS},
}
_OURS: Mapping[str, Callable[[pd.DataFrame], Sequence[Table]]] = {
    "Leaderboard": leaderboards,
    "Oracle gap": lambda rows: [oracle_gap(rows)],
    "Realised budget": lambda rows: [realised(rows)],
    "Prompt regimes": lambda rows: [regimes(rows)],
    "Both readings": lambda rows: [readings(rows)],
}


def extras(paper: str) -> tuple[str, ...]:
    """Items to show beyond those that the paper prints; for ``ours`` all there are."""
    return tuple(_OURS) if paper == OURS else (SPEED,)


def tables(paper: str, item: str, rows: pd.DataFrame, results: Path) -> list[Table]:
    """The tables of one item; empty where it is not about costs.

    ``rows``: of `harness.store.load_rows`. ``results``: the folder with ``efficiency/``. Raises
    `harness.measured.efficiency.NotMeasuredError` where nothing is stored to make them of.
    """
    if paper == OURS:
        return list(_OURS[item](rows))
    made = _COSTS.get((paper, item))
    return [made(results)] if made else []
