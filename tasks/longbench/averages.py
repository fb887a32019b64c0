"""From scores of single subsets to the numbers that papers print: plain means (tasks.md 2.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.base import TaskError
from tasks.longbench.subsets import ENGLISH, SUBSETS


def overall(scores: Mapping[str, float]) -> float:
    """The mean over the 16 English subsets, on the scale of ``scores``. Raises `TaskError` where one is missing."""
    return _mean(scores, ENGLISH)


def by_category(scores: Mapping[str, float]) -> dict[str, float]:
    """The mean of each of the six categories over its English subsets, in the order of the papers' tables.

    Raises `TaskError` where a score is missing.
    """
    members: dict[str, list[str]] = {}
    for name in ENGLISH:
        members.setdefault(SUBSETS[name].category, []).append(name)
    return {category: _mean(scores, names) for category, names in members.items()}


def _mean(scores: Mapping[str, float], names: Sequence[str]) -> float:
    if missing := [name for name in names if name not in scores]:
        raise TaskError(f"An average over LongBench needs {', '.join(missing)} too; run them first.")
    return sum(scores[name] for name in names) / len(names)
