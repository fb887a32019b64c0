"""Tests of differences: sign flips over clusters, Holm's correction, and how many samples would have settled it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from harness.statistics.intervals import Floats

FLIPS = 9_999  # random flips: the smallest p is 1e-4, below 0.05 / 2 / 121 claims
EXACT_UP_TO = 12  # clusters: 4,096 flips are fewer than FLIPS
_SIGNS_AT_ONCE = 4_000_000  # bounds the memory of a step to about 32 MB


def sign_flip_p(shares: npt.ArrayLike, seed: int = 0) -> tuple[Floats, Floats]:
    """One-sided p-values, (above zero, below zero), of paired differences that are dependent within clusters.

    ``shares`` has one row per cluster and one column per comparison: what the cluster adds to the mean difference, so
    that a column's sum is the difference itself. Where nothing distinguishes the two sides, each cluster's share is as
    likely to have either sign, whatever the dependence within it (Fisher 1935, "The Design of Experiments", section
    21; Winkler et al. 2014, NeuroImage 92, for whole blocks). Up to 12 clusters all flips are enumerated; else 9,999
    are drawn, and the observed one counts as one of them (Phipson and Smyth 2010, "Permutation p-values should never
    be zero"). The columns share their flips.
    """
    table = np.atleast_2d(np.asarray(shares, dtype=np.float64).T).T
    clusters = len(table)
    if clusters == 0 or not np.all(np.isfinite(table)):
        raise ValueError("A sign-flip test needs finite shares of at least one cluster.")
    observed = table.sum(axis=0)
    slack = 1e-12 * np.abs(table).sum(axis=0)  # equal sums differ in the last digit after another order of addition
    above, below, count = np.zeros(len(observed)), np.zeros(len(observed)), 0
    for signs in _signs(clusters, seed):
        flipped = signs @ table
        above += (flipped >= observed - slack).sum(axis=0)
        below += (flipped <= observed + slack).sum(axis=0)
        count += len(signs)
    drawn = int(clusters > EXACT_UP_TO)
    return (above + drawn) / (count + drawn), (below + drawn) / (count + drawn)


def _signs(clusters: int, seed: int) -> Iterator[Floats]:
    if clusters <= EXACT_UP_TO:
        bits = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1
        yield (1 - 2 * bits).astype(np.float64)
        return
    rng = np.random.default_rng(seed)
    step = max(1, _SIGNS_AT_ONCE // clusters)
    for start in range(0, FLIPS, step):
        heads = rng.integers(0, 2, size=(min(step, FLIPS - start), clusters))
        yield (1 - 2 * heads).astype(np.float64)


def holm(p: npt.ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values (1979, "A simple sequentially rejective multiple test procedure").

    Rejecting where the adjusted value is at most 0.05 keeps the chance of even one false rejection at 5 %, whatever
    the dependence between the tests.
    """
    raw = np.asarray(p, dtype=np.float64)
    if raw.ndim != 1 or np.any(~((raw >= 0) & (raw <= 1))):
        raise ValueError("Holm's correction needs a list of p-values between 0 and 1.")
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    out = np.empty_like(raw)
    out[order] = np.minimum(stepped, 1.0)
    return out


def samples_needed(
    estimate: float, standard_error: float, n: int, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Samples that would tell ``estimate`` from zero with the given ``power``, two-sided at ``alpha``.

    Extrapolates the standard error of the ``n`` samples at hand by the square root of their number, samples of the same
    kind and as many per document; never fewer than ``n``. None where no number would do (an estimate of exactly zero),
    or where there is no standard error to go by.
    """
    if estimate == 0 or not standard_error > 0 or not math.isfinite(standard_error):
        return None
    reach = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)
    return max(n, math.ceil(n * (reach * standard_error / abs(estimate)) ** 2))
