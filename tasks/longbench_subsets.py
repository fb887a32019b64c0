"""The 21 subsets of LongBench as the official configuration has them, and averages over them (tasks.md 2.2).

The table is ``tasks/prompts/longbench.yaml``. What reads results imports this module and not the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tasks.base import TaskError, nearest

SETTINGS = Path(__file__).with_name("prompts") / "longbench.yaml"


@dataclass(frozen=True)
class LongBenchSubset:
    """One subset: a row of the table in tasks.md 2.2."""

    name: str
    prompt: str  # with the fields {context} and {input}
    max_new_tokens: int
    metric: str
    category: str
    language: str  # en | zh
    rows: int
    chat: bool  # whether the official code wraps the prompt in the model's chat format
    stop_at_newline: bool  # and asks for one token at least
    has_extended: bool  # whether LongBench-E has it

    def speaks(self, language: str) -> bool:
        """Whether a row's column ``language`` fits: "en" or "zh", or in code tasks a programming language."""
        return language == self.language or (self.category == "code" and language != "zh")


def _subset(name: str, row: Mapping[str, Any]) -> LongBenchSubset:
    return LongBenchSubset(
        name=name,
        prompt=row["prompt"],
        max_new_tokens=row["max_new_tokens"],
        metric=row["metric"],
        category=row["category"],
        language=row["language"],
        rows=row["samples"],
        chat=row["chat_template"],
        stop_at_newline=row["stop_at_newline"],
        has_extended=row["longbench_e"],
    )


_TABLE = yaml.safe_load(SETTINGS.read_text("utf-8"))

SUBSETS: dict[str, LongBenchSubset] = {name: _subset(name, row) for name, row in _TABLE["tasks"].items()}
ENGLISH: tuple[str, ...] = tuple(_TABLE["english_16"])  # the 16 of the papers, in the order of their tables
CHINESE: tuple[str, ...] = tuple(_TABLE["chinese_5"])


def subset(name: str, extended: bool) -> LongBenchSubset:
    """The subset ``name``; `TaskError` with the nearest where there is none, or none in LongBench-E."""
    if name not in list(SUBSETS):  # a list given by mistake cannot be looked up in a dict
        raise TaskError(f"LongBench has no subset '{name}'. {nearest(str(name), SUBSETS)}")
    if extended and not SUBSETS[name].has_extended:
        known = ", ".join(each for each in SUBSETS if SUBSETS[each].has_extended)
        raise TaskError(f"LongBench-E has no subset '{name}', only {known}: use longbench.extended=false.")
    return SUBSETS[name]


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
