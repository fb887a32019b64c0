"""Both readings where a paper's text and code, or two implementations of one method, disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from harness.analysis.statistics import Interval
from harness.papers.efficiency import MeasuredTable, Value
from harness.papers.own_comparisons import (
    PLACE,
    absent,
    at,
    conditions,
    difference,
    mean_of,
    on_common_samples,
    regime_of,
    scored,
    shown,
)
from harness.papers.published import PAPERS, names
from harness.report.labels import ordered_budgets

PAIRS = Path(__file__).with_name("readings.yaml")
Pair = Mapping[str, str]  # paper, first, second, differs, source


@cache
def pairs() -> tuple[Pair, ...]:
    """Every pair of presets that read one method differently."""
    found: list[Pair] = OmegaConf.to_container(OmegaConf.load(PAIRS))  # type: ignore[assignment]
    return tuple(found)


def readings(rows: pd.DataFrame) -> MeasuredTable:
    """One line for each pair, task and budget at which both were run; in the same prompt regime where there is one."""
    own = scored(rows, "readings")
    lines: list[tuple[Value, ...]] = []
    used = []
    for pair in pairs():
        for left, right in _both(own, pair):
            left, right = on_common_samples([left, right])
            if left.empty:
                continue
            size = right["bytes"].mean() / left["bytes"].mean()
            regimes = " / ".join(dict.fromkeys((regime_of(left), regime_of(right))))
            where = (str(left["task"].iloc[0]), str(left["budget"].iloc[0]), regimes)
            gap = shown(difference(right, left), signed=True)
            scores = (shown(mean_of(left)), shown(mean_of(right)), gap)
            named = (pair["first"], pair["second"], pair["differs"])
            lines.append((*named, *where, *scores, float(size), len(left), pair["source"]))
            used += [left, right]
    if not lines:
        raise absent("readings")
    return MeasuredTable(
        name="readings",
        title="Both readings",
        caption="Two presets of one method, asked for the same budget on the same samples. The difference is second "
        "minus first; bytes are K, V and state at their largest, second over first. Sources are sections of "
        "docs/policies.md.",
        conditions=conditions(pd.concat(used)),
        columns=("first", "second", "what differs", "task", "budget", "prompt", "first's score", "second's score",
                 "difference", "bytes, second / first", "samples", "source"),
        lines=tuple(lines),
    )  # fmt: skip


def _both(own: pd.DataFrame, pair: Pair) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Cells of both presets: in every regime that they share, else in the one that each has."""
    named = {side: own[own["policy"] == pair[side]] for side in ("first", "second")}
    for place, part in named["first"].groupby(list(PLACE), sort=False):
        other = named["second"][at(named["second"], PLACE, place)]
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


# All policies at equal realised bytes.
#
# A budget is what a policy is asked for; K, V and state at their largest are what it takes. Each policy is run at budgets
# on both sides of the compared size and read at a mixture of the two: the share of prompts that get the larger budget is
# what makes its mean bytes the compared ones. Nothing is extrapolated.


COMPARED = 0.25  # of the dense cache's bytes
FEWEST = 5  # policies in a board


@dataclass(frozen=True)
class LeaderboardLine:
    """One policy in one regime at the compared size, over the samples of all its cells."""

    policy: str
    prompt: str
    budgets: str
    score: Interval
    to_dense: Interval | None
    reference: bool


def leaderboards(rows: pd.DataFrame, compared: float = COMPARED) -> list[MeasuredTable]:
    """One board for each task on which enough policies can be read at ``compared`` of the dense bytes."""
    own = scored(rows, "leaderboard")
    own = own[own["of_dense"].notna() & (own["prompt"] != "simulated")]
    boards = (_board(part, compared) for _, part in own.groupby(list(PLACE), sort=False))
    found = [board for board in boards if board is not None]
    if not found:
        raise absent("leaderboard")
    return found


