"""The paper's own points of a figure: as printed, and as shares of the dense score that it prints beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_data import FigureData
from harness.report.labels import parse_budget

FASTGEN = "fastgen (at its recovery)"


class PrintedMetric(Protocol):
    """Which numbers of the paper: those of these tables that our rows would call so."""

    @property
    def names(self) -> tuple[str, ...]:
        """Metrics of our rows, the preferred first."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the paper's tables."""


@dataclass(frozen=True)
class PrintedPoints:
    """``points``: ``line``, ``x``, ``value`` on our scale. ``dense``: the dense score; 0 where none is printed."""

    points: pd.DataFrame
    dense: float = 0.0

    @property
    def shares(self) -> pd.DataFrame:
        """The points over dense."""
        return self.points.assign(value=self.points["value"] / self.dense)


def printed_points(data: FigureData, i: int, metric: PrintedMetric) -> PrintedPoints:
    """What the paper prints of the figure's task ``i``, of its first model."""
    printed = data.printed(metric.tables, metric.names)
    tasks = figure_cells(data.paper, data.item, "full").values("task")
    printed = printed[printed["our_task"] == tasks[min(i, len(tasks) - 1)]]
    printed = printed[printed["model"] == (printed["model"].iloc[0] if len(printed) else "")]
    recovery = printed["note"].str.extract(r"attn_recovery_frac=(\d+)%", expand=False)
    lines = printed.assign(
        line=printed["policy"].where(recovery.isna(), FASTGEN),
        x=pd.to_numeric(recovery.fillna(printed["budget"]), errors="coerce"),
    )
    dense = printed.loc[printed["policy"] == "dense", "value"]
    points: pd.DataFrame = lines[lines["x"].notna() & ~lines["policy"].isin(["dense", ""])][["line", "x", "value"]]
    return PrintedPoints(points, float(dense.iloc[0]) if len(dense) else 0.0)


def line_label(policy: str) -> str:
    """The line that a policy is a point of: FastGen has no budget, its recovery fraction is its x."""
    return FASTGEN if policy.startswith("fastgen/") else policy


def x_of(policy: str, budget: str) -> float:
    """The x coordinate: percent, or slots."""
    found = re.fullmatch(r"fastgen/(\d+)", policy)
    return float(found[1]) if found else parse_budget(budget).amount
