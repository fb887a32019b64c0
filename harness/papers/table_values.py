"""The value of a printed metric in our rows, with its 95 % interval, in the paper's unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd

from harness.analysis.statistics import (
    Floats,
    Interval,
    mean_interval,
    perplexity_interval,
)
from harness.papers.cell_index import CellRows, NoCellError
from harness.papers.paired_bootstrap import Stratum, bootstrap_interval, build_stratum, resample
from harness.papers.published import FULL, Scale
from harness.papers.table_cells import MatchingCells, NoValueError
from harness.papers.text_metrics import paper_scores

PER_UNIT = {"points": 100.0, "percent": 100.0}  # our scores are in [0, 1]
GIGABYTE = 1e9
LENGTH_BINS = {
    "le_2K": (0, 2000),
    "2K_4K": (2000, 4000),
    "4K_6K": (4000, 6000),
    "6K_8K": (6000, 8000),
    "ge_8K": (8000, 1e12),
}


@dataclass(frozen=True)
class MeasuredValue:
    """``value`` with its 95 % interval (NaN where the samples give none) over ``n`` samples. ``notes``: "a for b".

    ``by_prompt``: of a stored diagnostic, the values that it is the mean of, by prompt.
    """

    value: float
    low: float
    high: float
    n: int
    notes: tuple[str, ...] = ()
    by_prompt: pd.Series | None = field(default=None, compare=False, repr=False)


def measured_value(metric: str, unit: str, at: Mapping[str, str], match: MatchingCells, scale: Scale) -> MeasuredValue:
    """Our value of one printed number. Raises `NoValueError` where rows cannot have it, or do not."""
    if metric in _NOT_IN_ROWS:
        raise NoValueError(_NOT_IN_ROWS[metric])
    per_unit = PER_UNIT.get(unit, 1.0)
    if metric in _OF_ROWS:
        if metric == "count" and scale != FULL:
            raise NoValueError(_other_prompts(match))
        return _OF_ROWS[metric](match, at)
    if metric in ("ppl", "ppl_delta"):
        return _perplexity(match, metric == "ppl_delta")
    if metric == "rouge_geomean":
        return _geometric(match, scale, per_unit)
    return _score(metric, match, scale, per_unit)


def sample_scores(metric: str, match: MatchingCells, scale: Scale) -> list[tuple[CellRows, list[pd.Series]]]:
    """By cell, the scores of samples that a value is made of: of one metric, or of the metrics of a geometric mean.

    A perplexity is made of nats per token. Raises `NoValueError` where the value is not a mean over samples of scores.
    """
    if metric in ("coverage_pct", "coverage_drop_pct"):
        return [(cell, [cell.samples["coverage"].astype(float)]) for cell in match.cells]
    if metric == "cache_gb":
        return [(cell, [_bytes(cell)]) for cell in match.cells]
    if metric in _NOT_IN_ROWS or metric in _OF_ROWS:
        raise NoValueError(_NOT_IN_ROWS.get(metric, f"{metric} is no score."))
    if metric in ("ppl", "ppl_delta"):
        return [(cell, [cell.scores["nll"]]) for cell in match.cells if "nll" in cell.scores]
    if metric == "rouge_geomean":
        return [(cell, list(_rouges(cell, scale).values())) for cell in match.cells]
    return [(cell, [_series_in_rows(metric, cell, scale, [])]) for cell in match.cells]


def _score(metric: str, match: MatchingCells, scale: Scale, per_unit: float) -> MeasuredValue:
    """The mean score; over several tasks the plain mean of theirs, as the papers average."""
    notes: list[str] = []
    parts = [_mean_in_rows(metric, cell, scale, notes) for cell in match.cells]
    return _scaled(_task_average(parts), per_unit, notes)


def _series_in_rows(metric: str, cell: CellRows, scale: Scale, notes: list[str]) -> pd.Series:
    """The metric by sample: of the rows, else of the stored texts, else at our own scales a proxy."""
    try:
        found, stands_in = paper_scores(cell, metric, scale)
    except NoCellError as absent:
        hint = _HOW_TO_SCORE.get(metric, "")
        raise NoValueError(f"The rows of {cell.task} have no {absent}.{hint}") from None
    notes += [stands_in] if stands_in else []
    return found


def _mean_in_rows(metric: str, cell: CellRows, scale: Scale, notes: list[str]) -> Interval:
    """The mean of a metric (`_series_in_rows`), computed once for each cell."""
    key = ("mean", metric, scale)
    if key not in cell.computed:
        own: list[str] = []
        cell.computed[key] = cell_mean(cell, _series_in_rows(metric, cell, scale, own)), own
    found, own = cell.computed[key]
    notes += own
    return found  # type: ignore[no-any-return]


def cell_mean(cell: CellRows, values: pd.Series) -> Interval:
    """The weighted mean of one metric of a cell by sample, over its clusters."""
    groups, weights = cell.clusters.loc[values.index], cell.samples["weight"].astype(float).loc[values.index]
    return mean_interval(values.to_numpy(float), groups.to_numpy(str), weights.to_numpy(float))


def _task_average(parts: Sequence[Interval]) -> Interval:
    """The plain mean of tasks. Tasks are independent, so half-widths add in squares."""
    if len(parts) == 1:
        return parts[0]
    mean = sum(each.mean for each in parts) / len(parts)
    below = math.sqrt(sum((each.mean - each.low) ** 2 for each in parts)) / len(parts)
    above = math.sqrt(sum((each.high - each.mean) ** 2 for each in parts)) / len(parts)
    return Interval(mean, mean - below, mean + above, sum(each.n for each in parts), 0)


def _scaled(found: Interval, scale: float, notes: Sequence[str]) -> MeasuredValue:
    return MeasuredValue(
        scale * found.mean, scale * found.low, scale * found.high, found.n, tuple(dict.fromkeys(notes))
    )


def _geometric(match: MatchingCells, scale: Scale, per_unit: float) -> MeasuredValue:
    """The geometric mean of the mean ROUGE-1, 2 and L; at a scale of our own of those that the rows have."""
    notes: list[str] = []
    (cell,) = match.cells
    found = _rouges(cell, scale)
    if len(found) < 3:
        notes.append(f"{', '.join(found)} alone for the geometric mean of three")
    own = build_stratum(cell.task, [found], cell.samples["weight"].astype(float), cell.samples["document"])
    return _resampled([own], lambda scores: np.asarray(scores[..., 0, 0]), per_unit, notes)


def _rouges(cell: CellRows, scale: Scale) -> dict[str, pd.Series]:
    found: dict[str, pd.Series] = {}
    for metric in ("rouge1", "rouge2", "rougeL"):
        try:
            found[metric] = _series_in_rows(metric, cell, scale, [])
        except NoValueError:
            if scale == FULL:
                raise
    if not found:
        raise NoValueError(f"The rows of {cell.task} have no ROUGE.")
    return found


def _perplexity(match: MatchingCells, above_dense: bool) -> MeasuredValue:
    """exp of the token-weighted mean of nats; ``above_dense``: minus the perplexity of dense over the same text."""
    (cell,) = match.cells
    if "nll" not in cell.scores:
        raise NoValueError(f"The rows of {cell.task} have no nll.")
    nats, weights = cell.scores["nll"], cell.samples["weight"].astype(float)
    if not above_dense:
        found = perplexity_interval(nats.to_numpy(float), weights.to_numpy(float), cell.clusters.to_numpy(str))
        return _scaled(found, 1.0, ())
    if not match.dense:
        raise NoValueError(f"Not measured: there are no rows of dense on {cell.task} to take the gap from.")
    pair = [{"nll": nats}, {"nll": match.dense[0].scores["nll"]}]
    own = build_stratum(cell.task, pair, weights, cell.samples["document"])
    return _resampled([own], lambda s: np.asarray(np.exp(s[..., 0, 0]) - np.exp(s[..., 0, 1])), 1.0, ())


def _resampled(
    strata: Sequence[Stratum], quantity: Callable[[Floats], Floats], scale: float, notes: Sequence[str]
) -> MeasuredValue:
    drawn = resample(strata)
    value, n = float(quantity(drawn.once)), sum(each.samples for each in strata)
    low, high, _ = bootstrap_interval(strata, quantity(drawn.often), value)  # as claims are tested
    return MeasuredValue(scale * value, scale * low, scale * high, n, tuple(dict.fromkeys(notes)))


def _of_samples(match: MatchingCells, values: Callable[[CellRows], pd.Series]) -> MeasuredValue:
    parts = []
    for cell in match.cells:
        own = values(cell)
        parts.append(mean_interval(own.to_numpy(float), cell.clusters.loc[own.index].to_numpy(str)))
    return _scaled(_task_average(parts), 1.0, ())


def _coverage(match: MatchingCells, at: Mapping[str, str], drop: float) -> MeasuredValue:
    return _of_samples(match, lambda cell: 100 * (cell.samples["coverage"].astype(float) - drop))


def _gigabytes(match: MatchingCells, at: Mapping[str, str]) -> MeasuredValue:
    return _of_samples(match, lambda cell: _bytes(cell) / GIGABYTE)


def _compression(match: MatchingCells, at: Mapping[str, str]) -> MeasuredValue:
    """KeyDiff: the budget as a share of the prompt. HashEvict: the share of the dense cache that is saved."""
    if at["method"] == "none":
        return _of_samples(match, _budget_share)
    if not match.dense:
        raise NoValueError(f"Not measured: there are no rows of dense on {match.cells[0].task} to compare memory with.")
    dense = {cell.task: _bytes(cell) for cell in match.dense}
    return _of_samples(match, lambda cell: (1 - _bytes(cell) / dense[cell.task]).dropna())


def _budget_share(cell: CellRows) -> pd.Series:
    return (cell.samples["slots_requested"] / cell.samples["prompt_tokens"]).clip(upper=1.0)


def _bytes(cell: CellRows) -> pd.Series:
    return cell.samples["kv_bytes"].astype(float) + cell.samples["state_bytes"].astype(float)


def _prompt_count(match: MatchingCells, at: Mapping[str, str]) -> MeasuredValue:
    """The number of prompts in a length bin; a count has no interval. Lengths are in tokens of the measured model."""
    lengths = match.cells[0].samples["prompt_tokens"]
    low, high = LENGTH_BINS.get(at["length_bin"], (0, 1e12))
    count = int(((lengths > low) & (lengths <= high)).sum())
    return MeasuredValue(count, math.nan, math.nan, len(lengths))


def _other_prompts(match: MatchingCells) -> str:
    lengths = match.cells[0].samples["prompt_tokens"]
    return (
        "A count of prompts of the paper's own data. At this scale there are none of them: our prompts of "
        f"{match.cells[0].task} have {int(lengths.min())} to {int(lengths.max())} tokens, below its first bin."
    )


_OF_ROWS: Mapping[str, Callable[[MatchingCells, Mapping[str, str]], MeasuredValue]] = {
    "coverage_pct": partial(_coverage, drop=0.0),
    "coverage_drop_pct": partial(_coverage, drop=1.0),
    "cache_gb": _gigabytes,
    "compression_ratio": _compression,
    "count": _prompt_count,
}
_CLOCK_REASON = (
    "A time on the authors' machine and code; what our engine needs is measured beside it, with its conditions."
)
_HOW_TO_SCORE = {
    **dict.fromkeys(
        (f"gpt4_judge_{name}" for name in ("similarity", "coherence", "faithfulness", "helpfulness", "avg")),
        " A judge needs task.judge, OPENAI_BASE_URL and OPENAI_API_KEY; GPT-4 cannot be pinned to a version.",
    ),
}
_NOT_IN_ROWS = {
    **{f"tokens_per_s_{name}": _CLOCK_REASON for name in ("prefill", "decode", "total")},
    "seconds": _CLOCK_REASON,
    "flops_ratio": "A ratio of formulas, which follows from sizes and not from rows; ours is counted beside it.",
}
