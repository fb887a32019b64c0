"""The test of a claim: each of its cases as an estimate with an interval and two p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from harness.analysis.statistics import Floats, expanded_tail, sign_flip_p
from harness.papers.claim_cases import ClaimCase
from harness.papers.paired_bootstrap import Resampled, Stratum, cluster_contributions, resample


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


def claim_results(
    cases: Sequence[ClaimCase], strata: Sequence[Stratum], level: float, bounded: bool
) -> list[ClaimResult]:
    """Intervals from a bootstrap over clusters within strata, p-values from sign flips where a case is linear.

    ``bounded``: the metric lies in [0, 1], so that pairs which all differ alike are no certainty.
    """
    drawn = resample(strata)
    p: dict[int, tuple[float, float]] = {}
    for group in dict.fromkeys(case.strata for case in cases):
        own = [strata[each] for each in group]
        if own[0].totals.shape[2] > 1:
            continue
        linear = [i for i, case in enumerate(cases) if case.strata == group and case.weights is not None]
        if linear:
            table = np.stack(
                [cluster_contributions(own, _weights(cases[each]), cases[each].constant) for each in linear], axis=1
            )
            p |= {i: (a, b) for i, a, b in zip(linear, *map(np.ndarray.tolist, sign_flip_p(table)), strict=True)}
    return [_case_result(case, strata, drawn, p.get(i), level, bounded) for i, case in enumerate(cases)]


def _weights(case: ClaimCase) -> Floats:
    assert case.weights is not None
    return case.weights


def _case_result(
    case: ClaimCase,
    strata: Sequence[Stratum],
    drawn: Resampled,
    p: tuple[float, float] | None,
    level: float,
    bounded: bool,
) -> ClaimResult:
    own = [strata[each] for each in case.strata]
    estimate = float(case.measure(drawn.once))
    draws = np.asarray(case.measure(drawn.often), dtype=float)
    spread = float(draws.std())
    clusters, fewest = sum(each.clusters for each in own), min(each.clusters for each in own)
    low = high = estimate
    if fewest == 1:
        low = high = spread = math.nan  # one cluster says nothing about the spread between clusters
    elif spread > 1e-12:
        tail = expanded_tail(fewest, level)
        low, high = (float(x) for x in np.quantile(draws, [tail, 1 - tail]))
        low, high = min(low, estimate), max(high, estimate)
    elif bounded:  # every pair alike: resampling would claim certainty of a handful of samples (Bonett and Price 2012)
        spread = math.sqrt(2) / (clusters + 2)
        reach = NormalDist().inv_cdf((1 + level) / 2) * spread
        low, high = estimate - reach, estimate + reach
    if p is None:
        p = (1 + int((draws <= 0).sum())) / (1 + len(draws)), (1 + int((draws >= 0).sum())) / (1 + len(draws))
    return ClaimResult(case.label, estimate, low, high, spread, sum(each.samples for each in own), *p)
