"""Exact match of short answers, and the English normalisation that several scores share."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """SQuAD's normal form: lower case, no ASCII punctuation, no articles, single spaces.

    In this order, so that ``state-of-the-art`` becomes one word and keeps its ``the``; curly quotes and dashes stay.
    Source: LongBench ``metrics.py`` and lost-in-the-middle ``metrics.py``, which agree.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Iterable[str]) -> float:
    """1 if the prediction is one of the answers, but for blanks around it and case.

    Source: BUZZ's released code (tasks.md 6.2), which compares with the first answer only: pass one.
    """
    said = prediction.strip().lower()
    return float(any(said == gold.strip().lower() for gold in golds))


def best_subspan_em(prediction: str, golds: Iterable[str]) -> float:
    """1 if the first line of the prediction contains an answer, both `normalised`.

    The first line is what stands before the first newline, even if that is nothing: a task strips its predictions
    first, as the official generation script does. There are no word boundaries, and an answer that normalises to
    nothing is always contained. Source: lost-in-the-middle, ``evaluate_qa_responses.py`` and ``metrics.py``.
    """
    said = normalised(prediction.partition("\n")[0].strip())
    return float(any(normalised(gold) in said for gold in golds))
