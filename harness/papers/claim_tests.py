"""A claim's comparison as cases: numbers that are positive exactly where the claim holds.

A claim holds where all of its cases do. Most cases are linear in mean scores, so that a test by sign flips fits them;
the others (a maximum, a ratio, a standard deviation) have their uncertainty from the bootstrap alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from harness.analysis.statistics import Floats
from harness.papers.claim_ledger import Comparison, Spec

Scores = Floats  # (…, strata, cells)


@dataclass(frozen=True)
class Columns:
    """Where cells stand in an array of scores, and what they are called. ``at`` has what was found, and only that."""

    at: Mapping[tuple[Spec, str], int]
    names: Sequence[str]
    strata: Sequence[str]

    def get(self, spec: Spec, budget: str) -> int | None:
        """The column of a method at a budget of the comparison; its own budget counts before that."""
        return self.at.get((spec, spec.budget or budget))


@dataclass(frozen=True)
class ClaimCase:
    """``measure`` maps scores to a number per draw. ``weights`` and ``constant`` say the same where it is linear."""

    label: str
    measure: Callable[[Scores], Floats]
    strata: tuple[int, ...]
    weights: Floats | None = None
    constant: float = 0.0


def cases(asked: Comparison, columns: Columns) -> list[ClaimCase]:
    """Every case whose cells were measured, in the order of the comparison's budgets."""
    everything = tuple(range(len(columns.strata)))
    groups = [(each,) for each in everything] if asked.per == "task" else [everything]
    found = {case.label: case for group in groups for case in _BUILDERS[asked.kind](asked, columns, group)}
    return list(found.values())


def _linear(
    label: str, columns: Columns, group: tuple[int, ...], terms: Mapping[int, float], constant: float
) -> ClaimCase:
    weights = np.zeros(len(columns.names))
    for column, weight in terms.items():
        weights[column] += weight
    on = f" on {columns.strata[group[0]]}" if len(group) < len(columns.strata) else ""
    return ClaimCase(label + on, lambda scores: _mean(scores, group) @ weights + constant, group, weights, constant)


def _mean(scores: Scores, group: tuple[int, ...]) -> Floats:
    """(…, cells): the mean over the strata of a group."""
    return np.asarray(scores[..., list(group), :].mean(axis=-2))


def _sides(asked: Comparison, columns: Columns) -> Iterator[tuple[int, int]]:
    """Left and right columns to be compared, at every budget; never a cell with itself, and no two the same."""
    together = zip(asked.left, asked.right, strict=True) if asked.pairs else product(asked.left, asked.right)
    seen = set()
    for (left, right), budget in product(list(together), asked.budgets):
        a, b = columns.get(left, budget), columns.get(right, budget)
        if a is not None and b is not None and a != b and (a, b) not in seen:
            seen.add((a, b))
            yield a, b


