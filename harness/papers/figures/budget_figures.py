"""Means with 95 % intervals, for everything that a figure shows of several samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.analysis.statistics import mean_interval, perplexity_interval
from harness.papers.figures.canvas import (
    INK,
    PUBLISHED,
    FigureSheet,
    NotDrawnError,
    Sketch,
    distinct,
    hollow,
    key_of,
    legend_height,
    marker,
)
from harness.papers.figures.figure_data import FigureData, figure_cells
from harness.report.labels import NLL, Look, is_reference, look_of, metric_title, ordered_policies, parse_budget


def estimates(rows: pd.DataFrame, by: Sequence[str], value: str = "value") -> pd.DataFrame:
    """One line per group of result rows: ``value``, ``low``, ``high`` (95 %, over documents), ``n`` samples.

    ``value`` names the column that is averaged; of the metric ``nll`` it is the perplexity.
    """
    lines = []
    for key, part in rows.groupby(list(by), sort=False, dropna=False):
        numbers, clusters = part[value].to_numpy(float), part["cluster"].to_numpy()
        weights = part["weight"].to_numpy(float)
        if value == "value" and set(part["metric"]) == {NLL}:
            found = perplexity_interval(numbers, weights, clusters)
        else:
            found = mean_interval(numbers, clusters, weights if value == "value" else None)
        lines.append((*key, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=[*by, "value", "low", "high", "n"])


def over_samples(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """The same of a diagnostic: the mean of each sample first, since heads and tokens of one sample are not
    independent, then mean and interval over samples (NaN for one)."""
    own = frame.groupby([*by, "sample_id"], sort=False)[value].mean().reset_index()
    lines = []
    for key, part in own.groupby(list(by), sort=False):
        found = mean_interval(part[value].to_numpy(float), part["sample_id"].to_numpy())
        lines.append((*key, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=[*by, "value", "low", "high", "n"])


def count(numbers: Sequence[int] | pd.Series) -> str:
    """``n = 10`` or ``n = 2 to 10``, of the samples behind a figure's means."""
    low, high = int(min(numbers)), int(max(numbers))
    return f"n = {low}" if low == high else f"n = {low} to {high}"


def spread(found: pd.DataFrame) -> str:
    """How wide the intervals are, in words, for maps that have no room for bars."""
    halves = ((found["high"] - found["low"]) / 2).dropna()
    if halves.empty:
        return "one sample, no interval"
    return f"95 % intervals up to ±{halves.max():.3g}"


# Score against budget, one panel for each task and metric: HashEvict Figures 2 to 6, BUZZ Figures 5 and 8a.


PANEL = 178  # CSS pixels


@dataclass(frozen=True)
class Metric:
    """One panel: a metric of the paper, under what names it stands in rows, and the tables that print it."""

    title: str
    names: tuple[str, ...] = ()  # none: the task's own first one
    tables: tuple[str, ...] = ()


def draw_budget_curves(material: FigureData, panels: Sequence[Metric]) -> Sketch:
    """The paper's panels that rows have; where they have none of these metrics, the task's own."""
    material.scored()
    found, notes = [], []
    for place, task in enumerate(material.wanted.values("task")):
        own = material.rows[material.rows["task"] == task]
        drawn = [each for each in panels if _metric_of(own, each)]
        lacking = [each.title for each in panels if each not in drawn]
        if own.empty:
            notes.append(f"{task}: no rows.")
        elif not drawn:
            first = str(own["metric"].iloc[0])
            drawn = [Metric(metric_title(first), (first,))]
            notes.append(f"{task} has no {', '.join(lacking)}; its own score, {metric_title(first)}, stands in.")
        elif lacking:
            notes.append(f"Rows of {task} have no {', '.join(lacking)}: no panel.")
        found += [(place, task, own, each) for each in drawn if not own.empty]
    if not found:
        raise NotDrawnError("None of its tasks has rows.")
    policies = ordered_policies({line_of(name) for name in material.rows["policy"]})
    style = distinct(policies)
    beside = any(not _printed(material, place, each).empty for place, _, _, each in found)
    handles = [*(key_of(label, style[label]) for label in policies), *_reference_keys(material), *_printed_key(beside)]
    top = legend_height(len(handles), 2) + 6
    several = len(material.wanted.values("task")) > 1
    sheet = FigureSheet(top + len(found) * (PANEL + 46), _footer(material, beside))
    sheet.legend(4, handles, 2)
    for number, (place, task, own, metric) in enumerate(found):
        axes = sheet.panel(52, top + 20 + number * (PANEL + 46), 336, PANEL - 20)
        axes.set_title(f"{task}: {metric.title}" if several else metric.title, loc="left", pad=5)
        name = _metric_of(own, metric)
        _reference_lines(axes, material, task, name)
        _printed_points(axes, _printed(material, place, metric), style)
        _curves(axes, own[own["metric"] == name], style)
        _dress(axes, own)
    says = f"Mean score against cache budget with 95 % intervals ({_samples(material)})."
    return Sketch(sheet.figure, says, tuple(notes))


