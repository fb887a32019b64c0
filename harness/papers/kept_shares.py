"""What a method keeps of the full cache: the form in which the numbers of two models can be compared.

A score of a small model and one of a large model on another task are not the same thing, and their difference says
nothing. What either keeps of its own dense score is: 1 where eviction costs nothing. A perplexity has no such share;
there it is the nats per token above dense, 0 where eviction costs nothing. What has no dense (a correlation, a number
of seconds, a share of the cache) is compared as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Literal

from harness.papers.published import Scale, published_frame
from harness.papers.table_cells import MatchingCells, NoValueError
from harness.papers.table_layouts import PrintedNumber
from harness.papers.table_values import MeasuredValue, measured_value

KeptAs = Literal["share", "nats", "itself"]

_NATS = ("ppl", "ppl_delta")
_THEMSELVES = (
    "attention_loss", "compression_ratio", "count", "coverage_pct", "coverage_drop_pct", "flops_ratio", "pearson",
    "pearson_std", "seconds", "spearman", "tokens_per_s_prefill", "tokens_per_s_decode", "tokens_per_s_total",
)  # fmt: skip
# Digits or signs other than those meant: no order of methods is read from them. Other suspect numbers are the paper's.
UNUSABLE_FLAGS = ("misprint", "misread")


def kept_as(metric: str) -> KeptAs:
    """How numbers of a metric are compared."""
    if metric in _NATS:
        return "nats"
    return "itself" if metric in _THEMSELVES else "share"


def printed_kept(paper: str, item: str, number: PrintedNumber) -> float:
    """What a printed number keeps of the printed dense score of the same model, task and metric.

    That of the same table, else of another table of the paper; NaN where none is printed, or the number itself is not.
    """
    metric = number.at["metric"]
    form = kept_as(metric)
    if form == "itself":
        return number.value
    task = number.at["task"].removesuffix("_delta") if form == "nats" else number.at["task"]
    dense = _printed_dense(paper, item, number.at["model"], task, "ppl" if form == "nats" else metric)
    if form == "share":
        return number.value / dense if dense > 0 else math.nan
    value = number.value + dense if metric == "ppl_delta" else number.value
    return math.log(value / dense) if value > 0 and dense > 0 else math.nan


def our_kept(number: PrintedNumber, ours: MeasuredValue, match: MatchingCells, scale: Scale) -> float:
    """What our value keeps of our dense on the same tasks; NaN where dense is missing or scored 0."""
    metric = number.at["metric"]
    form = kept_as(metric)
    if form == "itself":
        return ours.value
    if len(match.dense) != len(match.cells):
        return math.nan
    own = MatchingCells(match.dense, match.dense)
    try:
        if form == "share":
            dense = measured_value(metric, number.unit, number.at, own, scale).value
            return ours.value / dense if dense > 0 else math.nan
        dense = measured_value("ppl", number.unit, number.at, own, scale).value
    except NoValueError:
        return math.nan
    value = ours.value + dense if metric == "ppl_delta" else ours.value
    return math.log(value / dense)


def _printed_dense(paper: str, item: str, model: str, task: str, metric: str) -> float:
    """Of the item's own table, else of the first that prints it; NaN where none does."""
    found = _printed_dense_by_table(paper).get((model, task, metric), {})
    return found.get(item, next(iter(found.values()), math.nan))


@cache
def _printed_dense_by_table(paper: str) -> Mapping[tuple[str, str, str], Mapping[str, float]]:
    """By model, task and metric the first printed number of dense in each table that has one."""
    frame = published_frame(paper)
    own = frame[(frame["method"] == "dense") & frame["value"].notna() & (frame["flag"] != "wrong_average")]
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    keys = zip(*(own[name].astype(str) for name in ("model", "task", "metric")), strict=True)
    for key, table, value in zip(keys, own["table"].astype(str), own["value"].astype(float), strict=True):
        found.setdefault(key, {}).setdefault(table, value)
    return found
