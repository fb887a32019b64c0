"""Score against budget (HashEvict Figures 2 to 6, BUZZ Figures 5 and 8a) or a policy's setting (BUZZ Figure 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.papers.figures.canvas import (
    INK,
    PUBLISHED,
    FigureSheet,
    NotDrawnError,
    Sketch,
    distinct_looks,
    hollow_marker,
    legend_entry,
    legend_height,
    marker_style,
)
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import count_text, row_means
from harness.report.labels import metric_title, ordered_policies, parse_budget
from harness.report.looks import Look, is_baseline, look_of

PANEL = 178  # CSS pixels


@dataclass(frozen=True)
class PanelMetric:
    """One panel: a metric of the paper, its names in our rows, and the tables that print it."""

    title: str
    names: tuple[str, ...] = ()  # empty: the task's first metric
    tables: tuple[str, ...] = ()


def draw_budget_curves(data: FigureData, panels: Sequence[PanelMetric]) -> Sketch:
    """The paper's panels whose metrics the rows have; if they have none of them, the task's own metric."""
    data.scored()
    found, notes = [], []
    for i, task in enumerate(data.wanted.values("task")):
        own = data.rows[data.rows["task"] == task]
        drawn = [each for each in panels if _metric_in_rows(own, each)]
        lacking = [each.title for each in panels if each not in drawn]
        if own.empty:
            notes.append(f"{task}: no rows.")
        elif not drawn:
            first = str(own["metric"].iloc[0])
            drawn = [PanelMetric(metric_title(first), (first,))]
            notes.append(f"{task} has no {', '.join(lacking)}; its own score, {metric_title(first)}, stands in.")
        elif lacking:
            notes.append(f"Rows of {task} have no {', '.join(lacking)}: no panel.")
        found += [(i, task, own, each) for each in drawn if not own.empty]
    if not found:
        raise NotDrawnError("None of its tasks has rows.")
    policies = ordered_policies({line_label(name) for name in data.rows["policy"]})
    style = distinct_looks(policies)
    has_printed = any(not _printed_numbers(data, i, each).empty for i, _, _, each in found)
    handles = [
        *(legend_entry(label, style[label]) for label in policies),
        *_baseline_keys(data),
        *_printed_key(has_printed),
    ]
    top = legend_height(len(handles), 2) + 6
    several = len(data.wanted.values("task")) > 1
    sheet = FigureSheet(top + len(found) * (PANEL + 46), _footer(data, has_printed))
    sheet.legend(4, handles, 2)
    for number, (i, task, own, metric) in enumerate(found):
        axes = sheet.panel(52, top + 20 + number * (PANEL + 46), 336, PANEL - 20)
        axes.set_title(f"{task}: {metric.title}" if several else metric.title, loc="left", pad=5)
        name = _metric_in_rows(own, metric)
        _draw_baselines(axes, data, task, name)
        _draw_printed(axes, _printed_numbers(data, i, metric), style)
        _draw_curves(axes, own[own["metric"] == name], style)
        _set_axes(axes, own)
    says = f"Mean score against cache budget with 95 % intervals ({_sample_text(data)})."
    return Sketch(sheet.figure, says, tuple(notes))


def line_label(policy: str) -> str:
    """The line that a policy is a point of: FastGen has no budget, its recovery fraction is its x."""
    return "fastgen (at its recovery)" if policy.startswith("fastgen/") else policy


def budget_position(policy: str, budget: str) -> float:
    """The x coordinate: percent, or slots."""
    found = re.fullmatch(r"fastgen/(\d+)", policy)
    return float(found[1]) if found else parse_budget(budget).amount


def _metric_in_rows(rows: pd.DataFrame, metric: PanelMetric) -> str:
    """The metric's name in these rows; empty if they do not have it."""
    there = list(rows["metric"].unique())
    if not metric.names:
        return str(there[0]) if there else ""
    return next((name for name in metric.names if name in there), "")


def _draw_curves(axes: Axes, rows: pd.DataFrame, style: dict[str, Look]) -> None:
    found = row_means(rows, ["policy", "budget"])
    found["line"] = found["policy"].map(line_label)
    found["x"] = [budget_position(*key) for key in zip(found["policy"], found["budget"], strict=True)]
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


def _printed_key(has_printed: bool) -> list[Line2D]:
    return [Line2D([], [], label=PUBLISHED, **hollow_marker(look_of("dense")))] if has_printed else []


