"""Scores of the same samples in several cells, resampled together, so that differences between cells stay paired."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from harness.analysis.statistics import Floats, expanded_tail, student_quantile
from harness.report.rows import cluster_names

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


def build_stratum(
    name: str,
    cells: Sequence[Mapping[str, pd.Series]],
    weights: pd.Series,
    documents: pd.Series,
    needed: Sequence[int] | None = None,
) -> Stratum:
    """Pair the cells by sample: only samples that all of them have count, or all of the ``needed`` ones (places).

    ``cells`` are, for each cell, its metrics as series by ``sample_id``; ``weights`` and ``documents`` are series of
    a cell that has them all. Cells that are not needed score 0 where they have no row. A sample without a document is
    its own cluster. Raises ValueError where no sample is common.
    """
    common = weights.index
    for place in range(len(cells)) if needed is None else needed:
        for series in cells[place].values():
            common = common.intersection(series.index)
    if common.empty:
        raise ValueError(f"No sample of {name} is common to all cells.")
    mass = weights.loc[common].to_numpy(float)
    _, index = np.unique(cluster_names(common, documents.loc[common]), return_inverse=True)
    values = np.stack([np.stack([_at(common, series) for series in cell.values()], 1) for cell in cells], 1)
    totals = np.zeros((index.max() + 1, *values.shape[1:]))
    np.add.at(totals, index, values * mass[:, None, None])
    return Stratum(name, totals, np.bincount(index, weights=mass).astype(np.float64), len(common))


def _at(samples: pd.Index, values: pd.Series) -> Floats:
    """The values of these samples; 0 where there is none."""
    if not values.index.equals(samples):
        values = values.reindex(samples, fill_value=0.0)
    return values.to_numpy(float)


@dataclass(frozen=True)
class Resampled:
    """``once`` (strata, cells) as measured, ``often`` (draws, strata, cells) from resampled clusters."""

    once: Floats
    often: Floats


def resample(strata: Sequence[Stratum], seed: int = 0) -> Resampled:
    """A bootstrap over clusters within each stratum; all cells see the same draws, so differences stay paired."""
    counts = _drawn(tuple(each.clusters for each in strata), seed)
    once = [each.scores(np.ones((1, each.clusters)))[0] for each in strata]
    often = [each.scores(drawn) for each, drawn in zip(strata, counts, strict=True)]
    return Resampled(np.stack(once), np.stack(often, axis=1))


@lru_cache(maxsize=16)
def _drawn(clusters: tuple[int, ...], seed: int) -> tuple[Floats, ...]:
    """(draws, clusters) of each stratum: how often each cluster counts. Many claims compare the same samples."""
    rng = np.random.default_rng(seed)
    return tuple(
        rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(np.float64) for count in clusters
    )


def bootstrap_interval(
    strata: Sequence[Stratum], draws: Floats, value: float, level: float = 0.95
) -> tuple[float, float, float]:
    """Low, high and standard error of ``value`` from its bootstrap ``draws``; NaN where a stratum has one cluster.

    The percentiles with their tail expanded for few clusters, or Student's interval where that is wider: percentiles
    of few clusters alone cover too little.
    """
    fewest = min(each.clusters for each in strata)
    if fewest == 1:
        return math.nan, math.nan, math.nan
    error = float(draws.std()) * math.sqrt(fewest / (fewest - 1))
    tail = expanded_tail(fewest, level)
    low, high = (float(x) for x in np.quantile(draws, [tail, 1 - tail]))
    reach = student_quantile(level, sum(each.clusters - 1 for each in strata)) * error
    return min(low, value - reach), max(high, value + reach), error


def cluster_contributions(strata: Sequence[Stratum], weights: Floats, constant: float) -> Floats:
    """What each cluster adds to ``mean over strata of (scores @ weights) + constant``; one metric only."""
    parts = []
    for each in strata:
        added = each.totals[:, :, 0] @ weights + constant * each.masses
        parts.append(added / each.masses.sum() / len(strata))
    return np.concatenate(parts)
