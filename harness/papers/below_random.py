"""Where a method keeps less of the answers than random eviction does under the same budget.

A policy that evicts at random has no idea of the text. Where a method is clearly below it, its rule throws away what
the question needs, and a difference between two such methods is one between two ways to lose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.analysis.statistics import Interval, mean_interval, paired_difference
from harness.papers.cell_index import CellRows
from harness.papers.comparison_rows import format_interval
from harness.report.labels import NLL, metric_title
from harness.report.looks import is_baseline

FLOOR = "random"  # the policy
BY_CHANCE = 0.025  # of settings that do not differ from random, the share whose interval lies below it


@dataclass(frozen=True)
class BelowRandom:
    """A setting that is clearly worse than random, on the samples that both have.

    ``difference``: random's score less its own, or its own negative log-likelihood less random's: positive here.
    """

    cell: CellRows
    own: Interval
    random: Interval
    difference: Interval

    @property
    def texts(self) -> tuple[str, ...]:
        """Policy, task, budget, regime, its score, random's score, difference, samples."""
        cell = self.cell
        regime = f"blocks of {cell.block_size}" if cell.prompt == "blocked" else cell.prompt.replace("_", " ")
        scores = (format_interval(each) for each in (self.own, self.random))
        unit = "nats per token" if cell.metric == NLL else metric_title(cell.metric)
        worse = "+" if cell.metric == NLL else "−"
        return (
            cell.policy, f"{cell.task} ({unit})", cell.budget, regime, *scores,
            worse + format_interval(self.difference), f"{self.difference.n:,}",
        )  # fmt: skip


@dataclass(frozen=True)
class RandomComparison:
    """``found``: the greatest difference first. ``compared``: settings with a random cell beside them."""

    found: tuple[BelowRandom, ...]
    compared: int
    without: int  # settings that have no random cell

    @property
    def sentence(self) -> str:
        """How many settings are below random, and how many cannot be compared."""
        lacking = f" {self.without:,} more have no random cell beside them." if self.without else ""
        if not self.compared:
            return f"No setting has a cell of random eviction beside it to be compared with.{lacking}"
        count = f"{len(self.found):,}" if self.found else "None"
        chance = round(BY_CHANCE * self.compared)
        expected = f" (by chance alone it would be about {chance:,})" if self.found and chance else ""
        return (
            f"{count} of {self.compared:,} settings {'is' if len(self.found) == 1 else 'are'} clearly below random "
            f"eviction with the same budget, task and prompt regime{expected}.{lacking}"
        )


def below_random(cells: Iterable[CellRows], own: frozenset[str]) -> RandomComparison:
    """Compare every evicting cell named in ``own`` (cell ids) with the random cell of the same setting.

    Clear is a 95 % interval of the paired difference that leaves out zero.
    """
    newest = {(cell.policy, _setting(cell)): cell for cell in cells}  # they come by age
    floors = {setting: cell for (policy, setting), cell in newest.items() if policy == FLOOR}
    compared, without = [], 0
    for (_, setting), cell in newest.items():
        if cell.cell_id not in own or cell.policy == "dense" or is_baseline(cell.policy):
            continue
        floor = floors.get(setting)
        found = _compare(cell, floor) if floor else None
        if found:
            compared.append(found)
        else:
            without += 1
    below = [each for each in compared if each.difference.low > 0]
    below.sort(key=lambda each: (each.cell.metric == NLL, -each.difference.mean, each.cell.policy, each.cell.task))
    return RandomComparison(tuple(below), len(compared), without)


def _setting(cell: CellRows) -> tuple[object, ...]:
    return (*cell.scope, cell.budget, cell.budget_of, cell.prompt, cell.block_size)


def _compare(cell: CellRows, floor: CellRows) -> BelowRandom | None:
    """None where the two have no sample, or not the same metric, in common."""
    if cell.metric != floor.metric:
        return None
    own, random = cell.scores[cell.metric], floor.scores[cell.metric]
    common = own.index.intersection(random.index)
    if common.empty:
        return None
    left, right = own.loc[common].to_numpy(float), random.loc[common].to_numpy(float)
    clusters = cell.clusters.loc[common].to_numpy(str)
    weights = cell.samples["weight"].loc[common].to_numpy(float)
    worse, better = (left, right) if cell.metric == NLL else (right, left)
    return BelowRandom(
        cell,
        mean_interval(left, clusters, weights),
        mean_interval(right, clusters, weights),
        paired_difference(worse, better, clusters, weights),
    )
