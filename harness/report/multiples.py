"""Small multiples: the heatmaps of one task, a row per policy and a column per budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd
from markupsafe import Markup

from harness.report.heatmap import AXES, column_width, has_axes, heatmap
from harness.report.ledger import struck_places
from harness.report.names import NLL, context_title, metric_title, ordered_budgets, ordered_policies
from harness.report.summary import PANEL

Place: TypeAlias = tuple[bool, str, str]  # whether dense, label, budget


@dataclass(frozen=True)
class Multiples:
    """Heatmaps of one task and metric in one context; words in place of a map say why there is none."""

    context: str
    task: str
    metric: str
    samples: int  # distinct ones
    budgets: list[str]
    dense: list[Markup | str]
    rows: list[tuple[str, list[Markup | str]]]


def multiples(
    valid: pd.DataFrame,
    summary: pd.DataFrame,
    ledger: pd.DataFrame,
    labels: Mapping[str, str],
    shown: tuple[str, ...],
) -> Iterator[Multiples]:
    """One set for every task and metric whose samples have length and depth and whose scores lie in 0 to 1."""
    parts = dict(iter(valid.groupby(list(PANEL), sort=False)))
    for number, (key, _) in enumerate(summary.groupby(list(PANEL), sort=False)):
        context, part = dict(zip(PANEL, key, strict=True)), parts[key]
        if context["metric"] == NLL or not has_axes(part) or not part["value"].between(0, 1).all():
            continue
        maps: dict[Place, Markup | str] = dict.fromkeys(struck_places(ledger, context), "invalid")
        maps |= _drawn(part.assign(label=part["cell_id"].map(labels)), f"heat{number}")
        budgets = ordered_budgets(budget for dense, _, budget in maps if not dense)
        yield Multiples(
            context=context_title(context, shown),
            task=str(context["task"]),
            metric=metric_title(str(context["metric"])),
            samples=part["sample_id"].nunique(),
            budgets=budgets,
            dense=[drawn for (dense, _, _), drawn in maps.items() if dense],
            rows=[
                (label, [maps.get((False, label, budget), "not run") for budget in budgets])
                for label in ordered_policies(label for dense, label, _ in maps if not dense)
            ],
        )


def _drawn(part: pd.DataFrame, name: str) -> dict[Place, Markup]:
    """A heatmap per cell, all over the same lengths and depths so that they can be compared by place."""
    lengths, depths = (sorted(part[axis].unique()) for axis in AXES)
    column = column_width(len(lengths), part.loc[~part["dense"], "budget"].nunique())
    figures = {}
    for number, (key, cell) in enumerate(part.groupby(["dense", "label", "budget"], sort=False)):
        dense, label, budget = bool(key[0]), str(key[1]), str(key[2])
        title = label if dense else f"{label}, budget {budget}"
        figures[dense, label, budget] = heatmap(cell, lengths, depths, title, f"{name}-{number}", column)
    return figures
