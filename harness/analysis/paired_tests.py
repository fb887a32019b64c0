"""Tests of paired differences that are dependent within clusters, by flipping the signs of whole clusters.

Every test here takes ``shares``: one row per cluster and one column per comparison, what the cluster adds to the mean
difference, so that a column's sum is the difference itself. Where nothing distinguishes the two sides, each cluster's
share is as likely to have either sign, whatever the dependence within it (Fisher 1935, "The Design of Experiments",
section 21; Winkler et al. 2014, NeuroImage 92, for whole blocks).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from harness.analysis.statistics import Floats

FLIPS = 9_999  # random flips: the smallest p is 1e-4, below 0.05 / 2 / 121 claims
EXACT_UP_TO = 12  # clusters: 4,096 flips are fewer than FLIPS
FEWEST_TO_FLIP = 10  # clusters that differ: 2**-10 is below .00125, one side of 5 % over 20 claims
FEWEST_FOR_T = 4  # clusters: of fewer, t rests on the normal distribution alone
_SIGNS_AT_ONCE = 4_000_000  # bounds the memory of a step to about 32 MB


def sign_flip_p(shares: npt.ArrayLike, seed: int = 0) -> tuple[Floats, Floats]:
    """One-sided exact p-values, (above zero, below zero).

    Up to 12 clusters all flips are enumerated; else 9,999 are drawn, and the observed one counts as one of them
    (Phipson and Smyth 2010, "Permutation p-values should never be zero"). The columns share their flips. Exact and
    therefore cautious: with few differences, or many of one size, small p-values are far rarer than they say.
    """
    table = _checked(shares)
    (above, equal), (below, _), count = _flipped(table, seed)
    return (above + equal) / count, (below + equal) / count


def paired_p(shares: npt.ArrayLike, seed: int = 0) -> tuple[Floats, Floats]:
    """One-sided p-values, (above zero, below zero), that can become as small as a correction for many tests asks.

    Exact flips (`sign_flip_p`) cannot where few clusters differ, and waste most of the level where differences have one
    size, as those of right-or-wrong scores. So, by the number of clusters whose share is not zero, which no flip
    changes:

    - from 10 on, flips. Where at most three quarters of the clusters differ, p is the mid-p, which counts flips that
      equal the observed sum by half (Fagerland, Lydersen and Laake 2013, "The McNemar test for binary matched-pairs
      data: mid-p and asymptotic are better than exact conditional", BMC Med Res Methodol 13); else exact. Where no
      drawn flip comes as far as the observed sum, p is that of Student's t, but at least 2**-k for k that differ.
    - below 10, Student's t of the shares over all clusters, of which there must be 4. But where more than half of the
      clusters differ, and some by the same amount (counts of right answers), their spread can vanish by chance, and p
      is that of exact flips.

    One-sided error rates where nothing differs, over right-or-wrong pairs in 10 to 100 clusters of which .05 to .5
    differ, by summing over all outcomes: at .025 at most .0251 (exact flips .018), at .00125 at most .0014 (.0008).
    Over pairs of graded scores, heavy tails and right-or-wrong pairs in documents, 4 to 10 clusters, by simulation: at
    most .027 and .0016. tests/test_significance.py holds them. As every test of few clusters it asks that differences
    be about symmetric where the mean is zero: with 4 to 10 clusters of gamma differences (skewness 1) the rates are
    .035 and .0035.
    """
    table = _checked(shares)
    (above, equal), (below, _), count = _flipped(table, seed)
    clusters, sizes = len(table), np.abs(table)
    differing = (sizes > 1e-12 * sizes.max(axis=0)).sum(axis=0)
    tied = _tied(sizes)
    midway = (differing >= FEWEST_TO_FLIP) & (4 * differing <= 3 * clusters)
    part = np.where(midway, 0.5, 1.0)
    student = (differing < FEWEST_TO_FLIP) & (differing > 0) & ~(tied & (2 * differing > clusters))
    student &= clusters >= FEWEST_FOR_T
    t = _student(table)
    out = []
    for beyond, p in ((above, stdtr(clusters - 1, -t)), (below, stdtr(clusters - 1, t))):
        flipped = (beyond + part * equal) / count
        if (
            clusters > EXACT_UP_TO
        ):  # none of the drawn flips came so far: their number would be the p, whatever the data
            tail = np.minimum(flipped, np.maximum(p, 0.5**differing))
            flipped = np.where(beyond + equal <= 1, tail, flipped)
        out.append(np.where(student, p, flipped))
    return out[0], out[1]


def family_p(shares: npt.ArrayLike, alone: npt.ArrayLike, seed: int = 0) -> Floats:
    """P-values below zero of all columns, corrected for the choice of one of them; ``alone``: before that (`paired_p`).

    Westfall and Young's single step (1993, "Resampling-Based Multiple Testing"): the smallest studentised sum over
    all columns, flipped together, is what each column's is compared with. As comparisons of one claim share methods and
    samples, that costs less than Bonferroni's factor. Exact. Columns with fewer than 10 differing clusters are left out
    of the common flips and corrected by the number of columns. A cluster that has no part in a column is zero there.
    """
    table = _checked(shares)
    many = table.shape[1]
    out = np.minimum(1.0, many * np.asarray(alone, dtype=np.float64))
    sizes = np.abs(table)
    fit = (sizes > 1e-12 * sizes.max(axis=0)).sum(axis=0) >= FEWEST_TO_FLIP
    if fit.sum() < 2:
        return np.asarray(out)
    scaled = table[:, fit] / np.sqrt((table[:, fit] ** 2).sum(axis=0))
    observed, lower, count = scaled.sum(axis=0), np.zeros(int(fit.sum())), 0
    for signs in _signs(len(table), seed):
        least = (signs @ scaled).min(axis=1)
        lower += (least[:, None] <= observed + 1e-9).sum(axis=0)
        count += len(signs)
    drawn = int(len(table) > EXACT_UP_TO)
    # Columns that are not flipped take their part of the level; what is left to the flips is a share fit / many.
    out[fit] = np.minimum(1.0, (lower + drawn) / (count + drawn) * many / fit.sum())
    return np.asarray(out)


# Parts of the above.


def _checked(shares: npt.ArrayLike) -> Floats:
    table = np.atleast_2d(np.asarray(shares, dtype=np.float64).T).T
    if len(table) == 0 or not np.all(np.isfinite(table)):
        raise ValueError("A sign-flip test needs finite shares of at least one cluster.")
    return table


def _flipped(table: Floats, seed: int) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats], int]:
    """How many flips are (beyond, equal to) the observed sum, above and below, of how many; the observed counts."""
    observed = table.sum(axis=0)
    slack = 1e-12 * np.abs(table).sum(axis=0)  # equal sums differ in the last digit after another order of addition
    above, below, count = np.zeros(len(observed)), np.zeros(len(observed)), 0
    for signs in _signs(len(table), seed):
        flipped = signs @ table
        above += (flipped > observed + slack).sum(axis=0)
        below += (flipped < observed - slack).sum(axis=0)
        count += len(signs)
    equal = count - above - below
    drawn = int(len(table) > EXACT_UP_TO)
    return (above, equal + drawn), (below, equal + drawn), count + drawn


def _tied(sizes: Floats) -> npt.NDArray[np.bool_]:
    """Whether two shares of a column that are not zero have the same size."""
    ordered = np.sort(sizes, axis=0)
    near = np.diff(ordered, axis=0) <= 1e-9 * ordered[-1]
    return np.asarray((near & (ordered[:-1] > 1e-9 * ordered[-1])).any(axis=0))


def _student(table: Floats) -> Floats:
    """Student's t of each column; zero where it has no spread, which `paired_p` does not ask for."""
    count = len(table)
    if count == 1:
        return np.zeros(table.shape[1])
    spread = table.std(axis=0, ddof=1) * np.sqrt(count)
    flat = spread <= 1e-12 * np.abs(table).sum(axis=0)
    return np.asarray(np.where(flat, 0.0, table.sum(axis=0) / np.where(flat, 1.0, spread)))


def _signs(clusters: int, seed: int) -> Iterator[Floats]:
    """(flips, clusters) of 1 and -1, in steps where they are many."""
    step = max(1, _SIGNS_AT_ONCE // clusters)
    if clusters <= EXACT_UP_TO or step >= FLIPS:
        yield _signs_at_once(clusters, seed)
        return
    rng = np.random.default_rng(seed)
    for start in range(0, FLIPS, step):
        yield _drawn_signs(rng, min(step, FLIPS - start), clusters)


@lru_cache(maxsize=4)
def _signs_at_once(clusters: int, seed: int) -> Floats:
    """Every flip of a few clusters, or drawn ones. Claims often compare as many clusters as the one before."""
    if clusters > EXACT_UP_TO:
        return _drawn_signs(np.random.default_rng(seed), FLIPS, clusters)
    bits = np.arange(2**clusters)[:, None] >> np.arange(clusters) & 1
    return (1 - 2 * bits).astype(np.float64)


def _drawn_signs(rng: np.random.Generator, flips: int, clusters: int) -> Floats:
    heads = rng.integers(0, 2, size=(flips, clusters), dtype=np.int8)
    return (1 - 2 * heads).astype(np.float64)
