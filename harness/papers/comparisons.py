"""Scores of the same samples in several cells, resampled together: the means, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pandas as pd

from harness.analysis.statistics import Floats, expanded_tail, sign_flip_p
from harness.papers.claim_tests import ClaimCase

RESAMPLES = 2_000


@dataclass(frozen=True)
class Stratum:
    """One task (or one value of an axis): what each cluster adds to the weighted sum of every cell and metric."""

    name: str
    totals: Floats  # (clusters, cells, metrics)
    masses: Floats  # (clusters,)
    samples: int

    @property
    def clusters(self) -> int:
        """Independent units that are drawn again: samples, or documents that samples share."""
        return len(self.masses)

    def scores(self, counts: Floats) -> Floats:
        """(draws, cells): weighted means where cluster c counts ``counts[:, c]`` times; geometric mean over metrics."""
        sums = np.tensordot(counts, self.totals, axes=(1, 0))
        means = sums / (counts @ self.masses)[:, None, None]
        if means.shape[2] == 1:
            return np.asarray(means[:, :, 0])
        with np.errstate(divide="ignore"):  # a metric of zero makes the geometric mean zero
            return np.asarray(np.exp(np.log(np.maximum(means, 0.0)).mean(axis=2)))


def stratum(name: str, cells: Sequence[Mapping[str, pd.Series]], weights: pd.Series, documents: pd.Series) -> Stratum:
    """Pair the cells by sample: only samples that all of them have count.

    ``cells`` are, for each cell, its metrics as series by ``sample_id``; ``weights`` and ``documents`` are series of
    the first cell. A sample without a document is its own cluster. Raises ValueError where no sample is common.
    """
    common = weights.index
    for cell in cells:
        for series in cell.values():
            common = common.intersection(series.index)
    if common.empty:
        raise ValueError(f"No sample of {name} is common to all cells.")
    mass = weights.loc[common].to_numpy(float)
    named = documents.loc[common].fillna("").astype(str)
    groups = np.where(named == "", "sample " + common.astype(str), "document " + named)
    _, index = np.unique(groups, return_inverse=True)
    values = np.stack(
        [np.stack([series.loc[common].to_numpy(float) for series in cell.values()], 1) for cell in cells], 1
    )
    totals = np.zeros((index.max() + 1, *values.shape[1:]))
    np.add.at(totals, index, values * mass[:, None, None])
    return Stratum(name, totals, np.bincount(index, weights=mass).astype(np.float64), len(common))


@dataclass(frozen=True)
class Resampled:
    """``once`` (strata, cells) as measured, ``often`` (draws, strata, cells) from resampled clusters."""

    once: Floats
    often: Floats


def resample(strata: Sequence[Stratum], seed: int = 0) -> Resampled:
    """A bootstrap over clusters within each stratum; all cells see the same draws, so differences stay paired."""
    rng = np.random.default_rng(seed)
    once, often = [], []
    for each in strata:
        even = np.full(each.clusters, 1 / each.clusters)
        often.append(each.scores(rng.multinomial(each.clusters, even, size=RESAMPLES).astype(np.float64)))
        once.append(each.scores(np.ones((1, each.clusters)))[0])
    return Resampled(np.stack(once), np.stack(often, axis=1))


def shares(strata: Sequence[Stratum], weights: Floats, constant: float) -> Floats:
    """What each cluster adds to ``mean over strata of (scores @ weights) + constant``; one metric only."""
    parts = []
    for each in strata:
        added = each.totals[:, :, 0] @ weights + constant * each.masses
        parts.append(added / each.masses.sum() / len(strata))
    return np.concatenate(parts)


# Each case of a claim as a number with an interval and two p-values.


@dataclass(frozen=True)
class ClaimResult:
    """One case, measured. ``estimate`` is positive where it speaks for the claim, in the units of the metric."""

    label: str
    estimate: float
    low: float
    high: float
    standard_error: float
    n: int  # paired samples
    p_for: float  # of an estimate at least so high, were the truth zero
    p_against: float


def findings(cases: Sequence[ClaimCase], strata: Sequence[Stratum], level: float, bounded: bool) -> list[ClaimResult]:
    """Intervals from a bootstrap over clusters within strata, p-values from sign flips where a case is linear.

    ``bounded``: the metric lies in [0, 1], so that pairs which all differ alike are no certainty.
    """
    drawn = resample(strata)
    p: dict[int, tuple[float, float]] = {}
    for group in dict.fromkeys(case.strata for case in cases):
        own = [strata[each] for each in group]
        if own[0].totals.shape[2] > 1:
            continue
        linear = [place for place, case in enumerate(cases) if case.strata == group and case.weights is not None]
        if linear:
            table = np.stack([shares(own, _weights(cases[each]), cases[each].constant) for each in linear], axis=1)
            p |= {
                place: (a, b) for place, a, b in zip(linear, *map(np.ndarray.tolist, sign_flip_p(table)), strict=True)
            }
    return [_finding(case, strata, drawn, p.get(place), level, bounded) for place, case in enumerate(cases)]


def _weights(case: ClaimCase) -> Floats:
    assert case.weights is not None
    return case.weights


def _finding(
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
