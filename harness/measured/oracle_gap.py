"""The oracle gap: what blocks that are simulated inside one dense pass gain over true blocks."""

from __future__ import annotations

import pandas as pd

from harness.measured.scored import PLACE, absent, at, conditions, difference, mean_of, on_common_samples, scored, shown
from harness.measured.table import Table, Value
from harness.report.names import ordered_policies

SETTING = (*PLACE, "budget", "block_size")


def oracle_gap(rows: pd.DataFrame) -> Table:
    """Simulated minus true, for every policy and block size of which both were run on the same samples."""
    own = scored(rows, "oracle_gap")
    sparse = own[~own["dense"] & ~own["reference"]]
    simulated = sparse[sparse["prompt"] == "simulated"]
    lines: list[tuple[Value, ...]] = []
    used = []
    for key, part in simulated.groupby(list(SETTING), sort=True):
        true = sparse[at(sparse, SETTING, key) & (sparse["prompt"] == "blocked")]
        dense = own[own["dense"] & at(own, PLACE, key)].drop_duplicates("sample_id")
        for policy in ordered_policies(part["policy"]):
            pair = [each[each["policy"] == policy] for each in (true, part)]
            cells = on_common_samples([*pair, dense] if len(dense) else pair)
            if cells[0].empty:
                continue
            below, above = cells[:2]
            gap = shown(difference(above, below), signed=True)
            top = shown(mean_of(cells[-1])) if len(dense) else "not run"
            budget, block = str(key[-2]), int(part["block_size"].iloc[0])
            lines.append((policy, block, budget, shown(mean_of(below)), shown(mean_of(above)), gap, top, len(below)))
            used += cells
    if not lines:
        raise absent("oracle_gap")
    return Table(
        name="oracle-gap",
        title="Simulated against true blocks",
        caption="Simulated: survivors are chosen block by block, but every token of the prompt was computed as if "
        "nothing had been evicted, which is what happens where a whole prompt passes through the model once and "
        "eviction is acted out on its keys and values. True: a block attends to what survived the blocks before it. "
        "The gap is what the first says too much; the cache that it claims to have saved was there all the time.",
        conditions=conditions(pd.concat(used)),
        columns=("policy", "block, tokens", "budget", "true blocks", "simulated", "gap", "dense", "samples"),
        lines=tuple(lines),
    )
