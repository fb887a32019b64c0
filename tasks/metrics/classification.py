"""LongBench's score for choosing one of a list of classes."""

from __future__ import annotations

from collections.abc import Iterable


def classification(prediction: str, gold: str, classes: Iterable[str]) -> float:
    """1 / n if the gold class is among the n classes that the prediction names, else 0.

    Named is every class that is a substring of the prediction, case-sensitive. Then those that are part of the gold
    name without being it are taken out, but as the official loop does it: it deletes from the list that it walks
    over, and so passes over the class behind each one deleted. Source: LongBench ``classification_score``.
    """
    named = [name for name in classes if name in prediction]
    index = 0
    while index < len(named):
        if named[index] in gold and named[index] != gold:
            named.remove(named[index])  # the first of that name, wherever the walk is
        index += 1
    return 1.0 / len(named) if gold in named else 0.0
