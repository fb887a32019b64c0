"""How far the order of a table's methods is the paper's: Kendall's tau-b over all pairs that the table compares.

In each column (and at each budget) every pair of methods is in the same order here and there, in the opposite one, or
tied on a side. The pairs of all columns are counted together:

    tau-b = (same - opposite) / sqrt((pairs - tied here) * (pairs - tied there))

(Kendall 1945, "The treatment of ties in ranking problems", Biometrika 33, with the sums over groups). 1: the same order
throughout, -1: the reverse, 0: no relation. The interval redraws our samples (whole documents, the same draws for all
cells of a task); the printed numbers are taken as they are, since nothing is known of their samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from harness.analysis.statistics import Floats, expanded_tail
from harness.papers.merged_tables import MergedPlace, MergedTable, lower_is_better, order_value, rival_key
from harness.papers.paper_tables import ComparedNumber
from harness.papers.published import Scale
from harness.papers.table_cells import NoValueError
from harness.papers.table_values import sample_scores

DRAWS = 2_000


@dataclass(frozen=True)
class Agreement:
    """``tau`` with its 95 % interval (NaN where there is none, ``without`` says why) over ``pairs`` in ``groups``."""

    tau: float
    low: float
    high: float
    pairs: int
    groups: int
    compared: str  # what is put in order: "methods", "settings"
    without: str = ""

    @property
    def sentence(self) -> str:
        """The figure in words."""
        if math.isnan(self.tau):
            return f"No agreement of the order of {self.compared} can be given: {self.without}."
        pairs = f"{self.pairs:,} pairs of {self.compared}" if self.pairs > 1 else f"1 pair of {self.compared}"
        over = f"over {pairs} in {self.groups:,} comparisons" if self.groups > 1 else f"over {pairs}"
        interval = (
            f"no interval: {self.without}" if self.without else f"95 % interval {self.low:.2f} to {self.high:.2f}"
        )
        return f"Kendall's tau-b {self.tau:.2f} ({interval}) {over}".replace("-0.00", "0.00") + "."


def agreement(merged: MergedTable) -> Agreement | None:
    """The agreement of a table; None where the table puts nothing in order, or one side has no numbers."""
    best = merged.table.layout.best
    if not best or not merged.table.has_ours or not merged.table.has_printed:
        return None
    compared = "methods" if "method" in best else "settings"
    groups = [group for group in _groups(merged) if len(group) > 1]
    if not groups:
        why = "in no column are two of them open to a comparison (see the greyed places)"
        return Agreement(math.nan, math.nan, math.nan, 0, 0, compared, why)
    sides = _pairs(groups)
    tau = float(_tau(sides.theirs, sides.ours(sides.measured)))
    if math.isnan(tau):
        return Agreement(tau, tau, tau, len(sides.theirs), len(groups), compared, "all are tied on one side")
    found = Agreement(tau, math.nan, math.nan, len(sides.theirs), len(groups), compared)
    return _with_interval(found, sides, merged.table.scale)


@dataclass(frozen=True)
class _Sides:
    """The order of every pair: ``theirs`` +1, 0, -1; ``left`` and ``right`` are positions in ``members``."""

    members: tuple[ComparedNumber, ...]
    theirs: Floats  # (pairs,)
    left: tuple[int, ...]
    right: tuple[int, ...]
    lower: tuple[bool, ...]  # by member: whether lower is better

    @property
    def measured(self) -> Floats:
        return np.array([each.ours.value for each in self.members if each.ours])

    def ours(self, values: Floats) -> Floats:
        """(..., members) to (..., pairs): the order of every pair by these values."""
        signed = values * np.where(self.lower, -1.0, 1.0)
        return _order(signed[..., list(self.left)] - signed[..., list(self.right)])


Member = tuple[float, ComparedNumber]  # the paper's value, higher is better; ours


def _groups(merged: MergedTable) -> list[list[Member]]:
    """What is compared with one another: by the paper's model, task and budget."""
    averages = [place for row in merged.rows for place in row.places if _is_average(place)]
    only = len(averages) == sum(bool(place.first and place.first.ours) for row in merged.rows for place in row.places)
    out: dict[tuple[object, ...], list[Member]] = {}
    for row in merged.rows:
        for place in row.places:
            first = place.first
            if first is None or first.ours is None or first.gate or (_is_average(place) and not only):
                continue
            for numbers in place.printed:
                key = rival_key(numbers, merged.table, with_model=True)
                value = order_value(numbers)
                if key is not None and not math.isnan(value):
                    better = -value if lower_is_better(first) else value
                    out.setdefault(key, []).append((better, first))
    return list(out.values())


def _is_average(place: MergedPlace) -> bool:
    first = place.first
    return bool(first and first.cells and len(first.cells.cells) > 1)


