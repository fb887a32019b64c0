"""LongBench's scores for answers that are a number: which paragraph, and how many."""

from __future__ import annotations

import re

from tasks.base import TaskError

_PARAGRAPH = re.compile(r"Paragraph (\d+)")
_PARAGRAPH_ZH = re.compile(r"段落(\d+)")


def retrieval(prediction: str, gold: str) -> float:
    """The share of the prediction's numbers that are the gold paragraph's; 0 without any number.

    Numbers are runs of digits and compared as text (``015`` is not ``15``). Source: LongBench ``retrieval_score``.
    Raises `TaskError` where the gold answer has no ``Paragraph N``.
    """
    return count(prediction, _paragraph(_PARAGRAPH, "Paragraph", gold))


def retrieval_zh(prediction: str, gold: str) -> float:
    """`retrieval` with gold answers like ``段落15``. Source: LongBench ``retrieval_zh_score``."""
    return count(prediction, _paragraph(_PARAGRAPH_ZH, "段落", gold))


def count(prediction: str, gold: str) -> float:
    """The share of the prediction's numbers that equal the gold text; 0 without any. Source: ``count_score``."""
    numbers = re.findall(r"\d+", prediction)
    return sum(number == gold for number in numbers) / len(numbers) if numbers else 0.0


def _paragraph(pattern: re.Pattern[str], word: str, gold: str) -> str:
    found = pattern.search(gold)
    if found is None:
        raise TaskError(f"The gold answer '{gold}' names no paragraph: '{word}' and a number are missing in the data.")
    return found[1]
