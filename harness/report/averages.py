"""Averages over the subsets of LongBench as papers print them: plain means of the 16 English ones, and by category."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from harness.report.names import context_title, ordered_budgets, ordered_policies
from harness.report.rows import CONTEXT
from tasks.longbench.averages import by_category, overall
from tasks.longbench.subsets import ENGLISH

SUITE = "longbench/"


@dataclass(frozen=True)
class Averages:
    """One table: a policy under one budget a line. Numbers are percent, as in the papers."""

    context: str
    categories: list[str]
    lines: list[tuple[str, str, list[str], str]]  # policy, budget, categories, average with its interval
    note: str  # what else the name of the suite was followed by: synthetic rows


def averages(summary: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[Averages]:
    """A table for every context in which some cell has all 16 English subsets; cells that lack one have no line."""
    ours = summary[summary["task"].str.startswith(SUITE)]
    if ours.empty:
        return
    parts = ours["task"].str.removeprefix(SUITE).str.partition(" ")
    ours = ours.assign(subset=parts[0], note=parts[2])
    for (*key, note), panel in ours.groupby([*CONTEXT, "note"], sort=False):
        lines = list(_lines(panel))
        if lines:
            title = context_title(dict(zip(CONTEXT, key, strict=True)), shown)
            categories = list(by_category(dict.fromkeys(ENGLISH, 0.0)))
            yield Averages(title, categories, lines, str(note).strip("()"))


def _lines(panel: pd.DataFrame) -> Iterator[tuple[str, str, list[str], str]]:
    cells = {(str(label), str(budget)): part for (label, budget), part in panel.groupby(["label", "budget"])}
    budgets = ordered_budgets(budget for _, budget in cells)
    for label in ordered_policies(label for label, _ in cells):
        for budget in budgets:
            part = cells.get((label, budget))
            if part is None or not set(ENGLISH) <= set(part["subset"]):
                continue
            scores = _percent(part, "value")
            low, high = _interval(part)
            means = [f"{mean:.2f}" for mean in by_category(scores).values()]
            yield label, budget, means, f"{overall(scores):.2f} [{low:.2f}, {high:.2f}]"


def _interval(part: pd.DataFrame) -> tuple[float, float]:
    """95 % for the mean of the 16 means: subsets are independent, so half-widths add in squares."""
    scores, low, high = (_percent(part, name) for name in ("value", "low", "high"))
    mean = overall(scores)
    below = math.sqrt(sum((scores[name] - low[name]) ** 2 for name in ENGLISH)) / len(ENGLISH)
    above = math.sqrt(sum((high[name] - scores[name]) ** 2 for name in ENGLISH)) / len(ENGLISH)
    return mean - below, mean + above


def _percent(part: pd.DataFrame, column: str) -> Mapping[str, float]:
    return {str(name): 100 * float(value) for name, value in zip(part["subset"], part[column], strict=True)}
