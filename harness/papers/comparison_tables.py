"""Comparisons that no paper prints: simulated blocks, realised budgets, prompt regimes, two readings of one method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from harness.engine.requests import REGIMES
from harness.papers.comparison_rows import (
    SCOPE,
    comparable_rows,
    format_interval,
    mean_difference,
    mean_score,
    not_measured,
    on_common_samples,
    parts_by,
    regime_text,
    row_conditions,
)
from harness.papers.measured_tables import MeasuredTable, Value
from harness.report.labels import ordered_budgets, ordered_policies

# The oracle gap: what blocks that are simulated inside one dense pass gain over true blocks.


GAP_SETTING = (*SCOPE, "budget", "block_size")


def oracle_gap(rows: pd.DataFrame) -> MeasuredTable:
    """Simulated minus true, for every policy and block size of which both were run on the same samples."""
    own = comparable_rows(rows, "oracle_gap")
    sparse = own[~own["dense"] & ~own["reference"]]
    simulated = sparse[sparse["prompt"] == "simulated"]
    lines: list[tuple[Value, ...]] = []
    used = []
    blocked, dense_of = parts_by(sparse[sparse["prompt"] == "blocked"], GAP_SETTING), _dense_by_scope(own)
    for key, part in simulated.groupby(list(GAP_SETTING), sort=True):
        true, dense = blocked(key), dense_of(key)
        for policy in ordered_policies(part["policy"]):
            pair = [each[each["policy"] == policy] for each in (true, part)]
            cells = on_common_samples([*pair, dense] if len(dense) else pair)
            if cells[0].empty:
                continue
            below, above = cells[:2]
            gap = format_interval(mean_difference(above, below), signed=True)
            top = format_interval(mean_score(cells[-1])) if len(dense) else "not run"
            budget, block = str(key[-2]), int(part["block_size"].iloc[0])
            lines.append(
                (
                    policy,
                    block,
                    budget,
                    format_interval(mean_score(below)),
                    format_interval(mean_score(above)),
                    gap,
                    top,
                    len(below),
                )
            )
            used += cells
    if not lines:
        raise not_measured("oracle_gap")
    return MeasuredTable(
        name="oracle-gap",
        title="Simulated against true blocks",
        caption="Simulated: survivors are chosen block by block, but every token of the prompt was computed as if "
        "nothing had been evicted, which is what happens where a whole prompt passes through the model once and "
        "eviction is acted out on its keys and values. True: a block attends to what survived the blocks before it. "
        "The gap is what the first says too much; the cache that it claims to have saved was there all the time.",
        conditions=row_conditions(pd.concat(used)),
        columns=("policy", "block, tokens", "budget", "true blocks", "simulated", "gap", "dense", "samples"),
        lines=tuple(lines),
    )


def _dense_by_scope(own: pd.DataFrame) -> Callable[[Sequence[object]], pd.DataFrame]:
    """The rows of dense in a scope, each sample once."""
    return parts_by(own[own["dense"]].drop_duplicates([*SCOPE, "sample_id"]), SCOPE)


# Realised against nominal budget: what a policy held under a budget.


MANY_POLICIES = 10  # policies


def realised_budgets(rows: pd.DataFrame) -> MeasuredTable:
    """One task and budget: of those with many policies and dense, the one with the longest answers.

    Policies that were run there under another budget only (FastGen, which takes none) are shown with that one.
    """
    own = comparable_rows(rows, "realised")
    sparse = own[~own["dense"] & ~own["reference"] & (own["prompt"] != "simulated") & own["of_dense"].notna()]
    if sparse.empty:
        raise not_measured("realised")
    *scope, budget = _largest_scope(sparse)
    here = parts_by(sparse, SCOPE)(scope)
    at_budget = here["budget"] == budget
    here = here[at_budget | ~here["policy"].isin(set(here[at_budget]["policy"]))]
    lines: list[tuple[Value, ...]] = []
    for policy in ordered_policies(here["policy"]):
        named = here[here["policy"] == policy]
        for budget in ordered_budgets(named["budget"]):
            for _, cell in named[named["budget"] == budget].groupby("setting", sort=True):
                lines.append((policy, regime_text(cell), budget, *_mean_sizes(cell), len(cell)))
    dense = parts_by(own[own["dense"]], SCOPE)(scope)
    return MeasuredTable(
        name="realised",
        title="Realised against nominal budget",
        caption="Nominal: slots that the budget names. At most: held by some layer and head between steps, generated "
        "tokens included; at the peak: seen by attention, the block or the whole prompt included. Realised is the "
        "most bytes of K, V and policy state at one time; beside nominal it is over what the nominal slots would "
        "take, beside dense over the dense cache of the same samples. All are means over samples.",
        conditions=row_conditions(pd.concat([here, dense])),
        columns=("policy", "prompt", "budget", "nominal slots", "at most", "at the end", "at the peak",
                 "state, of K and V", "realised / nominal", "realised / dense", "samples"),
        lines=tuple(lines),
    )  # fmt: skip


def _largest_scope(sparse: pd.DataFrame) -> tuple[object, ...]:
    """The scope and budget with the longest answers among those with `MANY_POLICIES`, else with the most policies."""
    found = sparse.groupby([*SCOPE, "budget"], sort=True).agg({"policy": "nunique", "new_tokens": "max"})
    found["many"] = found["policy"] >= MANY_POLICIES
    found.loc[~found["many"], "new_tokens"] = 0
    best: tuple[object, ...] = found.sort_values(["many", "new_tokens", "policy"], kind="stable").index[-1]
    return best


def _mean_sizes(cell: pd.DataFrame) -> tuple[float, ...]:
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


def prompt_regimes(rows: pd.DataFrame) -> MeasuredTable:
    """One line for each policy, budget and block size that was run in all regimes, over the samples of all three."""
    own = comparable_rows(rows, "regimes")
    own = own[own["prompt"].isin(REGIMES) & ~own["reference"]]
    sparse, lines = own[~own["dense"]], list[tuple[Value, ...]]()
    used = []
    blocked = sparse[sparse["prompt"] == "blocked"]
    in_regime, dense_of = parts_by(sparse, [*SCOPE, "budget", "policy", "prompt"]), _dense_by_scope(own)
    for key, part in blocked.groupby([*SCOPE, "budget", "block_size"], sort=True):
        task, budget, block = str(key[-3]), str(key[-2]), int(part["block_size"].iloc[0])
        dense, own_blocks = dense_of(key), parts_by(part, ["policy"])
        for policy in ordered_policies(part["policy"]):
            cells = [own_blocks([policy])]
            cells += [in_regime([*key[:-1], policy, regime]) for regime in REGIMES[1:]]
            if any(cell["setting"].nunique() != 1 for cell in cells):
                continue
            cells = on_common_samples([*cells, dense] if len(dense) else cells)
            if cells[0].empty:
                continue
            first, *others = cells[: len(REGIMES)]
            gaps = [mean_difference(each, first) for each in others]
            peaks = " / ".join(f"{cell['slots_peak'].max()}" for cell in cells[: len(REGIMES)])
            above = format_interval(mean_score(cells[-1])) if len(dense) else "not run"
            lines.append(
                (policy, task, budget, block, *(format_interval(mean_score(cell)) for cell in (first, *others)),
                 *(format_interval(gap, signed=True) for gap in gaps), above, peaks, len(first))
            )  # fmt: skip
            used += cells
    if not lines:
        raise not_measured("regimes")
    return MeasuredTable(
        name="regimes",
        title="The same policy under three prompt regimes",
        caption="Blocked: true blocks, each of which attends to what survived the ones before. One shot: the whole "
        "prompt is read before anything is evicted, so that it costs its full cache for a moment. Token-fed: as many "
        "tokens as the budget has slots at once, then one by one. The last column is the most slots that attention "
        "saw.",
        conditions=row_conditions(pd.concat(used)),
        columns=("policy", "task", "budget", "block, tokens", *REGIMES, "one_shot − blocked", "token_fed − blocked",
                 "dense", "slots at the peak, each", "samples"),
        lines=tuple(lines),
    )  # fmt: skip


# Both readings, where a paper's text and code, or two implementations of one method, disagree.


PAIRS = Path(__file__).with_name("readings.yaml")
ReadingPair = Mapping[str, str]  # paper, first, second, differs, source


@cache
def reading_pairs() -> tuple[ReadingPair, ...]:
    """Every pair of presets that read one method differently."""
    found: list[ReadingPair] = OmegaConf.to_container(OmegaConf.load(PAIRS))  # type: ignore[assignment]
    return tuple(found)


def both_readings(rows: pd.DataFrame) -> MeasuredTable:
    """One line for each pair, task and budget at which both were run; in the same prompt regime where there is one."""
    own = comparable_rows(rows, "readings")
    lines: list[tuple[Value, ...]] = []
    used = []
    for pair in reading_pairs():
        for left, right in _cell_pairs(own, pair):
            left, right = on_common_samples([left, right])
            if left.empty:
                continue
            size = right["bytes"].mean() / left["bytes"].mean()
            regimes = " / ".join(dict.fromkeys((regime_text(left), regime_text(right))))
            where = (str(left["task"].iloc[0]), str(left["budget"].iloc[0]), regimes)
            gap = format_interval(mean_difference(right, left), signed=True)
            scores = (format_interval(mean_score(left)), format_interval(mean_score(right)), gap)
            named = (pair["first"], pair["second"], pair["differs"])
            lines.append((*named, *where, *scores, float(size), len(left), pair["source"]))
            used += [left, right]
    if not lines:
        raise not_measured("readings")
    return MeasuredTable(
        name="readings",
        title="Both readings",
        caption="Two presets of one method, asked for the same budget on the same samples. The difference is second "
        "minus first; bytes are K, V and state at their largest, second over first. Sources are sections of "
        "docs/policies.md.",
        conditions=row_conditions(pd.concat(used)),
        columns=("first", "second", "what differs", "task", "budget", "prompt", "first's score", "second's score",
                 "difference", "bytes, second / first", "samples", "source"),
        lines=tuple(lines),
    )  # fmt: skip


def _cell_pairs(own: pd.DataFrame, pair: ReadingPair) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Cells of both presets: in every prompt regime that they share, else in the one that each has."""
    named = {side: own[own["policy"] == pair[side]] for side in ("first", "second")}
    of_second = parts_by(named["second"], SCOPE)
    for scope, part in named["first"].groupby(list(SCOPE), sort=False):
        other = of_second(scope)
        for budget in ordered_budgets(part["budget"]):
            left, right = (each[each["budget"] == budget] for each in (part, other))
            here = {
                side: dict(list(each.groupby(["prompt", "block_size"]))) for side, each in (("l", left), ("r", right))
            }
            common = [key for key in here["l"] if key in here["r"]]
            if common:
                yield from ((here["l"][key], here["r"][key]) for key in common)
            elif len(here["l"]) == len(here["r"]) == 1:
                yield left, right