def _printed_numbers(data: FigureData, i: int, metric: PanelMetric) -> pd.DataFrame:
    """The paper's own points of this panel: ``policy``, ``x``, ``value`` on our scale. Of the paper's first model."""
    printed = data.printed(metric.tables, metric.names)
    tasks = figure_cells(data.paper, data.item, "full").values("task")
    printed = printed[printed["our_task"] == tasks[min(i, len(tasks) - 1)]]
    printed = printed[printed["model"] == (printed["model"].iloc[0] if len(printed) else "")]
    recovery = printed["note"].str.extract(r"attn_recovery_frac=(\d+)%", expand=False)
    lines = printed.assign(
        line=printed["policy"].where(recovery.isna(), "fastgen (at its recovery)"),
        x=pd.to_numeric(recovery.fillna(printed["budget"]), errors="coerce"),
    )
    points: pd.DataFrame = lines[lines["x"].notna() & ~lines["policy"].isin(["dense", ""])][["line", "x", "value"]]
    return points


def _draw_printed(axes: Axes, printed: pd.DataFrame, style: dict[str, Look]) -> None:
    for label, part in printed.groupby("line"):
        if label in style:
            axes.plot(part["x"], part["value"], **hollow_marker(style[str(label)], 5))


def _set_axes(axes: Axes, rows: pd.DataFrame) -> None:
    shares = all(parse_budget(text).is_share for text in rows["budget"].unique())
    axes.set_xlabel("cache budget (% of tokens)" if shares else "cache budget (slots per layer and head)")
    axes.set_ylabel("mean score")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(axis="y")


def _sample_text(data: FigureData) -> str:
    return count_text(data.scored().groupby("cell_id")["sample_id"].nunique())


def _footer(data: FigureData, has_printed: bool) -> str:
    printed = "; hollow: printed in the paper" + ", for its own model and data" * data.mini if has_printed else ""
    return f"{_sample_text(data)} samples a point; bars and the dense band: 95 % intervals over documents{printed}"


# Score against a setting of one policy.


SETTINGS_PANEL = 150  # CSS pixels


def draw_settings_curve(
    data: FigureData, panels: Sequence[PanelMetric], policy: str, pattern: str, note: str, axis: str
) -> Sketch:
    """``pattern`` finds the setting in a policy's name, ``note`` in the remark of a printed number."""
    rows = data.scored()
    setting = pd.to_numeric(rows["policy"].str.extract(pattern, expand=False))
    there = [each for each in panels if set(each.names) & set(data.rows["metric"])]
    lacking = [each.title for each in panels if each not in there]
    notes = [f"The stored rows have no {', '.join(lacking)}: no panel."] if lacking and there else []
    shown = there or [PanelMetric(str(rows["metric"].iloc[0]))]
    look = look_of(policy)
    n = count_text(rows.groupby("policy")["sample_id"].nunique())
    printed = [_printed_settings(data, each, note) for each in shown]
    footer = f"{policy}; {n} samples a point, bars: 95 % intervals over documents" + (
        f"; hollow: printed in the paper{', for its own model and data' * data.mini}"
        if any(len(each) for each in printed)
        else ""
    )
    sheet = FigureSheet(len(shown) * (SETTINGS_PANEL + 44) + 4, footer)
    for i, metric in enumerate(shown):
        name = next((name for name in metric.names if name in set(data.rows["metric"])), rows["metric"].iloc[0])
        own = data.rows[data.rows["metric"] == name]
        found = row_means(own.assign(setting=setting.reindex(own.index)), ["setting", "policy"]).sort_values("setting")
        axes = sheet.panel(52, 22 + i * (SETTINGS_PANEL + 44), 336, SETTINGS_PANEL - 16)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.plot(found["setting"], found["value"], linestyle=look.line, linewidth=1.3, **marker_style(look))
        axes.errorbar(found["setting"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
        axes.plot(printed[i]["x"], printed[i]["value"], **hollow_marker(look))
        axes.set_title(metric.title, loc="left", pad=5)
        axes.set_xticks(sorted(found["setting"].unique()))
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.set_ylabel("mean score")
        axes.set_xlabel(axis)
        axes.grid(axis="y")
    return Sketch(sheet.figure, f"Mean score of {policy} against {axis} with 95 % intervals ({n}).", tuple(notes))


def _printed_settings(data: FigureData, metric: PanelMetric, note: str) -> pd.DataFrame:
    printed = data.printed(metric.tables, metric.names)
    x = pd.to_numeric(printed["note"].str.extract(note, expand=False))
    return pd.DataFrame({"x": x, "value": printed["value"]}).dropna()
