"""Realised against nominal budget: what a policy really held when it was asked for so much."""

from __future__ import annotations

import pandas as pd

from harness.measured.scored import PLACE, absent, at, conditions, regime_of, scored
from harness.measured.table import Table, Value
from harness.report.names import ordered_budgets, ordered_policies

MANY = 10  # policies


def realised(rows: pd.DataFrame) -> Table:
    """One task and budget: the longest answers of those at which many policies stand beside dense.

    Policies that were run there under another budget only (FastGen, which takes none) stand there with it.
    """
    own = scored(rows, "realised")
    sparse = own[~own["dense"] & ~own["reference"] & (own["prompt"] != "simulated") & own["of_dense"].notna()]
    if sparse.empty:
        raise absent("realised")
    *place, asked = _fullest(sparse)
    here = sparse[at(sparse, PLACE, place)]
    at_budget = here["budget"] == asked
    here = here[at_budget | ~here["policy"].isin(set(here[at_budget]["policy"]))]
    lines: list[tuple[Value, ...]] = []
    for policy in ordered_policies(here["policy"]):
        named = here[here["policy"] == policy]
        for budget in ordered_budgets(named["budget"]):
            for _, cell in named[named["budget"] == budget].groupby("setting", sort=True):
                lines.append((policy, regime_of(cell), budget, *_sizes(cell), len(cell)))
    dense = own[own["dense"] & at(own, PLACE, place)]
    return Table(
        name="realised",
        title="Realised against nominal budget",
        caption="Nominal: slots that the budget names. At most: held by some layer and head between steps, generated "
        "tokens included; at the peak: seen by attention, the block or the whole prompt included. Realised is the "
        "most bytes of K, V and policy state at one time; beside nominal it is over what the nominal slots would "
        "take, beside dense over the dense cache of the same samples. All are means over samples.",
        conditions=conditions(pd.concat([here, dense])),
        columns=("policy", "prompt", "budget", "nominal slots", "at most", "at the end", "at the peak",
                 "state, of K and V", "realised / nominal", "realised / dense", "samples"),
        lines=tuple(lines),
    )  # fmt: skip


def _fullest(sparse: pd.DataFrame) -> tuple[object, ...]:
    """Of the places and budgets with `MANY` policies the one with the longest answers, else the one with the most."""
    found = sparse.groupby([*PLACE, "budget"], sort=True).agg({"policy": "nunique", "new_tokens": "max"})
    found["many"] = found["policy"] >= MANY
    found.loc[~found["many"], "new_tokens"] = 0
    best: tuple[object, ...] = found.sort_values(["many", "new_tokens", "policy"], kind="stable").index[-1]
    return best


def _sizes(cell: pd.DataFrame) -> tuple[float, ...]:
    """Nominal, at most, at the end, at the peak, state over K and V, and realised over nominal and over dense."""
    nominal = cell["slots_requested"] * cell["slot_bytes"]
    return (
        float(cell["slots_requested"].mean()),
        float(cell["slots_kept_max"].mean()),
        float(cell["slots_kept_mean"].mean()),
        float(cell["slots_peak"].mean()),
        float((cell["state_bytes"] / cell["kv_bytes"]).mean()),
        float((cell["bytes"] / nominal).mean()),
        float(cell["of_dense"].mean()),
    )
