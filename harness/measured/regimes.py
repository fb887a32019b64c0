"""The same policy under all three prompt regimes."""

from __future__ import annotations

import pandas as pd

from harness.engine.rows import REGIMES
from harness.measured.scored import (
    PLACE,
    absent,
    at,
    conditions,
    difference,
    mean_of,
    on_common_samples,
    scored,
    shown,
)
from harness.measured.table import Table, Value
from harness.report.names import ordered_policies


def regimes(rows: pd.DataFrame) -> Table:
    """One line for each policy, budget and block size that was run in all regimes, over the samples of all three."""
    own = scored(rows, "regimes")
    own = own[own["prompt"].isin(REGIMES) & ~own["reference"]]
    sparse, lines = own[~own["dense"]], list[tuple[Value, ...]]()
    used = []
    blocked = sparse[sparse["prompt"] == "blocked"]
    for key, part in blocked.groupby([*PLACE, "budget", "block_size"], sort=True):
        task, budget, block = str(key[-3]), str(key[-2]), int(part["block_size"].iloc[0])
        same = sparse[at(sparse, PLACE, key) & (sparse["budget"] == budget)]
        dense = own[own["dense"] & at(own, PLACE, key)].drop_duplicates("sample_id")
        for policy in ordered_policies(part["policy"]):
            cells = [part[part["policy"] == policy]]
            cells += [same[(same["policy"] == policy) & (same["prompt"] == regime)] for regime in REGIMES[1:]]
            if any(cell["setting"].nunique() != 1 for cell in cells):
                continue
            cells = on_common_samples([*cells, dense] if len(dense) else cells)
            if cells[0].empty:
                continue
            first, *others = cells[: len(REGIMES)]
            gaps = [difference(each, first) for each in others]
            peaks = " / ".join(f"{cell['slots_peak'].max()}" for cell in cells[: len(REGIMES)])
            above = shown(mean_of(cells[-1])) if len(dense) else "not run"
            lines.append(
                (policy, task, budget, block, *(shown(mean_of(cell)) for cell in (first, *others)),
                 *(shown(gap, signed=True) for gap in gaps), above, peaks, len(first))
            )  # fmt: skip
            used += cells
    if not lines:
        raise absent("regimes")
    return Table(
        name="regimes",
        title="The same policy under three prompt regimes",
        caption="Blocked: true blocks, each of which attends to what survived the ones before. One shot: the whole "
        "prompt is read before anything is evicted, so that it costs its full cache for a moment. Token-fed: as many "
        "tokens as the budget has slots at once, then one by one. The last column is the most slots that attention "
        "saw.",
        conditions=conditions(pd.concat(used)),
        columns=("policy", "task", "budget", "block, tokens", *REGIMES, "one_shot − blocked", "token_fed − blocked",
                 "dense", "slots at the peak, each", "samples"),
        lines=tuple(lines),
    )  # fmt: skip