def line_of(policy: str) -> str:
    """The line that a policy is a point of: FastGen has no budget, its recovery fraction stands on the axis."""
    return "fastgen (at its recovery)" if policy.startswith("fastgen/") else policy


def place_of(policy: str, budget: str) -> float:
    """x: percent, or slots."""
    found = re.fullmatch(r"fastgen/(\d+)", policy)
    return float(found[1]) if found else parse_budget(budget).amount


def _metric_of(rows: pd.DataFrame, metric: Metric) -> str:
    """The name under which the metric stands in these rows; empty where they do not have it."""
    there = list(rows["metric"].unique())
    if not metric.names:
        return str(there[0]) if there else ""
    return next((name for name in metric.names if name in there), "")


def _curves(axes: Axes, rows: pd.DataFrame, style: dict[str, Look]) -> None:
    found = estimates(rows, ["policy", "budget"])
    found["line"] = found["policy"].map(line_of)
    found["x"] = [place_of(*key) for key in zip(found["policy"], found["budget"], strict=True)]
    labels = ordered_policies(found["line"])
    room = 0.012 * max(1.0, found["x"].max() - found["x"].min())
    for number, label in enumerate(labels):
        own = found[found["line"] == label].sort_values("x")
        x = own["x"] + room * (number - (len(labels) - 1) / 2)
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        look = style[label]
        axes.plot(x, own["value"], linestyle=look.line, linewidth=1.3, **marker(look, 5))
        axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=look.light, elinewidth=0.9, capsize=2)


def _reference_lines(axes: Axes, material: FigureData, task: str, metric: str) -> None:
    """Dense as a dashed line across, with its interval; random and the oracle as grey lines of their own."""
    rows = material.references
    own = rows[(rows["task"] == task) & (rows["metric"] == metric)]
    if own.empty:
        return
    own = own[own["prompt"] == own["prompt"].value_counts().idxmax()]
    dense = own[own["policy"] == "dense"]
    for line in estimates(dense, ["policy", "cell_id"]).to_dict("records")[:1]:
        axes.axhspan(line["low"], line["high"], color=INK, alpha=0.07, linewidth=0)
        axes.axhline(line["value"], color=INK, linewidth=1, linestyle=(0, (6, 3)))
    for policy, part in own[own["policy"] != "dense"].groupby("policy"):
        found = estimates(part, ["policy", "budget"])
        found["x"] = [parse_budget(text).amount for text in found["budget"]]
        found = found.sort_values("x")
        look = look_of(str(policy))
        axes.plot(found["x"], found["value"], color=look.light, linestyle=look.line, linewidth=1)


def _reference_keys(material: FigureData) -> list[Line2D]:
    there = set(material.references["policy"])
    dense = Line2D([], [], color=INK, linewidth=1, linestyle=(0, (6, 3)), label="dense")
    keys = [dense] if "dense" in there else []
    return keys + [
        Line2D([], [], color=look_of(name).light, linestyle=look_of(name).line, linewidth=1, label=name)
        for name in sorted(filter(is_reference, there))
    ]


def _printed_key(beside: bool) -> list[Line2D]:
    return [Line2D([], [], label=PUBLISHED, **hollow(look_of("dense")))] if beside else []


