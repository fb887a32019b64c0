"""Score against budget, and as a share of dense beside the paper's: HashEvict Figures 2 to 6, BUZZ Figures 5 and 8a."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.papers.figures.canvas import (
    INK,
    SMALL,
    FigureSheet,
    NotDrawnError,
    Sketch,
    distinct_looks,
    hollow_marker,
    legend_entry,
    legend_height,
    marker_style,
)
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import count_text, row_means
from harness.papers.figures.panel_grid import PanelGrid
from harness.papers.figures.printed_points import PrintedPoints, line_label, printed_points, x_of
from harness.report.labels import metric_title, ordered_policies, parse_budget
from harness.report.looks import Look, is_baseline, look_of


@dataclass(frozen=True)
class PanelMetric:
    """A metric of the paper: its names in our rows, and the tables that print it."""

    title: str
    names: tuple[str, ...] = ()  # empty: the task's first metric
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class BudgetPanel:
    """One panel. ``ours``, ``printed``: what it shows, already divided by dense where ``of_dense``.

    ``ours``: ``policy``, ``budget``, ``value``, ``low``, ``high``. ``scored``: the task and the metric of ``ours``.
    """

    title: str
    ours: pd.DataFrame
    printed: pd.DataFrame
    of_dense: bool = False
    scored: tuple[str, str] = ("", "")


def draw_budget_curves(data: FigureData, width: float, panels: Sequence[PanelMetric]) -> Sketch:
    """The paper's panels whose metrics the rows have; if they have none of them, the task's own metric.

    At the paper's own setting its points are drawn among ours. Those of another model never share an axis with our
    raw scores: both are then shares of their own dense, or the paper's points have a panel for themselves.
    """
    data.scored()
    data = data.with_text_metrics([name for each in panels for name in each.names[:1]])
    found: list[BudgetPanel] = []
    notes: list[str] = []
    for i, task in enumerate(data.wanted.values("task")):
        drawn, said = _metrics_of(data, task, panels)
        notes += said
        found += [panel for each in drawn for panel in _panels(data, i, task, each)]
        if data.of_stand_in and drawn:
            lacking = [each for each in panels if each not in drawn]
            found += [panel for each in lacking if (panel := _paper_alone(printed_points(data, i, each), each.title))]
    if not any(len(panel.ours) for panel in found):
        raise NotDrawnError("None of its tasks has rows.")
    lines = {line_label(name) for name in data.rows["policy"]}
    lines |= {str(name) for panel in found for name in panel.printed["line"]}
    policies = ordered_policies(lines)
    style = distinct_looks(policies)
    has_printed = any(len(panel.printed) for panel in found)
    handles = [*(legend_entry(label, style[label]) for label in policies), *_baseline_keys(data)]
    if has_printed:
        handles.append(Line2D([], [], label="printed in the paper", **hollow_marker(look_of("dense"))))
    top = legend_height(handles, width) + 6
    grid = PanelGrid.fit(width, len(found), 236, 180, widest=640, above=26)
    sheet = FigureSheet(width, top + grid.total, _footer(data, found))
    sheet.legend(4, handles)
    for i, panel in enumerate(found):
        axes = grid.panel(sheet, i, top)
        axes.set_title(panel.title, loc="left", fontsize=SMALL, pad=5)
        if not panel.of_dense and len(panel.ours):
            _draw_baselines(axes, data, *panel.scored)
        if panel.of_dense:
            axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (6, 3)))
        _draw_printed(axes, panel.printed, style, joined=not len(panel.ours))
        _draw_curves(axes, panel.ours, style)
        _set_axes(axes, data.rows, from_zero=bool(len(panel.ours)))
    says = f"Mean score against cache budget with 95 % intervals ({_sample_text(data)})."
    return Sketch(sheet.figure, says, tuple(notes))


def _metrics_of(data: FigureData, task: str, panels: Sequence[PanelMetric]) -> tuple[list[PanelMetric], list[str]]:
    """What of a task is drawn, and what is said of the rest."""
    own = data.rows[data.rows["task"] == task]
    if own.empty:
        return [], [f"{task}: no rows."]
    drawn = [each for each in panels if metric_in_rows(own, each)]
    lacking = ", ".join(each.title for each in panels if each not in drawn)
    if drawn:
        return drawn, [f"Rows of {task} have no {lacking}."] if lacking else []
    first = str(own["metric"].iloc[0])
    return [PanelMetric(metric_title(first), (first,))], [
        f"{task} has no {lacking}; its own score, {metric_title(first)}, stands in."
    ]


def _panels(data: FigureData, i: int, task: str, metric: PanelMetric) -> Iterator[BudgetPanel]:
    rows = data.rows[data.rows["task"] == task]
    name = metric_in_rows(rows, metric)
    ours = row_means(rows[rows["metric"] == name], ["policy", "budget"])
    printed = printed_points(data, i, metric)
    title = f"{task.split('/')[-1]}: {metric.title}"
    if not data.of_stand_in:
        yield BudgetPanel(title, ours, printed.points, scored=(task, name))
        return
    yield BudgetPanel(title, ours, printed.points.iloc[:0], scored=(task, name))
    dense = _dense_mean(data, task, name)
    if dense > 0 and printed.dense:
        yield BudgetPanel(f"{title}, share of dense", _divided(ours, dense), printed.shares, of_dense=True)
        return
    if dense > 0:
        yield BudgetPanel(f"{title}, share of dense", _divided(ours, dense), printed.points.iloc[:0], of_dense=True)
    if alone := _paper_alone(printed, metric.title):
        yield alone


def _paper_alone(printed: PrintedPoints, title: str) -> BudgetPanel | None:
    """The paper's points in a panel of their own; none where it prints none."""
    if printed.points.empty:
        return None
    nothing = pd.DataFrame(columns=["policy", "budget", "value", "low", "high"])
    if printed.dense:
        return BudgetPanel(f"the paper's {title}, share of dense", nothing, printed.shares, of_dense=True)
    return BudgetPanel(f"the paper's {title} (no dense printed)", nothing, printed.points)