def _above(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    if asked.best_left:
        yield from _best_above(asked, columns, group)
        return
    for a, b in _sides(asked, columns):
        yield _linear(_words(asked, columns, a, ">", b), columns, group, {a: 1.0, b: -asked.factor}, -asked.margin)


def _best_above(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for right, budget in product(asked.right, asked.budgets):
        best = [column for left in asked.left if (column := columns.get(left, budget)) is not None]
        other = columns.get(right, budget)
        if other is None or not best:
            continue

        def measure(scores: Scores, best: list[int] = best, other: int = other) -> Floats:
            means = _mean(scores, group)
            return np.asarray(means[..., best].max(axis=-1) - asked.factor * means[..., other] - asked.margin)

        yield ClaimCase(
            f"the best of {', '.join(columns.names[each] for each in best)} > {columns.names[other]}", measure, group
        )


def _below(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _sides(asked, columns):
        yield _linear(_words(asked, columns, a, "<", b), columns, group, {a: -1.0, b: asked.factor}, -asked.margin)


def _within(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    done = set()
    for a, b in _sides(asked, columns):
        if (b, a) not in done:
            done.add((a, b))
            for low, high in ((a, b), (b, a)):
                label = f"{columns.names[high]} - {columns.names[low]} < {asked.margin:g}"
                yield _linear(label, columns, group, {low: 1.0, high: -1.0}, asked.margin)


def _between(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _sides(asked, columns):
        ratio = f"{columns.names[a]} / {columns.names[b]}"
        yield _linear(f"{ratio} > {asked.low:g}", columns, group, {a: 1.0, b: -asked.low}, 0.0)
        yield _linear(f"{ratio} < {asked.high:g}", columns, group, {a: -1.0, b: asked.high}, 0.0)


def _rises(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for left in asked.left:
        steps = [column for budget in asked.budgets if (column := columns.get(left, budget)) is not None]
        yield from _steps(columns, group, steps)


def _ordered(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for budget in asked.budgets:
        steps = [column for left in asked.left if (column := columns.get(left, budget)) is not None]
        yield from _steps(columns, group, steps)


def _steps(columns: Columns, group: tuple[int, ...], steps: Sequence[int]) -> Iterator[ClaimCase]:
    for a, b in pairwise(steps):
        if a != b:
            yield _linear(f"{columns.names[b]} > {columns.names[a]}", columns, group, {b: 1.0, a: -1.0}, 0.0)


def _words(asked: Comparison, columns: Columns, a: int, sign: str, b: int) -> str:
    factor = f"{asked.factor:g} x " if asked.factor != 1 else ""
    margin = f" {'+' if (asked.margin > 0) == (sign == '>') else '-'} {abs(asked.margin):g}" if asked.margin else ""
    return f"{columns.names[a]} {sign} {factor}{columns.names[b]}{margin}"


def _best_in(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for budget in asked.budgets:
        own = columns.get(asked.left[0], budget)
        rest = [column for right in asked.right if (column := columns.get(right, budget)) is not None]
        if own is None or len(rest) < len(asked.right):
            continue
        # Half a task apart from the border on either side: a tie with what is asked for speaks for the claim.
        extra = (0.5 - math.ceil(asked.margin * len(group))) / len(group)

        def measure(scores: Scores, own: int = own, rest: list[int] = rest, extra: float = extra) -> Floats:
            best = scores[..., own] >= scores[..., rest].max(axis=-1)
            return np.asarray(best[..., list(group)].mean(axis=-1) + extra)

        yield ClaimCase(f"{columns.names[own]} is the best in at least {asked.margin:.0%} of the tasks", measure, group)


def _lead_shrinks(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    at = [(columns.get(asked.left[0], b), tuple(columns.get(right, b) for right in asked.right)) for b in asked.budgets]
    known = [(own, rest) for own, rest in dict.fromkeys(at) if own is not None and None not in rest]
    for smaller, greater in pairwise(known):

        def measure(scores: Scores, smaller: tuple = smaller, greater: tuple = greater) -> Floats:
            means = _mean(scores, group)
            leads = [means[..., own] - means[..., list(rest)].max(axis=-1) for own, rest in (smaller, greater)]
            return np.asarray(leads[0] - leads[1])

        yield ClaimCase(
            f"the lead of {columns.names[smaller[0]]} is above that of {columns.names[greater[0]]}", measure, group
        )


def _retains(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    great, small = asked.budgets[0], asked.budgets[-1]
    for right in asked.right:
        four = [columns.get(spec, budget) for spec in (asked.left[0], right) for budget in (small, great)]
        if None in four or four[0] == four[1]:
            continue

        def measure(scores: Scores, four: list[int | None] = four) -> Floats:
            means = _mean(scores, group)
            low, high, other_low, other_high = (means[..., each] for each in four)
            return np.asarray(_ratio(low, high) - _ratio(other_low, other_high))

        kept = [columns.names[each] for each in four if each is not None]
        yield ClaimCase(f"{kept[0]} keeps a greater share of {kept[1]} than {kept[2]} of {kept[3]}", measure, group)


def _ratio_of_means(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    pairs = list(_sides(asked, columns))
    if not pairs:
        return

    def mean_ratio(scores: Scores) -> Floats:
        means = _mean(scores, group)
        return np.asarray(np.mean([_ratio(means[..., a], means[..., b]) for a, b in pairs], axis=0))

    title = f"mean of {columns.names[pairs[0][0]]} / {columns.names[pairs[0][1]]} and the other budgets"
    yield ClaimCase(f"{title} > {asked.low:g}", lambda scores: mean_ratio(scores) - asked.low, group)
    yield ClaimCase(f"{title} < {asked.high:g}", lambda scores: asked.high - mean_ratio(scores), group)


def _steadier(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _sides(asked, columns):

        def measure(scores: Scores, a: int = a, b: int = b) -> Floats:
            spread = scores[..., list(group), :].std(axis=-2)
            return np.asarray(spread[..., b] - spread[..., a])

        yield ClaimCase(f"{columns.names[a]} varies less over {asked.split} than {columns.names[b]}", measure, group)


def _nearer(asked: Comparison, columns: Columns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _sides(asked, columns):
        dense = columns.get(Spec("dense"), asked.budgets[0])
        if dense is None:
            continue

        def measure(scores: Scores, a: int = a, b: int = b, dense: int = dense) -> Floats:
            means = _mean(scores, group)
            return np.asarray(abs(means[..., b] - means[..., dense]) - abs(means[..., a] - means[..., dense]))

        yield ClaimCase(f"{columns.names[a]} is nearer to dense than {columns.names[b]}", measure, group)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(above / np.maximum(below, 1e-12))


_BUILDERS: Mapping[str, Callable[[Comparison, Columns, tuple[int, ...]], Iterator[ClaimCase]]] = {
    "above": _above,
    "below": _below,
    "within": _within,
    "between": _between,
    "rises": _rises,
    "ordered": _ordered,
    "best_in": _best_in,
    "lead_shrinks": _lead_shrinks,
    "retains": _retains,
    "ratio_of_means": _ratio_of_means,
    "steadier": _steadier,
    "nearer": _nearer,
}
