"""All policies at equal realised bytes, at several sizes and in every prompt regime that they were run in.

A budget is what a policy is asked for; K, V and state at their largest are what it takes. Each policy is run at
budgets on both sides of the compared size and read at a mixture of the two: the share of prompts that get the larger
budget is what makes its mean bytes the compared ones. Nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from harness.analysis.statistics import Interval
from harness.papers.comparison_rows import (
    SCOPE,
    comparable_rows,
    format_interval,
    mean_difference,
    mean_score,
    on_common_samples,
    regime_text,
    row_conditions,
)
from harness.papers.efficiency_rows import BOARD_ITEM, newest_by_model, value_of
from harness.papers.measured_tables import MeasuredTable, NotMeasuredError, Value
from harness.papers.published import PAPERS, name_map
from harness.report.labels import NLL

SIZES = (0.125, 0.25, 0.5)  # of the dense cache's bytes: 8:1, 4:1 and 2:1
FEWEST_POLICIES = 5  # policies in a board
COLUMNS = ("policy", "score", "prompt", "rank", "ranks", "to dense", "state", "samples")
TIMES = ("prompt, ms/token", "decode, ms/token")  # columns of boards whose model has been timed
NOTES = ("papers", "budgets mixed")  # the last columns
TIE = 1e-9  # means that differ by less are equal
DRAWS = 2000  # of samples, for intervals of ranks


@dataclass(frozen=True)
class LeaderboardLine:
    """One policy in one regime at the compared size, over the samples of all its cells.

    ``mixed``: its value for each sample, at the mixture. ``state``: the share of its bytes that are no keys and values.
    """

    policy: str
    prompt: str  # as shown, with the block size
    regime: str  # blocked | one_shot | token_fed
    budgets: str
    score: Interval
    to_dense: Interval | None
    reference: bool
    mixed: pd.DataFrame  # columns sample_id, cluster, value
    state: float


def leaderboards(rows: pd.DataFrame, results: Path, sizes: Sequence[float] = SIZES) -> list[MeasuredTable]:
    """One leaderboard per task and size (of the dense bytes) on which enough policies can be read.

    ``results``: the folder whose ``efficiency/`` says what a token costs (``python -m scripts.efficiency --of
    leaderboard``); boards of models that were not timed have no such columns.
    """
    own = comparable_rows(rows, "leaderboard", likelihoods=True)
    own = own[own["of_dense"].notna() & (own["prompt"] != "simulated")]
    tasks = [(part, _policy_cells(part)) for _, part in own.groupby(list(SCOPE), sort=False)]
    timed = newest_by_model(results, BOARD_ITEM)
    boards = (_leaderboard(part, policies, size, timed) for part, policies in tasks for size in sizes)
    found = [board for board in boards if board is not None]
    if not found:
        raise NotMeasuredError(
            f"Not measured: no task has {FEWEST_POLICIES} policies that were run on both sides of a compared size. "
            "'python -m harness +exp=leaderboard scale=mini results_dir=<this folder>' runs them."
        )
    return found


@dataclass(frozen=True)
class PolicyCells:
    """The cells of one policy in one regime: their mean share of the dense bytes and their rows, smallest first."""

    policy: str
    cells: Sequence[tuple[float, pd.DataFrame]]


def _policy_cells(part: pd.DataFrame) -> list[PolicyCells]:
    """All policies of one task in each of their regimes."""
    sparse = part[~part["dense"]].groupby(["policy", "prompt", "block_size"], sort=True)
    return [
        PolicyCells(
            str(policy),
            sorted(
                ((float(cell["of_dense"].mean()), cell) for _, cell in rows.groupby("setting", sort=True)),
                key=lambda each: each[0],
            ),
        )
        for (policy, *_), rows in sparse
    ]


def _leaderboard(
    part: pd.DataFrame, policies: Sequence[PolicyCells], compared: float, timed: Mapping[str, pd.DataFrame]
) -> MeasuredTable | None:
    dense = part[part["dense"]].drop_duplicates("sample_id")
    sense = -1 if part["metric"].iloc[0] == NLL else 1
    standings, outside = [], []
    for each in policies:
        found = _policy_line(each, dense, compared)
        if found:
            standings.append(found)
        else:
            (low, cell), (high, _) = each.cells[0], each.cells[-1]
            outside.append(f"{each.policy} ({regime_text(cell)}: {100 * low:.0f} to {100 * high:.0f} %)")
    ranked = sorted((each for each in standings if not each.reference), key=lambda each: -sense * each.score.mean)
    if len({each.policy for each in ranked}) < FEWEST_POLICIES:
        return None
    task, places = str(part["task"].iloc[0]), _rank_intervals(ranked, sense)
    costs = timed.get(str(part["model"].iloc[0]))

    def times(policy: str, regime: str = "") -> tuple[Value, ...]:
        return () if costs is None else _times(costs, policy, regime)

    def line(each: LeaderboardLine, rank: str = "", place: str = "") -> tuple[Value, ...]:
        return (
            *_table_line(each, rank, place),
            *times(each.policy, each.regime),
            ", ".join(_papers_of(each.policy)),
            each.budgets,
        )

    lines = [
        ("dense", format_interval(mean_score(dense)), "all", "", "", "", "", len(dense), *times("dense"), "", ""),
        *(line(each) for each in standings if each.reference),
        *(
            line(each, f"{1 + sum(sense * (other.score.mean - each.score.mean) > 0 for other in ranked)}", place)
            for each, place in zip(ranked, places, strict=True)
        ),
    ]
    left_out = f" Not run on both sides of that size, and so without a place: {'; '.join(outside)}." if outside else ""
    unit = " Scores are nats per token: the lower the better." if sense < 0 else ""
    return MeasuredTable(
        name=f"leaderboard-{100 * compared:g}-{task.replace('/', '-').replace(' ', '-')}",
        title=f"All policies at {100 * compared:g} % of the dense bytes: {task}",
        caption=f"Every policy holds {100 * compared:g} % of the dense cache's bytes on average: K, V and its own "
        "state, at their largest, generated tokens included. It is read at a mixture of the two budgets beside that "
        "size: so many prompts get the larger one that the mean is met. One-shot policies hold the whole prompt "
        f"before they compress it, which is not counted here. Ranks in brackets: of 95 % of {DRAWS:,} draws of "
        f"{_drawn_text(ranked)}."
        f"{unit}{_against_baselines(standings, sense)}{left_out}{_times_text(costs)}",
        conditions=row_conditions(part),
        columns=(*COLUMNS, *(() if costs is None else TIMES), *NOTES),
        lines=tuple(lines),
    )


def _times(costs: pd.DataFrame, policy: str, regime: str) -> tuple[Value, Value]:
    """Milliseconds per token of a prompt and of decode, of one row; empty where the policy was not timed."""
    own = costs[(costs["policy"] == policy) & ((costs["prompt"] == regime) | (policy == "dense"))]
    if own.empty:
        return "", ""
    prefill = value_of(own, "prefill_seconds") / int(own["prompt_tokens"].iloc[0])
    decode = value_of(own, "decode_seconds") / int(own["new_tokens"].max())
    return f"{1000 * prefill:.2f}", f"{1000 * decode:.1f}"


def _times_text(costs: pd.DataFrame | None) -> str:
    if costs is None:
        return ""
    first, new = costs.iloc[0], costs["new_tokens"].max()
    return (
        f" Times: one row, {first['prompt_tokens']:,} tokens, {first['budget_slots']:,} slots, {new} new tokens, "
        f"{first['dtype']}, {first['threads']} threads; medians of {first['repeats']} rounds."
    )


def _rank_intervals(ranked: Sequence[LeaderboardLine], sense: int) -> list[str]:
    """For each line ``[1, 4]``, from draws of the clusters that all lines have read; empty where they share too few."""
    tables = [each.mixed.set_index("sample_id") for each in ranked]
    common = sorted(_common_samples(ranked))
    clusters = tables[0].loc[common, "cluster"].to_numpy(str)
    names, inverse = np.unique(clusters, return_inverse=True)
    if len(names) < 2:
        return [""] * len(ranked)
    values = np.stack([table.loc[common, "value"].to_numpy(float) for table in tables])  # (lines, samples)
    sums, sizes = np.zeros((len(ranked), len(names))), np.bincount(inverse)
    for cluster in range(len(names)):
        sums[:, cluster] = values[:, inverse == cluster].sum(1)
    drawn = np.random.default_rng(0).multinomial(len(names), [1 / len(names)] * len(names), DRAWS)
    means = drawn @ sums.T / (drawn @ sizes)[:, None]  # (draws, lines)
    places = 1 + (sense * (means[:, None, :] - means[:, :, None]) > TIE).sum(-1)
    low, high = np.quantile(places, (0.025, 0.975), axis=0, method="closest_observation")
    return [f"[{first:.0f}, {last:.0f}]" for first, last in zip(low, high, strict=True)]


def _common_samples(ranked: Sequence[LeaderboardLine]) -> set[str]:
    return set.intersection(*(set(each.mixed["sample_id"]) for each in ranked))


def _drawn_text(ranked: Sequence[LeaderboardLine]) -> str:
    """Of which samples ranks are drawn; a line that has read more can have a mean rank outside of its bracket."""
    common, most = len(_common_samples(ranked)), max(each.score.n for each in ranked)
    if common == most:
        return "samples"
    return f"the {common} samples that all lines have read; scores and their ranks are of all that a line has"


BEYOND = (
    ("random", -1, "Worse than random eviction"),
    ("oracle", 1, "Better than the oracle, which knows attention and no answer"),
)


def _against_baselines(standings: Sequence[LeaderboardLine], sense: int) -> str:
    """Sentences about policies whose mean is worse than random's or better than the oracle's in the same regime."""
    said = []
    for name, better, words in BEYOND:
        side = sense * better
        bounds = {each.prompt: each.score for each in standings if each.policy == name}
        found: dict[str, list[str]] = {"intervals apart": [], "within intervals": []}
        for each in standings:
            bound = bounds.get(each.prompt)
            if not each.reference and bound is not None and side * (each.score.mean - bound.mean) > TIE:
                apart = each.score.high < bound.low if side < 0 else each.score.low > bound.high
                found["intervals apart" if apart else "within intervals"].append(f"{each.policy} ({each.prompt})")
        said += [f" {words}, {how}: {', '.join(names)}." for how, names in found.items() if names]
    return "".join(said)


def _table_line(each: LeaderboardLine, rank: str, place: str) -> tuple[Value, ...]:
    """The values of `COLUMNS`."""
    gap = format_interval(each.to_dense, signed=True) if each.to_dense else ""
    score, state = format_interval(each.score), f"{100 * each.state:.0f} %"
    return each.policy, score, each.prompt, rank, place, gap, state, each.score.n


def _papers_of(policy: str) -> list[str]:
    """Papers whose tables have a method that is this preset."""
    methods = name_map()["methods"]
    return [paper for paper in PAPERS if any(policy in (found or ()) for found in methods[paper].values())]


def _policy_line(own: PolicyCells, dense: pd.DataFrame, compared: float) -> LeaderboardLine | None:
    """None where no two cells (or one) enclose the compared size."""
    below = [each for each in own.cells if each[0] <= compared]
    above = [each for each in own.cells if each[0] >= compared]
    if not below or not above:
        return None
    (small, low), (large, high) = below[-1], above[0]
    share = 0.0 if large == small else (compared - small) / (large - small)
    ends = on_common_samples([low, high])
    if ends[0].empty:
        return None
    score = _mixed_interval([mean_score(each) for each in ends], share)
    top = dense[dense["sample_id"].isin(set(ends[0]["sample_id"]))].sort_values("sample_id")
    to_dense = (
        _mixed_interval([mean_difference(each, top) for each in ends], share) if len(top) == len(ends[0]) else None
    )
    budgets = [f"{cell['budget'].iloc[0]} ({100 * size:.0f} % of dense)" for size, cell in (below[-1], above[0])]
    mixed = f"{100 * (1 - share):.0f} % at {budgets[0]}, {100 * share:.0f} % at {budgets[1]}"
    first, second = ends
    blend = first[["sample_id", "cluster"]].assign(
        value=(1 - share) * first["value"].to_numpy(float) + share * second["value"].to_numpy(float)
    )
    state = sum(end["state_bytes"].sum() for end in ends) / sum(end["bytes"].sum() for end in ends)
    regime = str(low["prompt"].iloc[0]).partition("/")[0]
    reference = bool(low["reference"].iloc[0])
    return LeaderboardLine(own.policy, regime_text(low), regime, mixed, score, to_dense, reference, blend, float(state))


def _mixed_interval(ends: Sequence[Interval], share: float) -> Interval:
    """The mixture's mean and interval, whose ends are mixed like the mean.

    That interval is never too narrow: at worst the errors of the two cells are fully correlated.
    """
    (first, second), rest = ends, 1 - share
    low, high = (rest * getattr(first, end) + share * getattr(second, end) for end in ("low", "high"))
    return Interval(rest * first.mean + share * second.mean, low, high, first.n, first.n_clusters)
