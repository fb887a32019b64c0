"""Both readings where a paper's text and code, or two implementations of one method, disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from harness.measured.scored import (
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
from harness.measured.table import Table, Value
from harness.report.names import ordered_budgets

PAIRS = Path(__file__).with_name("readings.yaml")
Pair = Mapping[str, str]  # paper, first, second, differs, source


@cache
def pairs() -> tuple[Pair, ...]:
    """Every pair of presets that read one method differently."""
    found: list[Pair] = OmegaConf.to_container(OmegaConf.load(PAIRS))  # type: ignore[assignment]
    return tuple(found)


def readings(rows: pd.DataFrame) -> Table:
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
    return Table(
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
