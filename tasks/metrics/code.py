"""LongBench's score for completing the next line of a program."""

from __future__ import annotations

from difflib import SequenceMatcher


def code_similarity(prediction: str, gold: str) -> float:
    """Similarity of the prediction's first line of code with the gold line, in hundredths.

    The first line, after newlines at the start, that holds no backtick, no ``#`` and no ``//`` (a line of blanks
    counts); the empty string where there is none. The similarity is ``fuzz.ratio`` of fuzzywuzzy 0.18.0 on difflib,
    which is what LongBench's requirements install; with python-Levenshtein it would differ on some lines.
    Source: LongBench ``code_sim_score``.
    """
    lines = prediction.lstrip("\n").split("\n")
    line = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    if line == gold:
        return 1.0
    if not line or not gold:
        return 0.0
    return round(100 * SequenceMatcher(None, line, gold).ratio()) / 100
