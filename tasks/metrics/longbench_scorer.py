"""LongBench's scorer: from predictions of one of its 21 tasks to the number in the table (tasks.md 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from tasks.base import TaskError
from tasks.checks import nearest
from tasks.metrics.classification import classification
from tasks.metrics.code import code_similarity
from tasks.metrics.qa_f1 import qa_f1, qa_f1_zh
from tasks.metrics.retrieval import count, retrieval, retrieval_zh
from tasks.metrics.rouge import rouge_l, rouge_l_zh

_PAIRWISE: Mapping[str, Callable[[str, str], float]] = {
    "narrativeqa": qa_f1,
    "qasper": qa_f1,
    "multifieldqa_en": qa_f1,
    "multifieldqa_zh": qa_f1_zh,
    "hotpotqa": qa_f1,
    "2wikimqa": qa_f1,
    "musique": qa_f1,
    "dureader": rouge_l_zh,
    "gov_report": rouge_l,
    "qmsum": rouge_l,
    "multi_news": rouge_l,
    "vcsum": rouge_l_zh,
    "triviaqa": qa_f1,
    "samsum": rouge_l,
    "passage_count": count,
    "passage_retrieval_en": retrieval,
    "passage_retrieval_zh": retrieval_zh,
    "lcc": code_similarity,
    "repobench-p": code_similarity,
}
_CLASSIFIED = frozenset({"trec", "lsht"})
_FIRST_LINE = frozenset({"trec", "triviaqa", "samsum", "lsht"})
_BUCKETS = ("0-4k", "4-8k", "8k+")


def item_score(dataset: str, prediction: str, answers: Sequence[str], classes: Sequence[str] = ()) -> float:
    """The best score over the gold answers, in [0, 1]; of the first line only in the few-shot tasks.

    ``dataset`` is the name without ``_e``, ``classes`` the row's ``all_classes`` (trec and lsht).
    Raises `TaskError` for a name that LongBench does not have.
    """
    scored = first_line(prediction) if dataset in _FIRST_LINE else prediction
    metric = _metric(dataset, classes)
    return max((metric(scored, answer) for answer in answers), default=0.0)


def first_line(prediction: str) -> str:
    """What stands before the first newline, newlines at the start aside."""
    return prediction.lstrip("\n").partition("\n")[0]


def task_score(scores: Sequence[float]) -> float:
    """100 times the mean, rounded to 2 decimals: the official ``scorer``. Raises `TaskError` without scores."""
    if not scores:
        raise TaskError("LongBench's task score is a mean over rows, and there is none: run at least one.")
    total = 0.0  # one after the other, as the official loop; sum() adds more exactly since Python 3.12
    for score in scores:
        total += score
    return round(100 * total / len(scores), 2)


def bucket_scores(scores: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    """`task_score` of the rows below 4000, below 8000 and from 8000 on: LongBench-E's ``scorer_e``.

    ``lengths`` are the rows' own ``length``, in words. A bucket without rows is NaN. Mean and rounding are NumPy's,
    as there, which now and then differ from `task_score` in the last digit.
    """
    buckets: dict[str, list[float]] = {name: [] for name in _BUCKETS}
    for score, length in zip(scores, lengths, strict=True):
        buckets[_BUCKETS[(length >= 4000) + (length >= 8000)]].append(score)
    return {name: float(round(100 * np.mean(items), 2)) if items else float("nan") for name, items in buckets.items()}


def _metric(dataset: str, classes: Sequence[str]) -> Callable[[str, str], float]:
    if dataset in _CLASSIFIED:
        return partial(classification, classes=classes)
    if dataset not in _PAIRWISE:
        raise TaskError(f"LongBench has no task '{dataset}'. {nearest(dataset, [*_PAIRWISE, *_CLASSIFIED])}")
    return _PAIRWISE[dataset]
