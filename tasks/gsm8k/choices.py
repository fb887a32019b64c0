"""Multiple choice out of GSM8K's free test set, for where ``guipenedo/gsm8k-mc`` cannot be had (tasks.md 5.2)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from tasks.base import TaskError

LETTERS = "ABCD"
_RESULT = re.compile(r"<<[^<>]*=\s*(-?[\d.,/]+)\s*>>")
_GOLD = re.compile(r"####\s*(-?[\d.,]+)")


def derived(question: str, solution: str, index: int, place: str) -> dict[str, str]:
    """A row with the columns of ``gsm8k-mc``: Question, A, B, C, D, Answer.

    The wrong answers are the first three distinct ones of: intermediate results of the solution, gold - 1, gold + 1,
    gold x 2, gold / 2, gold + 10. ``index`` seeds the places. Scores do not compare with those of the paper's set.
    Raises `TaskError`, with the row's ``place``, where the solution ends without a number.
    """
    found = _GOLD.search(solution)
    gold = _number(found[1]) if found else None
    if gold is None:
        raise TaskError(f"{place}: the answer has no number after '####', so no choices can be derived from it.")
    wrong: dict[Fraction, None] = {}
    for number in _candidates(solution, gold):
        if number != gold:
            wrong[number] = None
    choices = [gold, *list(wrong)[:3]]
    random.Random(index).shuffle(choices)
    named: Mapping[str, Fraction] = dict(zip(LETTERS, choices, strict=True))
    answer = next(letter for letter, number in named.items() if number == gold)
    return {"Question": question, "Answer": answer} | {letter: _written(number) for letter, number in named.items()}


def _candidates(solution: str, gold: Fraction) -> Iterator[Fraction]:
    for result in _RESULT.findall(solution):
        number = _number(result)
        if number is not None:
            yield number
    yield from (gold - 1, gold + 1, gold * 2, gold / 2, gold + 10)


def _number(text: str) -> Fraction | None:
    try:
        return Fraction(text.replace(",", "").rstrip("."))
    except (ValueError, ZeroDivisionError):
        return None


def _written(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.10g}"