def _board(part: pd.DataFrame, compared: float) -> MeasuredTable | None:
    dense = part[part["dense"]].drop_duplicates("sample_id")
    standings, outside = [], []
    for (policy, *_), cells in part[~part["dense"]].groupby(["policy", "prompt", "block_size"], sort=True):
        found = _standing(str(policy), cells, dense, compared)
        if found:
            standings.append(found)
        else:
            low, high = cells.groupby("setting")["of_dense"].mean().agg(["min", "max"])
            outside.append(f"{policy} ({regime_of(cells)}: {100 * low:.0f} to {100 * high:.0f} %)")
    ranked = sorted((each for each in standings if not each.reference), key=lambda each: -each.score.mean)
    if len({each.policy for each in ranked}) < FEWEST:
        return None
    task = str(part["task"].iloc[0])
    lines = [
        ("", "dense", "", "all", "", shown(mean_of(dense)), "", len(dense)),
        *(_line("", each) for each in standings if each.reference),
        *(_line(f"{1 + sum(other.score.mean > each.score.mean for other in ranked)}", each) for each in ranked),
    ]
    left_out = f" Not run on both sides of that size, and so without a place: {'; '.join(outside)}." if outside else ""
    return MeasuredTable(
        name=f"leaderboard-{task.replace('/', '-').replace(' ', '-')}",
        title=f"All policies at equal realised bytes: {task}",
        caption=f"Every policy holds {100 * compared:.0f} % of the dense cache's bytes on average: K, V and its own "
        "state, at their largest, generated tokens included. It is read at a mixture of the two budgets beside that "
        "size: so many prompts get the larger one that the mean is met. One-shot policies hold the whole prompt "
        f"before they compress it, which is not counted here.{left_out}",
        conditions=conditions(part),
        columns=("rank", "policy", "papers", "prompt", "budgets mixed", "score", "to dense", "samples"),
        lines=tuple(lines),
    )


def _line(rank: str, each: LeaderboardLine) -> tuple[Value, ...]:
    gap = shown(each.to_dense, signed=True) if each.to_dense else ""
    papers = ", ".join(_papers_of(each.policy))
    return rank, each.policy, papers, each.prompt, each.budgets, shown(each.score), gap, each.score.n


def _papers_of(policy: str) -> list[str]:
    """Papers whose tables have a method that this preset stands for."""
    methods = names()["methods"]
    return [paper for paper in PAPERS if any(policy in (found or ()) for found in methods[paper].values())]


def _standing(policy: str, cells: pd.DataFrame, dense: pd.DataFrame, compared: float) -> LeaderboardLine | None:
    """None where no two cells (or one) enclose the compared size."""
    sized = sorted(_sizes(cells), key=lambda each: each[0])
    below = [each for each in sized if each[0] <= compared]
    above = [each for each in sized if each[0] >= compared]
    if not below or not above:
        return None
    (small, low), (large, high) = below[-1], above[0]
    share = 0.0 if large == small else (compared - small) / (large - small)
    ends = on_common_samples([low, high])
    if ends[0].empty:
        return None
    score = _mixed([mean_of(each) for each in ends], share)
    top = dense[dense["sample_id"].isin(set(ends[0]["sample_id"]))].sort_values("sample_id")
    to_dense = _mixed([difference(each, top) for each in ends], share) if len(top) == len(ends[0]) else None
    mixed = f"{100 * (1 - share):.0f} % at {_budget(low)}, {100 * share:.0f} % at {_budget(high)}"
    return LeaderboardLine(policy, regime_of(cells), mixed, score, to_dense, bool(cells["reference"].iloc[0]))


def _mixed(ends: Sequence[Interval], share: float) -> Interval:
    """The mixture's mean, with ends of its interval mixed alike: never narrower than the samples allow, for the two
    cells err together at worst."""
    (first, second), rest = ends, 1 - share
    low, high = (rest * getattr(first, end) + share * getattr(second, end) for end in ("low", "high"))
    return Interval(rest * first.mean + share * second.mean, low, high, first.n, first.n_clusters)


def _sizes(cells: pd.DataFrame) -> Iterator[tuple[float, pd.DataFrame]]:
    for _, cell in cells.groupby("setting", sort=True):
        yield float(cell["of_dense"].mean()), cell


def _budget(cell: pd.DataFrame) -> str:
    return f"{cell['budget'].iloc[0]} ({100 * cell['of_dense'].mean():.0f} % of dense)"