def _printed(material: FigureData, place: int, metric: Metric) -> pd.DataFrame:
    """The paper's own points of this panel: ``policy``, ``x``, ``value`` on our scale. Of the paper's first model."""
    printed = material.printed(metric.tables, metric.names)
    tasks = figure_cells(material.paper, material.item, "full").values("task")
    printed = printed[printed["our_task"] == tasks[min(place, len(tasks) - 1)]]
    printed = printed[printed["model"] == (printed["model"].iloc[0] if len(printed) else "")]
    recovery = printed["note"].str.extract(r"attn_recovery_frac=(\d+)%", expand=False)
    lines = printed.assign(
        line=printed["policy"].where(recovery.isna(), "fastgen (at its recovery)"),
        x=pd.to_numeric(recovery.fillna(printed["budget"]), errors="coerce"),
    )
    points: pd.DataFrame = lines[lines["x"].notna() & ~lines["policy"].isin(["dense", ""])][["line", "x", "value"]]
    return points


def _printed_points(axes: Axes, printed: pd.DataFrame, style: dict[str, Look]) -> None:
    for label, part in printed.groupby("line"):
        if label in style:
            axes.plot(part["x"], part["value"], **hollow(style[str(label)], 5))


def _dress(axes: Axes, rows: pd.DataFrame) -> None:
    shares = all(parse_budget(text).is_share for text in rows["budget"].unique())
    axes.set_xlabel("cache budget (% of tokens)" if shares else "cache budget (slots per layer and head)")
    axes.set_ylabel("mean score")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(axis="y")


def _samples(material: FigureData) -> str:
    return count(material.scored().groupby("cell_id")["sample_id"].nunique())


def _footer(material: FigureData, beside: bool) -> str:
    printed = "; hollow: printed in the paper" + ", for its own model and data" * material.mini if beside else ""
    return f"{_samples(material)} samples a point; bars and the dense band: 95 % intervals over documents{printed}"


# Score against a setting of one policy: BUZZ Figure 4, ROUGE against T/w.


SETTINGS_PANEL = 150  # CSS pixels


def draw_settings_curve(
    material: FigureData, panels: Sequence[Metric], policy: str, pattern: str, note: str, axis: str
) -> Sketch:
    """``pattern`` finds the setting in a policy's name, ``note`` in the remark of a printed number."""
    rows = material.scored()
    setting = pd.to_numeric(rows["policy"].str.extract(pattern, expand=False))
    there = [each for each in panels if set(each.names) & set(material.rows["metric"])]
    lacking = [each.title for each in panels if each not in there]
    notes = [f"The stored rows have no {', '.join(lacking)}: no panel."] if lacking and there else []
    shown = there or [Metric(str(rows["metric"].iloc[0]))]
    look = look_of(policy)
    n = count(rows.groupby("policy")["sample_id"].nunique())
    beside = [_printed_settings(material, each, note) for each in shown]
    footer = f"{policy}; {n} samples a point, bars: 95 % intervals over documents" + (
        f"; hollow: printed in the paper{', for its own model and data' * material.mini}"
        if any(len(each) for each in beside)
        else ""
    )
    sheet = FigureSheet(len(shown) * (SETTINGS_PANEL + 44) + 4, footer)
    for place, metric in enumerate(shown):
        name = next((name for name in metric.names if name in set(material.rows["metric"])), rows["metric"].iloc[0])
        own = material.rows[material.rows["metric"] == name]
        found = estimates(own.assign(setting=setting.reindex(own.index)), ["setting", "policy"]).sort_values("setting")
        axes = sheet.panel(52, 22 + place * (SETTINGS_PANEL + 44), 336, SETTINGS_PANEL - 16)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.plot(found["setting"], found["value"], linestyle=look.line, linewidth=1.3, **marker(look))
        axes.errorbar(found["setting"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
        axes.plot(beside[place]["x"], beside[place]["value"], **hollow(look))
        axes.set_title(metric.title, loc="left", pad=5)
        axes.set_xticks(sorted(found["setting"].unique()))
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.set_ylabel("mean score")
        axes.set_xlabel(axis)
        axes.grid(axis="y")
    return Sketch(sheet.figure, f"Mean score of {policy} against {axis} with 95 % intervals ({n}).", tuple(notes))


def _printed_settings(material: FigureData, metric: Metric, note: str) -> pd.DataFrame:
    printed = material.printed(metric.tables, metric.names)
    x = pd.to_numeric(printed["note"].str.extract(note, expand=False))
    return pd.DataFrame({"x": x, "value": printed["value"]}).dropna()
