"""Rows as the comparisons use them: valid, one headline metric a task, sizes relative to the dense cache."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.analysis.statistics import Interval, mean_interval, paired_difference
from harness.engine.requests.request import REGIMES
from harness.papers.efficiency import MeasuredTable, NotMeasuredError, Value
from harness.report.labels import NLL, is_reference, metric_title, ordered_budgets, ordered_policies
from harness.report.ledger_table import readable
from harness.report.rows import checked, valid_rows

PLACE = ("model", "dtype", "seed", "task")  # scores and sizes are compared within one place only


def scored(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """One row per setting and sample, of cells without a broken invariant and tasks that have a score.

    ``setting``: policy with its settings, budget and regime; two cells of one task that differ in their samples alone
    are one setting, and a sample that both hold counts once. ``bytes``: K, V and policy state at their largest;
    ``of_dense``: the same over the dense cache of the same sample, NaN where no dense cell has read it; ``slot_bytes``:
    of one slot over all layers and heads, from the same cell. Raises `NotMeasuredError` where nothing is left;
    ``experiment`` would measure it.
    """
    if rows.empty:
        raise absent(experiment)
    valid = valid_rows(checked(rows))
    headline = valid.groupby("task", sort=False)["metric"].transform("first")
    own = valid[(valid["metric"] == headline) & (valid["metric"] != NLL)].copy()
    if own.empty:
        raise absent(experiment)
    own["bytes"] = own["kv_bytes"].astype(float) + own["state_bytes"].astype(float)
    full = own[own["dense"]].groupby([*PLACE, "sample_id"])[["kv_bytes", "slots_kept_max"]].max()
    sizes = pd.DataFrame({"dense_bytes": full["kv_bytes"], "slot_bytes": full["kv_bytes"] / full["slots_kept_max"]})
    own = own.join(sizes, on=[*PLACE, "sample_id"])
    own["of_dense"] = own["bytes"] / own["dense_bytes"]
    settings = own.drop_duplicates("cell_id").set_index("cell_id")["config"].map(_policy_settings)
    regime = own["prompt"] + "/" + own["block_size"].astype(str)
    own["setting"] = own["policy"] + " " + own["budget"] + " " + regime + " " + own["cell_id"].map(settings)
    own = own.drop_duplicates([*PLACE, "setting", "sample_id"])
    own["reference"] = own["policy"].map(is_reference)
    return own


def _policy_settings(config: str) -> str:
    """The policy's part of a cell's identity as text."""
    try:
        return json.dumps(json.loads(config).get("policy", ""), sort_keys=True)
    except (ValueError, AttributeError):
        return ""


def absent(experiment: str) -> NotMeasuredError:
    """The error for a comparison that the rows do not hold."""
    return NotMeasuredError(
        f"Not measured: the rows hold no two cells to compare here; python -m harness +exp=ours/{experiment} "
        "scale=mini measures them."
    )


def at(rows: pd.DataFrame, columns: Sequence[str], key: Sequence[object]) -> pd.Series:
    """Which rows have these values, in the order of ``columns``; what ``key`` has beyond them is ignored."""
    same = pd.Series(True, rows.index)
    for column, value in zip(columns, key, strict=False):
        same &= rows[column] == value
    return same


def on_common_samples(cells: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """The same cells without the samples that one of them lacks, in one order."""
    common = set.intersection(*(set(cell["sample_id"]) for cell in cells))
    return [cell[cell["sample_id"].isin(common)].sort_values("sample_id") for cell in cells]


def difference(left: pd.DataFrame, right: pd.DataFrame) -> Interval:
    """Of left - right, paired: two cells `on_common_samples`."""
    values, others = left["value"].to_numpy(float), right["value"].to_numpy(float)
    return paired_difference(values, others, left["cluster"].to_numpy(str), left["weight"].to_numpy(float))


def mean_of(cell: pd.DataFrame) -> Interval:
    """The mean score of one cell's rows."""
    return mean_interval(cell["value"].to_numpy(float), cell["cluster"].to_numpy(str), cell["weight"].to_numpy(float))


def shown(interval: Interval, signed: bool = False) -> str:
    """``0.45 [0.26, 0.66]``, with a sign for differences; a dash where there is no interval."""
    form = "{:+.2f}" if signed else "{:.2f}"
    texts = [form.format(x).replace("-", "−") for x in (interval.mean, interval.low, interval.high)]
    return texts[0] if np.isnan(interval.low) else f"{texts[0]} [{texts[1]}, {texts[2]}]"


def regime_of(cell: pd.DataFrame) -> str:
    """``blocked, 32`` or ``one_shot``."""
    first = cell.iloc[0]
    return f"{first['prompt']}, {first['block_size']}" if first["block_size"] else str(first["prompt"])


def conditions(used: pd.DataFrame) -> tuple[str, ...]:
    """On what, with what and how many, of exactly the rows that a table uses."""
    cells = used.drop_duplicates("cell_id")
    tasks = [
        f"{task} ({metric_title(str(part['metric'].iloc[0]))}, {part['sample_id'].nunique()} samples, prompts of "
        f"{_span(part['prompt_tokens'])} tokens, at most {part['new_tokens'].max()} new)"
        for task, part in used.groupby("task", sort=False)
    ]
    dtypes, machines = ", ".join(cells["dtype"].unique()), " | ".join(map(readable, cells["hardware"].unique()))
    days = sorted(set(cells["created"].str[:10]))
    return (
        f"Model {', '.join(cells['model'].unique())}, {dtypes}, greedy.",
        f"{'; '.join(tasks)}.",
        "Brackets are 95 % intervals; differences are paired over samples.",
        f"Computed {' to '.join(dict.fromkeys((days[0], days[-1])))} on {machines or 'an unknown machine'}, commit "
        f"{', '.join(filter(None, cells['git'].unique())) or 'unknown'}.",
    )


def _span(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# The oracle gap: what blocks that are simulated inside one dense pass gain over true blocks.


SETTING = (*PLACE, "budget", "block_size")


def oracle_gap(rows: pd.DataFrame) -> MeasuredTable:
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
    return MeasuredTable(
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


# Realised against nominal budget: what a policy really held when it was asked for so much.


MANY = 10  # policies


def realised(rows: pd.DataFrame) -> MeasuredTable:
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
    return MeasuredTable(
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


# The same policy under all three prompt regimes.


def regimes(rows: pd.DataFrame) -> MeasuredTable:
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
    return MeasuredTable(
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
