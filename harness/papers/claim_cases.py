"""A claim's comparison as cases: numbers that are positive exactly where the claim holds.

A claim holds where all of its cases do. Most cases are linear in mean scores, so that a sign-flip test fits them; the
others (a maximum, a ratio, a standard deviation) get their uncertainty from the bootstrap alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from harness.analysis.statistics import Floats
from harness.papers.claim_ledger import Comparison, MethodSpec

Scores = Floats  # (…, strata, cells)


@dataclass(frozen=True)
class ScoreColumns:
    """The columns of an array of scores. ``at``: the column of a method at a budget, of those that were found.

    ``names``: what the cells are called; ``strata``: what the rows of the array are (tasks, or values of an axis).
    """

    at: Mapping[tuple[MethodSpec, str], int]
    names: Sequence[str]
    strata: Sequence[str]

    def get(self, spec: MethodSpec, budget: str) -> int | None:
        """The column of a method at a budget of the comparison; a budget of its own comes first."""
        return self.at.get((spec, spec.budget or budget))


@dataclass(frozen=True)
class ClaimCase:
    """One inequality of a claim. ``measure`` maps scores (…, strata, cells) to a number per draw.

    ``strata`` and ``columns``: the rows and columns it uses. Where it is linear, it is the mean over its strata of
    scores @ ``weights`` + ``constant``.
    """

    label: str
    measure: Callable[[Scores], Floats]
    strata: tuple[int, ...]
    columns: tuple[int, ...]
    weights: Floats | None = None
    constant: float = 0.0


def claim_cases(comparison: Comparison, columns: ScoreColumns) -> list[ClaimCase]:
    """Every case whose cells were measured, in the order of the comparison's budgets."""
    everything = tuple(range(len(columns.strata)))
    groups = [(each,) for each in everything] if comparison.per == "task" else [everything]
    found = {
        case.label: case for group in groups for case in _CASES_OF_KIND[comparison.kind](comparison, columns, group)
    }
    return list(found.values())


def _linear(
    label: str, columns: ScoreColumns, group: tuple[int, ...], terms: Mapping[int, float], constant: float
) -> ClaimCase:
    weights = np.zeros(len(columns.names))
    for column, weight in terms.items():
        weights[column] += weight
    on = f" on {columns.strata[group[0]]}" if len(group) < len(columns.strata) else ""
    return ClaimCase(
        label + on, lambda scores: _mean(scores, group) @ weights + constant, group, tuple(terms), weights, constant
    )


def _mean(scores: Scores, group: tuple[int, ...]) -> Floats:
    """(…, cells): the mean over the strata of a group."""
    return np.asarray(scores[..., list(group), :].mean(axis=-2))


def _column_pairs(comparison: Comparison, columns: ScoreColumns) -> Iterator[tuple[int, int]]:
    """Left and right columns to be compared, at every budget; never a cell with itself, and no two the same."""
    together = (
        zip(comparison.left, comparison.right, strict=True)
        if comparison.pairs
        else product(comparison.left, comparison.right)
    )
    seen = set()
    for (left, right), budget in product(list(together), comparison.budgets):
        a, b = columns.get(left, budget), columns.get(right, budget)
        if a is not None and b is not None and a != b and (a, b) not in seen:
            seen.add((a, b))
            yield a, b


