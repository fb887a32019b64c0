"""Means with 95 % intervals, for everything that a figure shows of several samples."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.analysis.statistics import mean_interval, perplexity_interval
from harness.report.labels import NLL


def row_means(rows: pd.DataFrame, by: Sequence[str], value: str = "value") -> pd.DataFrame:
    """One line per group of result rows: ``value``, ``low``, ``high`` (95 %, over documents), ``n`` samples.

    ``value`` names the column that is averaged; of the metric ``nll`` it is the perplexity.
    """
    lines = []
    for key, part in rows.groupby(list(by), sort=False, dropna=False):
        numbers, clusters = part[value].to_numpy(float), part["cluster"].to_numpy()
        weights = part["weight"].to_numpy(float)
        if value == "value" and set(part["metric"]) == {NLL}:
            found = perplexity_interval(numbers, weights, clusters)
        else:
            found = mean_interval(numbers, clusters, weights if value == "value" else None)
        lines.append((*key, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=[*by, "value", "low", "high", "n"])


def sample_means(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """The same for a diagnostic: first the mean of each sample, then mean and interval over samples (NaN for one).

    Heads and tokens of one sample are not independent, so they are averaged first.
    """
    own = frame.groupby([*by, "sample_id"], sort=False)[value].mean().reset_index()
    lines = []
    for key, part in own.groupby(list(by), sort=False):
        found = mean_interval(part[value].to_numpy(float), part["sample_id"].to_numpy())
        lines.append((*key, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=[*by, "value", "low", "high", "n"])


def first_prompts(samples: Sequence[str]) -> str:
    """Which prompts a figure shows one by one, in words."""
    return f"the first {len(samples)} prompts of the task" if len(samples) > 1 else "the first prompt of the task"


def count_text(numbers: Sequence[int] | pd.Series) -> str:
    """``n = 10`` or ``n = 2 to 10``, of the samples behind a figure's means."""
    low, high = int(min(numbers)), int(max(numbers))
    return f"n = {low}" if low == high else f"n = {low} to {high}"


def interval_width_text(found: pd.DataFrame) -> str:
    """How wide the intervals are, in words, for maps that have no room for bars."""
    halves = ((found["high"] - found["low"]) / 2).dropna()
    if halves.empty:
        return "one sample, no interval"
    return f"95 % intervals up to ±{halves.max():.3g}"