def _divided(ours: pd.DataFrame, dense: float) -> pd.DataFrame:
    return ours.assign(**{name: ours[name] / dense for name in ("value", "low", "high")})


def _dense_mean(data: FigureData, task: str, metric: str) -> float:
    """Dense's mean score; 0 where it has none, and then there is no share of it."""
    rows = data.baselines
    own = rows[(rows["policy"] == "dense") & (rows["task"] == task) & (rows["metric"] == metric)]
    return float(row_means(own, ["policy"])["value"].iloc[0]) if len(own) else 0.0


def metric_in_rows(rows: pd.DataFrame, metric: PanelMetric) -> str:
    """The metric's name in these rows; empty if they do not have it."""
    there = list(rows["metric"].unique())
    if not metric.names:
        return str(there[0]) if there else ""
    return next((name for name in metric.names if name in there), "")


def _draw_curves(axes: Axes, found: pd.DataFrame, style: Mapping[str, Look]) -> None:
    if found.empty:
        return
    found = found.assign(line=found["policy"].map(line_label))
    found["x"] = [x_of(*key) for key in zip(found["policy"], found["budget"], strict=True)]
    labels = ordered_policies(found["line"])
    room = 0.012 * max(1.0, found["x"].max() - found["x"].min())
    for number, label in enumerate(labels):
        own = found[found["line"] == label].sort_values("x")
        x = own["x"] + room * (number - (len(labels) - 1) / 2)
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        look = style[label]
        axes.plot(x, own["value"], linestyle=look.line, linewidth=1.3, **marker_style(look, 5))
        axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=look.light, elinewidth=0.9, capsize=2)


def _draw_baselines(axes: Axes, data: FigureData, task: str, metric: str) -> None:
    """Dense as a dashed horizontal line with its interval; random and the oracle as grey lines."""
    rows = data.baselines
    own = rows[(rows["task"] == task) & (rows["metric"] == metric)]
    if own.empty:
        return
    own = own[own["prompt"] == own["prompt"].value_counts().idxmax()]
    dense = own[own["policy"] == "dense"]
    for line in row_means(dense, ["policy", "cell_id"]).to_dict("records")[:1]:
        axes.axhspan(line["low"], line["high"], color=INK, alpha=0.07, linewidth=0)
        axes.axhline(line["value"], color=INK, linewidth=1, linestyle=(0, (6, 3)))
    for policy, part in own[own["policy"] != "dense"].groupby("policy"):
        found = row_means(part, ["policy", "budget"])
        found["x"] = [parse_budget(text).amount for text in found["budget"]]
        found = found.sort_values("x")
        look = look_of(str(policy))
        axes.plot(found["x"], found["value"], color=look.light, linestyle=look.line, linewidth=1)


def _baseline_keys(data: FigureData) -> list[Line2D]:
    there = set(data.baselines["policy"])
    dense = Line2D([], [], color=INK, linewidth=1, linestyle=(0, (6, 3)), label="dense")
    keys = [dense] if "dense" in there else []
    return keys + [
        Line2D([], [], color=look_of(name).light, linestyle=look_of(name).line, linewidth=1, label=name)
        for name in sorted(filter(is_baseline, there))
    ]


def _draw_printed(axes: Axes, printed: pd.DataFrame, style: Mapping[str, Look], joined: bool) -> None:
    for label, part in printed.groupby("line"):
        look = style[str(label)]
        own = part.sort_values("x")
        if joined:
            axes.plot(own["x"], own["value"], color=look.light, linestyle=look.line, linewidth=0.9, alpha=0.7)
        axes.plot(own["x"], own["value"], **hollow_marker(look, 6))


def _set_axes(axes: Axes, rows: pd.DataFrame, from_zero: bool) -> None:
    shares = all(parse_budget(text).is_share for text in rows["budget"].unique())
    axes.set_xlabel("cache budget (% of tokens)" if shares else "cache budget (slots)")
    if from_zero:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(axis="y")


def _sample_text(data: FigureData) -> str:
    return count_text(data.scored().groupby("cell_id")["sample_id"].nunique())


def _footer(data: FigureData, found: Sequence[BudgetPanel]) -> str:
    words = f"{_sample_text(data)} samples a point; bars and the dense band: 95 % intervals over documents"
    if any(panel.of_dense and len(panel.ours) for panel in found):
        words += ". Shares: a method's mean and interval over dense's mean"
    if data.of_stand_in and any(len(panel.printed) for panel in found):
        words += ". Printed points are of the paper's own model and data, over its own dense where it prints one; "
        words += "panels of the paper alone need not begin at 0"
    return words