def _above(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    if comparison.best_left:
        yield from _best_above(comparison, columns, group)
        return
    for a, b in _column_pairs(comparison, columns):
        yield _linear(
            _case_label(comparison, columns, a, ">", b),
            columns,
            group,
            {a: 1.0, b: -comparison.factor},
            -comparison.margin,
        )


def _best_above(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for right, budget in product(comparison.right, comparison.budgets):
        best = [column for left in comparison.left if (column := columns.get(left, budget)) is not None]
        other = columns.get(right, budget)
        if other is None or not best:
            continue

        def measure(scores: Scores, best: list[int] = best, other: int = other) -> Floats:
            means = _mean(scores, group)
            return np.asarray(means[..., best].max(axis=-1) - comparison.factor * means[..., other] - comparison.margin)

        yield ClaimCase(
            f"the best of {', '.join(columns.names[each] for each in best)} > {columns.names[other]}",
            measure,
            group,
            (*best, other),
        )


def _below(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _column_pairs(comparison, columns):
        yield _linear(
            _case_label(comparison, columns, a, "<", b),
            columns,
            group,
            {a: -1.0, b: comparison.factor},
            -comparison.margin,
        )


def _within(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    done = set()
    for a, b in _column_pairs(comparison, columns):
        if (b, a) not in done:
            done.add((a, b))
            for low, high in ((a, b), (b, a)):
                label = f"{columns.names[high]} - {columns.names[low]} < {comparison.margin:g}"
                yield _linear(label, columns, group, {low: 1.0, high: -1.0}, comparison.margin)


def _between(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _column_pairs(comparison, columns):
        ratio = f"{columns.names[a]} / {columns.names[b]}"
        yield _linear(f"{ratio} > {comparison.low:g}", columns, group, {a: 1.0, b: -comparison.low}, 0.0)
        yield _linear(f"{ratio} < {comparison.high:g}", columns, group, {a: -1.0, b: comparison.high}, 0.0)


def _rises(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for left in comparison.left:
        steps = [column for budget in comparison.budgets if (column := columns.get(left, budget)) is not None]
        yield from _steps(columns, group, steps)


def _ordered(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for budget in comparison.budgets:
        steps = [column for left in comparison.left if (column := columns.get(left, budget)) is not None]
        yield from _steps(columns, group, steps)


def _steps(columns: ScoreColumns, group: tuple[int, ...], steps: Sequence[int]) -> Iterator[ClaimCase]:
    for a, b in pairwise(steps):
        if a != b:
            yield _linear(f"{columns.names[b]} > {columns.names[a]}", columns, group, {b: 1.0, a: -1.0}, 0.0)


def _case_label(comparison: Comparison, columns: ScoreColumns, a: int, sign: str, b: int) -> str:
    factor = f"{comparison.factor:g} x " if comparison.factor != 1 else ""
    margin = (
        f" {'+' if (comparison.margin > 0) == (sign == '>') else '-'} {abs(comparison.margin):g}"
        if comparison.margin
        else ""
    )
    return f"{columns.names[a]} {sign} {factor}{columns.names[b]}{margin}"


def _best_in(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for budget in comparison.budgets:
        own = columns.get(comparison.left[0], budget)
        rest = [column for right in comparison.right if (column := columns.get(right, budget)) is not None]
        if own is None or len(rest) < len(comparison.right):
            continue
        # The border is moved by half a task, so that reaching exactly the share counts for the claim.
        extra = (0.5 - math.ceil(comparison.margin * len(group))) / len(group)

        def measure(scores: Scores, own: int = own, rest: list[int] = rest, extra: float = extra) -> Floats:
            best = scores[..., own] >= scores[..., rest].max(axis=-1)
            return np.asarray(best[..., list(group)].mean(axis=-1) + extra)

        yield ClaimCase(
            f"{columns.names[own]} is the best in at least {comparison.margin:.0%} of the tasks",
            measure,
            group,
            (own, *rest),
        )


def _lead_shrinks(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    known: list[tuple[int, tuple[int, ...]]] = []
    for budget in comparison.budgets:
        own = columns.get(comparison.left[0], budget)
        rest = tuple(column for right in comparison.right if (column := columns.get(right, budget)) is not None)
        if own is not None and len(rest) == len(comparison.right) and (own, rest) not in known:
            known.append((own, rest))
    for smaller, greater in pairwise(known):

        def measure(scores: Scores, smaller: tuple = smaller, greater: tuple = greater) -> Floats:
            means = _mean(scores, group)
            leads = [means[..., own] - means[..., list(rest)].max(axis=-1) for own, rest in (smaller, greater)]
            return np.asarray(leads[0] - leads[1])

        yield ClaimCase(
            f"the lead of {columns.names[smaller[0]]} is above that of {columns.names[greater[0]]}",
            measure,
            group,
            (smaller[0], *smaller[1], greater[0], *greater[1]),
        )


def _retains(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    great, small = comparison.budgets[0], comparison.budgets[-1]
    for right in comparison.right:
        found = [columns.get(spec, budget) for spec in (comparison.left[0], right) for budget in (small, great)]
        four = tuple(each for each in found if each is not None)
        if len(four) < 4 or four[0] == four[1]:
            continue

        def measure(scores: Scores, four: tuple[int, ...] = four) -> Floats:
            means = _mean(scores, group)
            low, high, other_low, other_high = (means[..., each] for each in four)
            return np.asarray(_ratio(low, high) - _ratio(other_low, other_high))

        kept = [columns.names[each] for each in four]
        label = f"{kept[0]} keeps a greater share of {kept[1]} than {kept[2]} of {kept[3]}"
        yield ClaimCase(label, measure, group, four)


def _ratio_of_means(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    """The mean over budgets of a / b, tested as r / (1 + r): where b scores next to nothing r has no bound."""
    pairs = list(_column_pairs(comparison, columns))
    if not pairs:
        return

    def bounded_ratio(scores: Scores) -> Floats:
        means = _mean(scores, group)
        ratio = np.mean([_ratio(means[..., a], means[..., b]) for a, b in pairs], axis=0)
        return np.asarray(ratio / (1 + ratio))

    title = f"mean of {columns.names[pairs[0][0]]} / {columns.names[pairs[0][1]]} and the other budgets"
    low, high = (bound / (1 + bound) for bound in (comparison.low, comparison.high))
    used = tuple(each for pair in pairs for each in pair)
    yield ClaimCase(f"{title} > {comparison.low:g}", lambda scores: bounded_ratio(scores) - low, group, used)
    yield ClaimCase(f"{title} < {comparison.high:g}", lambda scores: high - bounded_ratio(scores), group, used)


def _steadier(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _column_pairs(comparison, columns):

        def measure(scores: Scores, a: int = a, b: int = b) -> Floats:
            spread = scores[..., list(group), :].std(axis=-2)
            return np.asarray(spread[..., b] - spread[..., a])

        yield ClaimCase(
            f"{columns.names[a]} varies less over {comparison.split} than {columns.names[b]}", measure, group, (a, b)
        )


def _nearer(comparison: Comparison, columns: ScoreColumns, group: tuple[int, ...]) -> Iterator[ClaimCase]:
    for a, b in _column_pairs(comparison, columns):
        dense = columns.get(MethodSpec("dense"), comparison.budgets[0])
        if dense is None:
            continue

        def measure(scores: Scores, a: int = a, b: int = b, dense: int = dense) -> Floats:
            means = _mean(scores, group)
            return np.asarray(abs(means[..., b] - means[..., dense]) - abs(means[..., a] - means[..., dense]))

        yield ClaimCase(f"{columns.names[a]} is nearer to dense than {columns.names[b]}", measure, group, (a, b))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(above / np.maximum(below, 1e-12))


_CASES_OF_KIND: Mapping[str, Callable[[Comparison, ScoreColumns, tuple[int, ...]], Iterator[ClaimCase]]] = {
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
