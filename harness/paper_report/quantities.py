"""What a printed metric is in our rows: a number with its 95 % interval, in the paper's own unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from harness.paper_report.lookup import Answer, GapError
from harness.published import stand_ins
from harness.published.names import metrics
from harness.statistics.intervals import Floats, Interval, expanded_tail, mean_interval, perplexity_interval
from harness.verdicts.paired import Stratum, resample, stratum
from harness.verdicts.shelf import Cell

PER_UNIT = {"points": 100.0, "percent": 100.0}  # our scores are in [0, 1]
GIGABYTE = 1e9
BINS = {"le_2K": (0, 2000), "2K_4K": (2000, 4000), "4K_6K": (4000, 6000), "6K_8K": (6000, 8000), "ge_8K": (8000, 1e12)}


@dataclass(frozen=True)
class Measured:
    """``value`` with its interval (NaN where the samples give none) over ``n`` samples. ``notes``: what stands in."""

    value: float
    low: float
    high: float
    n: int
    notes: tuple[str, ...] = ()


def measured(metric: str, unit: str, at: Mapping[str, str], answer: Answer, mini: bool) -> Measured:
    """The quantity of one place. Raises `GapError` where rows cannot have it, or have not."""
    if metric in _ELSEWHERE:
        raise GapError(_ELSEWHERE[metric])
    scale = PER_UNIT.get(unit, 1.0)
    if metric in _OF_ROWS:
        return _OF_ROWS[metric](answer, at)
    if metric in ("ppl", "ppl_delta"):
        return _perplexity(answer, metric == "ppl_delta")
    if metric == "rouge_geomean":
        return _geometric(answer, mini, scale)
    return _score(metric, answer, mini, scale)


def _score(metric: str, answer: Answer, mini: bool, scale: float) -> Measured:
    """The mean score; over several tasks the plain mean of theirs, as the papers average."""
    parts: list[Interval] = []
    notes: list[str] = []
    for cell in answer.cells:
        name = _metric(metric, cell, mini, notes)
        parts.append(_mean(cell, cell.scores[name]))
    return _scaled(_average(parts), scale, notes)


def _metric(metric: str, cell: Cell, mini: bool, notes: list[str]) -> str:
    own = [cell.metric if each == "first" else each for each in metrics(metric)]
    options = [*own, *(stand_ins.metrics(metric) if mini else ())]
    name = next((each for each in options if each in cell.scores), "")
    if not name:
        raise GapError(
            f"The rows of {cell.task} have no {options[0] if options else metric}.{_OPTIONAL.get(metric, '')}"
        )
    if name not in own:
        notes.append(f"{name} for {metric}")
    return name


def _mean(cell: Cell, values: pd.Series) -> Interval:
    groups, weights = cell.clusters.loc[values.index], cell.samples["weight"].astype(float).loc[values.index]
    return mean_interval(values.to_numpy(float), groups.to_numpy(str), weights.to_numpy(float))


def _average(parts: Sequence[Interval]) -> Interval:
    """Tasks are independent, so half-widths add in squares."""
    if len(parts) == 1:
        return parts[0]
    mean = sum(each.mean for each in parts) / len(parts)
    below = math.sqrt(sum((each.mean - each.low) ** 2 for each in parts)) / len(parts)
    above = math.sqrt(sum((each.high - each.mean) ** 2 for each in parts)) / len(parts)
    return Interval(mean, mean - below, mean + above, sum(each.n for each in parts), 0)


def _scaled(found: Interval, scale: float, notes: Sequence[str]) -> Measured:
    return Measured(scale * found.mean, scale * found.low, scale * found.high, found.n, tuple(dict.fromkeys(notes)))


def _geometric(answer: Answer, mini: bool, scale: float) -> Measured:
    """The geometric mean of the mean ROUGE-1, 2 and L; at scale=mini of those that there are."""
    notes: list[str] = []
    (cell,) = answer.cells
    found: dict[str, pd.Series] = {}
    for metric in ("rouge1", "rouge2", "rougeL"):
        try:
            found[metric] = cell.scores[_metric(metric, cell, mini, notes)]
        except GapError:
            if not mini:
                raise
    if not found:
        raise GapError(f"The rows of {cell.task} have no ROUGE.")
    if len(found) < 3:
        notes.append(f"{', '.join(found)} alone for the geometric mean of three")
    own = stratum(cell.task, [found], cell.samples["weight"].astype(float), cell.samples["document"])
    return _resampled([own], lambda scores: np.asarray(scores[..., 0, 0]), scale, notes)


def _perplexity(answer: Answer, above_dense: bool) -> Measured:
    """exp of the token-weighted mean of nats; above dense: a difference of perplexities over the same text."""
    (cell,) = answer.cells
    if "nll" not in cell.scores:
        raise GapError(f"The rows of {cell.task} have no nll.")
    nats, weights = cell.scores["nll"], cell.samples["weight"].astype(float)
    if not above_dense:
        found = perplexity_interval(nats.to_numpy(float), weights.to_numpy(float), cell.clusters.to_numpy(str))
        return _scaled(found, 1.0, ())
    if not answer.dense:
        raise GapError(f"Not measured: there are no rows of dense on {cell.task} to take the gap from.")
    pair = [{"nll": nats}, {"nll": answer.dense[0].scores["nll"]}]
    own = stratum(cell.task, pair, weights, cell.samples["document"])
    return _resampled([own], lambda s: np.asarray(np.exp(s[..., 0, 0]) - np.exp(s[..., 0, 1])), 1.0, ())


def _resampled(
    strata: Sequence[Stratum], quantity: Callable[[Floats], Floats], scale: float, notes: Sequence[str]
) -> Measured:
    drawn = resample(strata)
    value = float(quantity(drawn.once))
    fewest, n = min(each.clusters for each in strata), sum(each.samples for each in strata)
    low = high = math.nan
    if fewest > 1:
        tail = expanded_tail(fewest)
        low, high = (float(x) for x in np.quantile(quantity(drawn.often), [tail, 1 - tail]))
        low, high = min(low, value), max(high, value)
    return Measured(scale * value, scale * low, scale * high, n, tuple(dict.fromkeys(notes)))


def _of_samples(answer: Answer, values: Callable[[Cell], pd.Series]) -> Measured:
    parts = []
    for cell in answer.cells:
        own = values(cell)
        parts.append(mean_interval(own.to_numpy(float), cell.clusters.loc[own.index].to_numpy(str)))
    return _scaled(_average(parts), 1.0, ())


def _coverage(answer: Answer, at: Mapping[str, str], drop: float) -> Measured:
    return _of_samples(answer, lambda cell: 100 * (cell.samples["coverage"].astype(float) - drop))


def _gigabytes(answer: Answer, at: Mapping[str, str]) -> Measured:
    return _of_samples(answer, lambda cell: _bytes(cell) / GIGABYTE)


def _compression(answer: Answer, at: Mapping[str, str]) -> Measured:
    """KeyDiff: the share of a prompt that the budget holds. HashEvict: the share of the dense cache that is gone."""
    if at["method"] == "none":
        return _of_samples(answer, _held)
    if not answer.dense:
        raise GapError(f"Not measured: there are no rows of dense on {answer.cells[0].task} to compare memory with.")
    dense = {cell.task: _bytes(cell) for cell in answer.dense}
    return _of_samples(answer, lambda cell: (1 - _bytes(cell) / dense[cell.task]).dropna())


def _held(cell: Cell) -> pd.Series:
    return (cell.samples["slots_requested"] / cell.samples["prompt_tokens"]).clip(upper=1.0)


def _bytes(cell: Cell) -> pd.Series:
    return cell.samples["kv_bytes"].astype(float) + cell.samples["state_bytes"].astype(float)


def _count(answer: Answer, at: Mapping[str, str]) -> Measured:
    """Prompts of a length; a count has no interval. Lengths are in the tokens of the model at hand."""
    lengths = answer.cells[0].samples["prompt_tokens"]
    low, high = BINS.get(at["length_bin"], (0, 1e12))
    count = int(((lengths > low) & (lengths <= high)).sum())
    return Measured(count, math.nan, math.nan, len(lengths))


_OF_ROWS: Mapping[str, Callable[[Answer, Mapping[str, str]], Measured]] = {
    "coverage_pct": partial(_coverage, drop=0.0),
    "coverage_drop_pct": partial(_coverage, drop=1.0),
    "cache_gb": _gigabytes,
    "compression_ratio": _compression,
    "count": _count,
}
_CLOCK = "A time on the authors' machine and code; what our engine needs is measured beside it, with its conditions."
_OPTIONAL = {
    **dict.fromkeys(
        ("bertscore_f1", "bertscore_precision", "bertscore_recall"), " BERTScore needs a model: task.bert=<folder>."
    ),
    **dict.fromkeys(
        (f"gpt4_judge_{name}" for name in ("similarity", "coherence", "faithfulness", "helpfulness", "avg")),
        " A judge needs task.judge, OPENAI_BASE_URL and OPENAI_API_KEY; GPT-4 cannot be pinned to a version.",
    ),
}
_ELSEWHERE = {
    **{f"tokens_per_s_{name}": _CLOCK for name in ("prefill", "decode", "total")},
    "seconds": _CLOCK,
    "flops_ratio": "A ratio of formulas, which follows from sizes and not from rows; ours is counted beside it.",
}
