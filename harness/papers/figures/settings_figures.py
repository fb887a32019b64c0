"""Score against a setting of one policy: BUZZ Figure 4 (the threshold over the window)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.papers.figures.budget_figures import PanelMetric
from harness.papers.figures.canvas import SMALL, FigureSheet, Sketch, hollow_marker, marker_style
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import count_text, row_means
from harness.papers.figures.panel_grid import PanelGrid
from harness.report.labels import metric_title
from harness.report.looks import look_of


def draw_settings_curve(
    data: FigureData,
    width: float,
    panels: Sequence[PanelMetric],
    policy: str,
    pattern: str,
    note: str,
    axis: str,
) -> Sketch:
    """``pattern`` finds the setting in a policy's name, ``note`` in the remark of a printed number.

    The paper's points stand among ours at its own setting, else in panels of their own: no axis has both models.
    """
    rows = data.scored()
    there = [each for each in panels if set(each.names) & set(data.rows["metric"])]
    lacking = [each for each in panels if each not in there]
    notes = [f"The stored rows have no {', '.join(each.title for each in lacking)}."] if lacking and there else []
    first = str(rows["metric"].iloc[0])
    shown = there or [PanelMetric(metric_title(first), (first,))]
    printed = {each.title: _printed_settings(data, each, note) for each in panels if each.tables}
    alone = [name for name, found in printed.items() if data.of_stand_in and len(found)]
    look = look_of(policy)
    n = count_text(rows.groupby("policy")["sample_id"].nunique())
    footer = f"{policy}; {n} samples a point, bars: 95 % intervals over documents. Axes do not begin at 0" + (
        "; hollow: printed in the paper" + ", of its own model and data, on its own scale" * data.of_stand_in
        if any(map(len, printed.values()))
        else ""
    )
    grid = PanelGrid.fit(width, len(shown) + len(alone), 200, 140, widest=480)
    sheet = FigureSheet(width, grid.total + 4, footer)
    for i, metric in enumerate(shown):
        name = next(name for name in metric.names if name in set(data.rows["metric"]))
        own = data.rows[data.rows["metric"] == name]
        setting = pd.to_numeric(own["policy"].str.extract(pattern, expand=False))
        found = row_means(own.assign(setting=setting), ["setting", "policy"]).sort_values("setting")
        axes = grid.panel(sheet, i, 0)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.plot(found["setting"], found["value"], linestyle=look.line, linewidth=1.3, **marker_style(look))
        axes.errorbar(found["setting"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
        if not data.of_stand_in and metric.title in printed:
            axes.plot(printed[metric.title]["x"], printed[metric.title]["value"], **hollow_marker(look))
        axes.set_title(f"ours: {metric.title}", loc="left", fontsize=SMALL, pad=5)
    for i, name in enumerate(alone, start=len(shown)):
        axes, points = grid.panel(sheet, i, 0), printed[name].sort_values("x")
        axes.plot(points["x"], points["value"], color=look.light, linewidth=0.9, alpha=0.7)
        axes.plot(points["x"], points["value"], **hollow_marker(look))
        axes.set_title(f"the paper's {name}", loc="left", fontsize=SMALL, pad=5)
    for axes in sheet.figure.axes:
        axes.set_xlabel(axis)
        axes.grid(axis="y")
    return Sketch(sheet.figure, f"Mean score of {policy} against {axis} with 95 % intervals ({n}).", tuple(notes))


def _printed_settings(data: FigureData, metric: PanelMetric, note: str) -> pd.DataFrame:
    printed = data.printed(metric.tables, metric.names)
    x = pd.to_numeric(printed["note"].str.extract(note, expand=False))
    return pd.DataFrame({"x": x, "value": printed["value"]}).dropna()
