"""The test of a claim: each of its cases as an estimate with an interval and p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from harness.analysis.paired_tests import family_p, paired_p
from harness.analysis.statistics import (
    Floats,
    MeanSpread,
    cluster_spread,
    mean_of_means,
    student_quantile,
)
from harness.papers.claim_cases import ClaimCase
from harness.papers.paired_bootstrap import Resampled, Stratum, bootstrap_interval, cluster_contributions, resample


@dataclass(frozen=True)
class ClaimResult:
    """One case, measured. ``estimate`` is positive where it speaks for the claim, in the units of the metric."""

    label: str
    estimate: float
    low: float
    high: float
    standard_error: float
    n: int  # paired samples
    p_for: float  # one-sided p of an estimate at least so high if the truth were zero
    p_against: float  # one-sided p of an estimate at most so high
    # As p_against, but so that m times the least of m cases' is a p of "one of them fails": cases that were flipped
    # together need less than Bonferroni's factor (Westfall and Young 1993), which is taken off here in advance.
    p_against_shared: float = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.p_against_shared):
            object.__setattr__(self, "p_against_shared", self.p_against)


def claim_results(
    cases: Sequence[ClaimCase], strata: Sequence[Stratum], level: float, bounded: bool
) -> list[ClaimResult]:
    """Intervals and p-values of cases; clusters are independent, within and between strata.

    A case that is a difference of mean scores is tested by `harness.analysis.paired_tests.paired_p`. One with a margin
    or a factor is not symmetric where it is zero, so Student's t takes the place of flips; the others (a maximum, a
    ratio) have the greater of the p-values of a bootstrap and of its standard error. Intervals are Student's over
    clusters, of the others those of the bootstrap, where wider.

    ``bounded``: the metric lies in [0, 1], so that pairs which all differ alike are no certainty.
    """
    drawn = resample(strata)
    flipped = _flip_p(cases, strata)
    found = [_case_result(case, strata, drawn, flipped.get(i), level, bounded) for i, case in enumerate(cases)]
    if flipped:
        table = np.stack([_shares(cases[i], strata, whole=True) for i in flipped], axis=1)
        together = family_p(table, [found[i].p_against for i in flipped]) / len(flipped)
        for i, p in zip(flipped, map(float, together), strict=True):
            found[i] = replace(found[i], p_against_shared=p)
    return found


def _flip_p(cases: Sequence[ClaimCase], strata: Sequence[Stratum]) -> dict[int, tuple[float, float]]:
    """By place, the p-values of the cases that are differences; those of the same strata share their flips."""
    out: dict[int, tuple[float, float]] = {}
    for group in dict.fromkeys(case.strata for case in cases):
        own = [i for i, case in enumerate(cases) if case.strata == group and _is_difference(case, strata)]
        if own:
            above, below = paired_p(np.stack([_shares(cases[i], strata) for i in own], axis=1))
            out |= {i: (float(p), float(q)) for i, p, q in zip(own, above, below, strict=True)}
    return dict(sorted(out.items()))


def _shares(case: ClaimCase, strata: Sequence[Stratum], whole: bool = False) -> Floats:
    """What each cluster adds to a linear case; ``whole``: with zeros for the clusters of strata it does not use."""
    own = cluster_contributions([strata[each] for each in case.strata], _weights(case), case.constant)
    if not whole:
        return own
    starts = np.cumsum([0, *(each.clusters for each in strata)])
    out = np.zeros(int(starts[-1]))
    out[np.concatenate([np.arange(starts[each], starts[each + 1]) for each in case.strata])] = own
    return out


def _case_result(
    case: ClaimCase,
    strata: Sequence[Stratum],
    drawn: Resampled,
    flipped: tuple[float, float] | None,
    level: float,
    bounded: bool,
) -> ClaimResult:
    own = [strata[each] for each in case.strata]
    n = sum(each.samples for each in own)
    estimate = float(case.measure(drawn.once))
    if _is_linear(case, strata):
        spread = _case_spread(case, own)
        around = _with_added_pairs(case, own, spread) if bounded else spread
        low, high = around.interval(level)
        low, high = min(low, estimate), max(high, estimate)
        error = math.sqrt(spread.variance)
        if not bounded and error <= 1e-12 * max(1.0, abs(estimate)):  # equal values differ in their last digit
            low = high = estimate
        p = flipped or _margin_p(case, strata, spread, bounded)
    else:
        low, high, error, p = _by_bootstrap(case, own, drawn, level, estimate)
    if error <= 1e-12 and bounded:  # every pair alike is no certainty of a handful of samples (Bonett and Price 2012)
        error = _error_of_equal_pairs(own)
        reach = student_quantile(level, math.inf) * error
        low, high = min(low, estimate - reach), max(high, estimate + reach)
    # Sums differ in their last digit from processor to processor, and a text of -0.1075 would be -0.107 or -0.108.
    estimate, low, high = (round(float(each), 12) for each in (estimate, low, high))
    return ClaimResult(case.label, estimate, low, high, error, n, *p)


def _is_linear(case: ClaimCase, strata: Sequence[Stratum]) -> bool:
    return case.weights is not None and strata[case.strata[0]].totals.shape[2] == 1


def _is_difference(case: ClaimCase, strata: Sequence[Stratum]) -> bool:
    """Whether flips fit: a difference of scores without margin or factor."""
    return _is_linear(case, strata) and case.constant == 0 and abs(float(_weights(case).sum())) < 1e-12


def _weights(case: ClaimCase) -> Floats:
    assert case.weights is not None
    return case.weights


def _case_spread(case: ClaimCase, own: Sequence[Stratum]) -> MeanSpread:
    return mean_of_means(
        [
            cluster_spread(each.totals[:, :, 0] @ _weights(case) + case.constant * each.masses, each.masses)
            for each in own
        ]
    )


def _margin_p(case: ClaimCase, strata: Sequence[Stratum], spread: MeanSpread, bounded: bool) -> tuple[float, float]:
    """P-values (for, against) of a linear case with a margin or a factor."""
    own = [strata[each] for each in case.strata]
    variance = spread.variance
    if bounded and not math.isnan(variance):
        variance = max(_with_added_pairs(case, own, spread).variance, variance, _least_variance(case, own))
        variance = variance if variance > 0 else _error_of_equal_pairs(own) ** 2
    if not variance > 0:  # one cluster, or values that are all the same
        above, below = paired_p(_shares(case, strata))
        return float(above[0]), float(below[0])
    t = spread.mean / math.sqrt(variance)
    return float(stdtr(spread.freedom, -t)), float(stdtr(spread.freedom, t))


def _least_variance(case: ClaimCase, own: Sequence[Stratum]) -> float:
    """What the variance of the estimate is at least where the truth lies on the margin.

    Differences of right-or-wrong scores are -1, 0 or 1; with the mean d they have a variance of at least |d| (1 - |d|),
    even where none of the samples at hand shows one (the variance at the null of Tango 1998, "Equivalence test and
    confidence interval for the difference in proportions for the paired-sample design", Statistics in Medicine 17).
    Zero for graded scores.
    """
    border = abs(case.constant)
    if border >= 1 or not _is_right_or_wrong(case, own):
        return 0.0
    return sum(border * (1 - border) / each.samples for each in own) / len(own) ** 2


def _with_added_pairs(case: ClaimCase, own: Sequence[Stratum], spread: MeanSpread) -> MeanSpread:
    """The spread with one pair added on either side, for differences of right-or-wrong scores; else as it is.

    Bonett and Price (2012) as in `harness.analysis.statistics.paired_difference`: few differences are no certainty. A
    cluster of k samples counts as one observation, to which an added pair adds 1 / k. As theirs, the interval of
    independent pairs takes the normal quantile.
    """
    if math.isnan(spread.variance) or not _is_right_or_wrong(case, own):
        return spread
    clusters = sum(each.clusters for each in own)
    pair = (clusters / sum(each.samples for each in own)) ** 2
    difference = spread.mean - case.constant
    square = spread.variance * (clusters - 1) + difference**2
    mean = clusters * difference / (clusters + 2)
    variance = ((clusters * square + 2 * pair) / (clusters + 2) - mean**2) / (clusters + 2)
    return MeanSpread(mean + case.constant, variance, math.inf if pair == 1 else spread.freedom)


def _is_right_or_wrong(case: ClaimCase, own: Sequence[Stratum]) -> bool:
    """Whether the case is a difference, perhaps with a margin, of two cells' counts of right answers."""
    pair = sorted(_weights(case)[_weights(case) != 0].tolist()) == [-1.0, 1.0]
    return pair and all(bool(np.all(each.totals == np.round(each.totals))) for each in own)


def _error_of_equal_pairs(own: Sequence[Stratum]) -> float:
    """The standard error of a difference where all pairs differ alike: one pair is added on either side."""
    return math.sqrt(2) / (sum(each.clusters for each in own) + 2)


def _by_bootstrap(
    case: ClaimCase, own: Sequence[Stratum], drawn: Resampled, level: float, estimate: float
) -> tuple[float, float, float, tuple[float, float]]:
    """Low, high, standard error and p-values (for, against) of a case that is no mean."""
    draws = np.asarray(case.measure(drawn.often), dtype=float)
    beyond = int((draws <= 0).sum()), int((draws >= 0).sum())
    p_for, p_against = ((1 + count) / (1 + len(draws)) for count in beyond)
    low, high, error = bootstrap_interval(own, draws, estimate, level)
    if math.isnan(error):  # one cluster
        return low, high, error, (max(p_for, 0.5), max(p_against, 0.5))
    if error <= 1e-12:
        return estimate, estimate, error, (p_for, p_against)
    freedom = sum(each.clusters - 1 for each in own)
    t = estimate / error
    # Where no resample lies beyond, their count is no p, only the number of resamples: Student's alone then.
    above, below = float(stdtr(freedom, -t)), float(stdtr(freedom, t))
    p = max(p_for, above) if beyond[0] else above, max(p_against, below) if beyond[1] else below
    return low, high, error, p