def _pairs(groups: Sequence[Sequence[Member]]) -> _Sides:
    members: dict[tuple[object, ...], tuple[int, ComparedNumber]] = {}
    theirs, left, right = [], [], []
    for group in groups:
        at = []
        for _, number in group:
            assert number.identity is not None
            at.append(members.setdefault(number.identity, (len(members), number))[0])
        for i, j in combinations(range(len(group)), 2):
            if at[i] != at[j]:
                theirs.append(group[i][0] - group[j][0])
                left.append(at[i])
                right.append(at[j])
    own = tuple(number for _, number in members.values())
    lower = tuple(lower_is_better(number) for number in own)
    return _Sides(own, _order(np.array(theirs, dtype=np.float64)), tuple(left), tuple(right), lower)


def _order(differences: Floats) -> Floats:
    return np.asarray(np.sign(np.where(np.abs(differences) < 1e-9, 0.0, differences)), dtype=np.float64)


def _tau(theirs: Floats, ours: Floats) -> Floats:
    """Tau-b over the last axis; NaN where all pairs are tied on a side."""
    weight = np.sqrt((theirs != 0).sum() * (ours != 0).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((theirs * ours).sum(axis=-1) / weight)


def _with_interval(found: Agreement, sides: _Sides, scale: Scale) -> Agreement:
    try:
        drawn, fewest = _redrawn(sides.members, scale)
    except NoValueError:
        return _replaced(found, without="not all of these values are means over samples")
    if fewest < 2:
        return _replaced(found, without="one sample gives none")
    taus = _tau(sides.theirs, sides.ours(drawn))
    taus = taus[np.isfinite(taus)]
    tail = expanded_tail(fewest)
    low, high = (float(x) for x in np.quantile(taus, [tail, 1 - tail]))
    return _replaced(found, low=min(low, found.tau), high=max(high, found.tau))


def _replaced(found: Agreement, low: float = math.nan, high: float = math.nan, without: str = "") -> Agreement:
    return Agreement(found.tau, low, high, found.pairs, found.groups, found.compared, without)


def _redrawn(members: Sequence[ComparedNumber], scale: Scale) -> tuple[Floats, int]:
    """(draws, members): the mean scores from redrawn samples, and the smallest number of clusters behind one."""
    parts = [_parts(each, scale) for each in members]
    clusters: dict[str, dict[str, int]] = {}
    for each in (each for part in parts for each in part):
        own = clusters.setdefault(each.drawn_with, {})
        for name in each.clusters:
            own.setdefault(name, len(own))
    rng = np.random.default_rng(0)
    counts = {
        name: rng.multinomial(len(own), np.full(len(own), 1 / len(own)), size=DRAWS).astype(np.float64)
        for name, own in clusters.items()
    }
    means = [
        np.mean([_draws(each, clusters[each.drawn_with], counts[each.drawn_with]) for each in part], axis=0)
        for part in parts
    ]
    return np.stack(means, axis=1), min(len(own) for own in clusters.values())


@dataclass(frozen=True)
class _Part:
    """Samples of one task. ``drawn_with``: parts of one name see the same draws. ``metrics``: values by sample."""

    drawn_with: str
    clusters: Sequence[str]
    weights: Floats
    metrics: Sequence[Floats]


def _parts(number: ComparedNumber, scale: Scale) -> list[_Part]:
    """What our value is a mean of, by task. Raises `NoValueError` where it is none of samples or prompts."""
    if number.cells is None:
        own = number.ours.by_prompt if number.ours else None
        if own is None:
            raise NoValueError("not a mean")
        names = [str(name) for name in own.index]
        return [_Part("prompts", names, np.full(len(own), 1.0, np.float64), [own.to_numpy(np.float64)])]
    out = []
    for cell, metrics in sample_scores(number.printed.at["metric"], number.cells, scale):
        index = metrics[0].index
        weights = cell.samples["weight"].loc[index].to_numpy(np.float64)
        values = [series.loc[index].to_numpy(np.float64) for series in metrics]
        out.append(_Part(cell.task, list(cell.clusters.loc[index]), weights, values))
    return out


def _draws(part: _Part, clusters: dict[str, int], counts: Floats) -> Floats:
    """(draws,): the weighted mean of one metric; of several the geometric mean of theirs."""
    index = [clusters[name] for name in part.clusters]
    mass = np.maximum(counts @ np.bincount(index, part.weights, len(clusters)), 1e-300)
    means = [counts @ np.bincount(index, values * part.weights, len(clusters)) / mass for values in part.metrics]
    if len(means) == 1:
        return np.asarray(means[0])
    return np.asarray(np.exp(np.mean(np.log(np.maximum(means, 1e-300)), axis=0)))
