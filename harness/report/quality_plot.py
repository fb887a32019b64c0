"""Figure: quality against budget, one panel per task and metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from harness.report.labels import NLL, budget_unit, metric_title, ordered_policies, parse_budget
from harness.report.looks import Look
from harness.report.svg import CARD, INK, MUTED, inline_svg, matplotlib_style, new_figure

WIDTH, HEIGHT = 400, 272  # CSS pixels: readable unscaled in two columns of a desktop, or one of a phone
LABEL_HEIGHT = 14  # CSS pixels
WIDE_RANGE = 4.0  # a perplexity panel whose values span more than this factor is logarithmic


def quality_figure(panel: pd.DataFrame, looks: Mapping[str, Look], name: str) -> Markup | None:
    """Value against budget of one panel of the summary; None where there is no budget to plot against."""
    policies = panel[~panel["dense"]]
    if policies.empty:
        return None
    x, axis_label = _positions(policies)
    with matplotlib_style():
        drawn = new_figure(WIDTH, HEIGHT)
        axes = drawn.add_axes((0.135, 0.17, 0.845, 0.8))
        logarithmic = _scale_x(axes, policies, x)
        _draw_dense_band(axes, panel[panel["dense"]])
        references = ordered_policies(policies.loc[policies["reference"], "label"])
        ends = {}
        for label in references:
            own = policies[policies["label"] == label].assign(x=x).sort_values("x")
            ends[label] = _draw_baseline(axes, own, looks[label])
        labels = ordered_policies(policies.loc[~policies["reference"], "label"])
        for i, label in enumerate(labels):
            own = policies[policies["label"] == label].assign(x=x).sort_values("x")
            shifted = _shifted_x(own["x"].to_numpy(float), i, len(labels), x, logarithmic)
            _draw_series(axes, own, shifted, looks[label])
        _scale_y(axes, panel)
        _name_baselines(axes, ends)
        axes.set_xlabel(axis_label)
        axes.grid(axis="y")
    metric = metric_title(str(panel["metric"].iloc[0]))
    text = f"{metric} of {len(labels)} policies against budget; all numbers are in the summary table"
    return inline_svg(drawn, name, text, looks.values())


def swatch(label: str, look: Look, name: str) -> Markup:
    """The key to one policy: a piece of its line with its marker."""
    with matplotlib_style():
        drawn = new_figure(30, 14)
        axes = drawn.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set(xlim=(0, 30), ylim=(0, 14))
        axes.plot([2, 28], [7, 7], color=look.light, linestyle=look.line, linewidth=1.6)
        axes.plot([15], [7], **_marker(look))
    return inline_svg(drawn, name, f"key of {label}", [look])


def _marker(look: Look) -> dict[str, Any]:
    inside = {"none": CARD, "bottom": look.light, "full": look.light}[look.filling]
    return {
        "marker": look.marker,
        "markersize": 9 if look.marker == "*" else 6.5,
        "fillstyle": "bottom" if look.filling == "bottom" else "full",
        "markerfacecolor": inside,
        "markerfacecoloralt": CARD,
        "markeredgecolor": look.light,
        "color": look.light,
        "linestyle": "none",
    }


def _positions(policies: pd.DataFrame) -> tuple[pd.Series, str]:
    """x per line of the summary: the budget as a share or in slots, or the granted slots where budgets mix both."""
    budgets = policies["budget"].map(parse_budget)
    amounts = budgets.map(lambda budget: budget.amount).astype(float)
    unit = budget_unit(policies["budget"])
    if unit:
        return amounts, f"budget ({unit})"
    return policies["slots_requested"].astype(float), "budget (mean slots granted per layer and KV head)"


def _scale_x(axes: Axes, policies: pd.DataFrame, x: pd.Series) -> bool:
    """Ticks at the budgets that were run; logarithmic where possible, because budgets usually double."""
    ticks = np.unique(x.to_numpy(float))
    logarithmic = bool(ticks[0] > 0)
    if logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_xlim(ticks[0] / 2**0.5, ticks[-1] * 2**0.5)
    else:
        axes.set_xlim(ticks[0] - 1, ticks[-1] + 1)
    unit = "%" if policies["budget"].map(lambda text: parse_budget(text).is_share).all() else ""
    axes.xaxis.set_major_locator(FixedLocator(list(_ticks_apart(ticks, logarithmic))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}{unit}"))
    axes.xaxis.set_minor_locator(NullLocator())
    return logarithmic


def _ticks_apart(ticks: np.ndarray, logarithmic: bool) -> list[float]:
    """The ticks that are far enough apart for their labels (a tenth of the axis)."""
    places = np.log(ticks) if logarithmic else ticks
    kept: list[int] = []
    for i, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= 0.09 * (places[-1] - places[0]):
            kept.append(i)
    return [float(ticks[i]) for i in kept]


def _shifted_x(own: np.ndarray, i: int, count: int, x: pd.Series, logarithmic: bool) -> np.ndarray:
    """Points shifted sideways by a fraction of the smallest gap, so that bars of different policies do not overlap."""
    ticks = np.unique(x.to_numpy(float))
    places = np.log(ticks) if logarithmic else ticks
    gap = float(np.min(np.diff(places))) if len(ticks) > 1 else (np.log(2.0) if logarithmic else 2.0)
    room = min(0.4, 0.05 * count) if len(ticks) > 1 else 0.8
    offset = 0.0 if count == 1 else (i / (count - 1) - 0.5) * gap * room
    return own * np.exp(offset) if logarithmic else own + offset


def _draw_dense_band(axes: Axes, dense: pd.DataFrame) -> None:
    for line in dense.to_dict("records"):
        if np.isfinite(line["low"]):
            axes.axhspan(line["low"], line["high"], color=INK, alpha=0.09, linewidth=0)
        axes.axhline(line["value"], color=INK, linewidth=1, linestyle=(0, (6, 3)))
        axes.annotate(
            "dense", (0, line["value"]), xycoords=("axes fraction", "data"), xytext=(4, 3),
            textcoords="offset points", ha="left", va="bottom", fontsize=10,
        )  # fmt: skip


def _draw_baseline(axes: Axes, own: pd.DataFrame, look: Look) -> float:
    """A line without points or bars, across the panel where there is one budget only. Returns its last value."""
    x, value = own["x"].to_numpy(float), own["value"].to_numpy(float)
    if len(x) == 1:
        x, value = np.array(axes.get_xlim()), value.repeat(2)
    axes.plot(x, value, color=look.light, linestyle=look.line, linewidth=1.6)
    return float(value[-1])


def _name_baselines(axes: Axes, ends: Mapping[str, float]) -> None:
    """Each name above the end of its line; where two would overlap, the lower one goes below."""
    above = math.inf
    for label, value in sorted(ends.items(), key=lambda end: end[1], reverse=True):
        height = float(axes.transData.transform((1, value))[1])
        below, above = above - height < LABEL_HEIGHT, height
        axes.annotate(
            label, (1, value), xycoords=("axes fraction", "data"), xytext=(0, -3 if below else 3),
            textcoords="offset points", ha="right", va="top" if below else "bottom", fontsize=10, color=MUTED,
        )  # fmt: skip


def _draw_series(axes: Axes, own: pd.DataFrame, x: np.ndarray, look: Look) -> None:
    value = own["value"].to_numpy(float)
    bars = np.abs(np.vstack([value - own["low"].to_numpy(float), own["high"].to_numpy(float) - value]))
    axes.plot(x, value, color=look.light, linestyle=look.line, linewidth=1.4, alpha=0.75)
    axes.errorbar(x, value, yerr=bars, fmt="none", ecolor=look.light, elinewidth=1.2, capsize=2.5)
    axes.plot(x, value, **_marker(look))


def _scale_y(axes: Axes, panel: pd.DataFrame) -> None:
    metric = str(panel["metric"].iloc[0])
    ends = panel[["value", "low", "high"]].to_numpy(float)
    ends = ends[np.isfinite(ends)]
    if metric == NLL:
        axes.set_ylabel("perplexity (lower is better)")
        if ends.max() / ends.min() > WIDE_RANGE:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    elif ends.min() >= 0 and ends.max() <= 1:
        axes.set_ylabel(f"{metric_title(metric)} (mean, 0 to 1)")
        axes.set_ylim(-0.03, 1.06)
        axes.yaxis.set_major_locator(FixedLocator([0, 0.2, 0.4, 0.6, 0.8, 1]))
    else:
        axes.set_ylabel(f"{metric_title(metric)} (mean)")
