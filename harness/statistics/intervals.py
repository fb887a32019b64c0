"""Intervals for scores: pure functions on arrays.

Two sources of false confidence are handled here rather than in every table. Samples that share a document are
not independent, so whole documents (clusters) are resampled. And a score of exactly 0 or 1 is not certain, so
an interval never collapses only because every answer happened to be right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

RESAMPLES = 2_000
_DRAWS_AT_ONCE = 2_000_000  # bounds the memory of a resampling step to about 50 MB


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; ``low`` and ``high`` are NaN where the data cannot give one."""

    mean: float
    low: float
    high: float
    n: int  # samples
    n_clusters: int  # independent groups of samples


def mean_interval(
    values: npt.ArrayLike,
    clusters: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of the (weighted) mean of ``values``, where ``clusters`` names what may be dependent.

    Right-or-wrong scores of independent, equally weighted samples get the Wilson score interval (Wilson 1927,
    "Probable inference, the law of succession, and statistical inference", JASA 22), which keeps its coverage
    near 0 and 1 and for few samples. Everything else gets a bootstrap over clusters (``_bootstrap``). Where
    that bootstrap is blind to the uncertainty of right-or-wrong scores (all equal, or one cluster only), the
    answer is again Wilson's, with the number of clusters as the sample size: the cautious reading that samples
    of one cluster repeat one observation.
    """
    v = _finite("values", values)
    w = _weights(weights, len(v))
    index, count = _cluster_index(clusters, len(v))
    if _binary(v):
        independent = count == len(v) and bool(np.all(w == w[0]))
        if independent or count == 1 or bool(np.all(v == v[0])):
            mean = float(np.average(v, weights=w))
            low, high = wilson(mean, count, level)
            return Interval(mean, low, high, len(v), count)
    return _bootstrap(v, w, index, count, level, seed)


def perplexity_interval(
    nll: npt.ArrayLike,
    tokens: npt.ArrayLike,
    clusters: npt.ArrayLike,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Perplexity, exp of the token-weighted mean of ``nll`` (nats per token), with a bootstrap over clusters.

    Averaging nats over tokens before the exponential is what perplexity means; a mean of per-sample
    perplexities would be dominated by the hardest sample. Percentiles commute with exp, so the interval is
    the exponential of the interval of the mean.
    """
    v = _finite("nll", nll)
    index, count = _cluster_index(clusters, len(v))
    nats = _bootstrap(v, _weights(tokens, len(v)), index, count, level, seed)
    mean, low, high = (float(x) for x in np.exp([nats.mean, nats.low, nats.high]))
    return Interval(mean, low, high, nats.n, nats.n_clusters)


def paired_difference(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    clusters: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of mean(a - b), where ``a[i]`` and ``b[i]`` score the same sample: a bootstrap over clusters.

    Pairing removes the difficulty of the samples, which both methods share, from the uncertainty. Where both
    are right or wrong and the pairs all differ alike (usually: not at all), resampling would claim certainty;
    the interval is then the adjusted Wald interval for paired proportions (Bonett and Price 2012, "Adjusted
    Wald confidence interval for a difference of binomial proportions based on paired data", JEBS 37), with the
    number of clusters as the sample size.
    """
    va, vb = _finite("a", a), _finite("b", b)
    if len(va) != len(vb):
        raise ValueError(f"A paired difference needs one b for every a; got {len(va)} and {len(vb)}.")
    difference = va - vb
    w = _weights(weights, len(va))
    index, count = _cluster_index(clusters, len(va))
    if _binary(va) and _binary(vb) and (count == 1 or bool(np.all(difference == difference[0]))):
        mean = float(np.average(difference, weights=w))
        gains, losses = (
            float(np.average(difference > 0, weights=w)),
            float(np.average(difference < 0, weights=w)),
        )
        low, high = _adjusted_wald(gains, losses, count, level)
        return Interval(mean, min(low, mean), max(high, mean), len(va), count)
    return _bootstrap(difference, w, index, count, level, seed)


def wilson(share: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (1927) for a ``share`` of successes in ``n`` independent trials."""
    z2 = _normal_quantile(level) ** 2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # The bound on the side of an extreme share is the share itself; rounding must not move it inside.
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def _adjusted_wald(gains: float, losses: float, n: int, level: float) -> tuple[float, float]:
    """Bonett and Price (2012): one pair is added to each of the two discordant shares of ``n`` pairs."""
    up, down = (gains * n + 1) / (n + 2), (losses * n + 1) / (n + 2)
    half = _normal_quantile(level) * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def _bootstrap(v: Floats, w: Floats, index: npt.NDArray[np.intp], count: int, level: float, seed: int) -> Interval:
    """Weighted mean with an expanded-percentile bootstrap over whole clusters.

    Whole clusters are drawn because samples of one cluster are dependent (Davison and Hinkley 1997, "Bootstrap
    Methods and their Application", section 3.8; Field and Welsh 2007, "Bootstrapping clustered data", JRSS B
    69). Plain percentiles are too narrow for few clusters, so they are moved outward as Hesterberg (2015, "What
    teachers should know about the bootstrap", The American Statistician 69) derives. For normal data
    in 8 clusters that raised the measured coverage of a 95 % interval from 0.88 to 0.94, in 30 from 0.943 to
    0.954. One cluster says nothing about the spread between clusters: no interval then.
    """
    mean = float(np.average(v, weights=w))
    if count == 1:
        return Interval(mean, math.nan, math.nan, len(v), count)
    totals = np.bincount(index, weights=v * w, minlength=count)
    masses = np.bincount(index, weights=w, minlength=count)
    rng = np.random.default_rng(seed)
    step = max(1, _DRAWS_AT_ONCE // count)
    means: list[Floats] = []
    for start in range(0, RESAMPLES, step):
        drawn = rng.integers(0, count, size=(min(step, RESAMPLES - start), count))
        means.append(totals[drawn].sum(axis=1) / masses[drawn].sum(axis=1))
    tail = expanded_tail(count, level)
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    # Equal values differ in the last digit after summation; the interval must not lose its own mean to that.
    return Interval(mean, min(float(low), mean), max(float(high), mean), len(v), count)


def expanded_tail(count: int, level: float = 0.95) -> float:
    """The percentile, of either tail, that makes a bootstrap over ``count`` clusters as wide as it should be."""
    return NormalDist().cdf(-math.sqrt(count / (count - 1)) * _t_quantile(level, count - 1))


def _normal_quantile(level: float) -> float:
    """The two-sided standard normal quantile: 1.96 for a level of 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"A confidence level lies between 0 and 1; got {level}.")
    return NormalDist().inv_cdf((1 + level) / 2)


def _t_quantile(level: float, freedom: int) -> float:
    """The two-sided quantile of Student's t (Abramowitz and Stegun 1964, 26.7.5; within 1 % from 3 degrees on).

    Below 3 degrees the series is too small, which does not matter here: the percentiles it leads to already are
    the extremes of the resamples.
    """
    z = _normal_quantile(level)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))


def _finite(name: str, values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"An interval needs at least one sample; {name} has the shape {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"An interval needs finite numbers; {name} has {int(np.sum(~np.isfinite(array)))} others.")
    return array


def _weights(weights: npt.ArrayLike | None, n: int) -> Floats:
    array = np.ones(n) if weights is None else _finite("weights", weights)
    if len(array) != n or bool(np.any(array <= 0)):
        raise ValueError(f"Weights must be {n} positive numbers, one per sample.")
    return array


def _cluster_index(clusters: npt.ArrayLike, n: int) -> tuple[npt.NDArray[np.intp], int]:
    """Each sample's cluster as a number from 0, and how many clusters there are."""
    names, index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    if index.shape != (n,):
        raise ValueError(f"Every sample needs a cluster; got {index.size} clusters for {n} samples.")
    return index, len(names)


def _binary(values: Floats) -> bool:
    return bool(np.all((values == 0) | (values == 1)))
