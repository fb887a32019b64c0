"""Bars of policies side by side, in groups: BUZZ Figures 6 (where the answer stands) and 8b (local maxima or not)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.papers.figures.canvas import (
    MUTED,
    SMALL,
    FigureSheet,
    NotDrawnError,
    Sketch,
    legend_entry,
    legend_height,
    marker_style,
)
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import count_text, interval_width_text, row_means
from harness.papers.figures.marked_bars import draw_marked_bars
from harness.papers.figures.matrix_panels import BAR, draw_colour_bar, draw_matrix
from harness.papers.figures.panel_grid import PanelGrid
from harness.papers.text_metrics import has_texts, text_score
from harness.report.labels import metric_title, ordered_budgets, ordered_policies, parse_budget
from harness.report.looks import look_of, looks

HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")  # where two policies share a colour
AVERAGE = "average"
BAR_LEAST = 13  # CSS pixels of a bar, so that its number has room: groups go below each other where there is none


def draw_bars(
    data: FigureData, width: float, group: str, axis: str, metric: tuple[str, ...] = (), averaged: bool = False
) -> Sketch:
    """``group``: the column that makes the groups; ``averaged`` adds one over all of them.

    Where the rows have no such column there is the average alone, and a note.
    """
    rows = data.scored(metric if set(metric) & set(data.rows["metric"]) else ())
    has = group in rows and rows[group].notna().all()
    notes = [] if has else [f"The stored rows do not tell {axis} apart: only the mean over all samples."]
    parts = [rows.assign(group=rows[group].map(str))] if has else []
    if averaged or not has:
        parts.append(rows.assign(group=AVERAGE))
    found = row_means(pd.concat(parts), ["group", "policy"])
    groups = _ordered(list(found["group"].unique()), group)
    policies = ordered_policies(data.policies)
    style, hatches = looks(policies), _hatches(policies)
    dense = data.baselines[(data.baselines["policy"] == "dense") & (data.baselines["metric"] == rows["metric"].iloc[0])]
    line = next(iter(row_means(dense, ["policy", "task"]).to_dict("records")), None)
    keys: list[Any] = [
        Patch(facecolor=style[name].light, edgecolor="white", hatch=hatches[name], label=name) for name in policies
    ]
    if line:
        keys.append(Line2D([], [], color=MUTED, linewidth=1, linestyle=(0, (6, 3)), label=f"dense {line['value']:.2f}"))
    top = legend_height(keys, width) + 6
    n = count_text(found["n"])
    beside = max(1, min(len(groups), int((width - 62) / (BAR_LEAST * (len(policies) + 1)))))
    lines = [groups[i : i + beside] for i in range(0, len(groups), beside)]
    grid = PanelGrid.fit(width, len(lines), width - 63, 190, above=28, below=42)
    sheet = FigureSheet(width, top + grid.total, f"{n} samples a bar; whiskers: 95 % intervals over documents")
    sheet.legend(4, keys)
    bar = 0.84 / len(policies)
    highest = float(np.nanmax([*found["value"], *found["high"], line["value"] if line else 0.0, 1e-9]))
    for i, shown in enumerate(lines):
        axes = grid.panel(sheet, i, top)
        for number, name in enumerate(policies):
            own = found[found["policy"] == name].set_index("group").reindex(shown)
            x = np.arange(len(shown)) + bar * (number - (len(policies) - 1) / 2)
            draw_marked_bars(
                axes, x, own["value"], bar, style[name].light, low=own["low"], high=own["high"], hatch=hatches[name],
                pixels=bar * grid.width / beside,
            )  # fmt: skip
        if line:
            axes.axhline(line["value"], color=MUTED, linewidth=1, linestyle=(0, (6, 3)))
        axes.set_xlim(-0.5, beside - 0.5)
        axes.set_ylim(0, 1.16 * highest)
        axes.set_xticks(range(len(shown)), shown)
        axes.set_xlabel(axis)
        if i == 0:
            title = f"{metric_title(str(rows['metric'].iloc[0]))} (mean)"
            axes.set_title(title, loc="left", fontsize=SMALL, pad=12)
        axes.grid(axis="y")
    says = f"Mean score by {axis} with 95 % intervals ({n})."
    return Sketch(sheet.figure, says, tuple(notes))


def _ordered(groups: list[str], column: str) -> list[str]:
    plain = [name for name in groups if name != AVERAGE]
    ordered = ordered_budgets(plain) if column == "budget" else sorted(plain, key=float)
    return ordered + [name for name in groups if name == AVERAGE]


def _hatches(policies: list[str]) -> dict[str, str]:
    """Nothing is told by colour alone: the second policy of a colour is hatched, the third dotted."""
    seen: dict[str, int] = {}
    out = {}
    for name in policies:
        colour = look_of(name).light
        out[name] = HATCHES[seen.get(colour, 0) % len(HATCHES)]
        seen[colour] = seen.get(colour, 0) + 1
    return out


# Self-BLEU by policy and budget, compared with the full cache: BUZZ Figure 7.


METRIC = "self_bleu"
ROW, NAMES = 30, 92  # CSS pixels of one policy, of the names of the policies


def draw_self_bleu_map(data: FigureData, width: float) -> Sketch:
    """Colour: the distance to dense, as in the paper; the cells hold Self-BLEU itself."""
    measured = METRIC in set(data.rows["metric"])
    if not measured and not has_texts(data.scored()):
        raise NotDrawnError("Self-BLEU is computed from the summaries, whose texts are not in these rows.")
    rows, dense = (_own(each, measured) for each in (data.scored((METRIC,) if measured else ()), _dense(data)))
    notes = [] if measured else ["Self-BLEU is computed from the stored summaries; their task does not score it."]
    found = row_means(rows, ["policy", "budget"])
    policies, budgets = ordered_policies(found["policy"]), ordered_budgets(found["budget"])
    values = found.pivot(index="policy", columns="budget", values="value").reindex(index=policies, columns=budgets)
    full = row_means(dense, ["policy", "task"]) if not dense.empty else pd.DataFrame(columns=["value", "low", "high"])
    reference = float(full["value"].iloc[0]) if len(full) else float("nan")
    distance = (values - reference).abs() if len(full) else values
    largest = float(np.nanmax(distance.to_numpy())) or 1.0
    title = "distance to the full cache" if len(full) else "Self-BLEU (no dense rows)"
    n = count_text(found["n"])
    footer = f"{n} samples a cell, {interval_width_text(found)}; the number is the mean Self-BLEU"
    grid = PanelGrid.fit(width, 1, 180, ROW * len(policies), left=NAMES, above=26, below=46)
    sheet = FigureSheet(width, grid.total + BAR + 6, footer)
    axes = grid.panel(sheet, 0, 0)
    texts = [
        [f"{number:.2f}" if grid.width > 240 else f"{number:.2f}"[1:] for number in line] for line in values.to_numpy()
    ]
    draw_matrix(axes, distance, Normalize(0, largest), texts)
    axes.set_xticks(range(len(budgets)), budgets)
    axes.set_yticks(range(len(policies)), policies)
    axes.set_xlabel("cache budget (% of prompt and generation)", x=0.5 if grid.width > 240 else 0.3)
    if len(full):
        low, high = full["low"].iloc[0], full["high"].iloc[0]
        axes.set_title(f"full cache: {reference:.2f} [{low:.2f}, {high:.2f}]", loc="left", fontsize=SMALL)
    draw_colour_bar(sheet, NAMES, grid.total, min(260.0, width - NAMES - 20), Normalize(0, largest), title)
    return Sketch(sheet.figure, f"Mean Self-BLEU by policy and budget ({n}); darker is nearer to dense.", tuple(notes))


def _dense(data: FigureData) -> pd.DataFrame:
    return data.baselines[data.baselines["policy"] == "dense"]


def _own(rows: pd.DataFrame, measured: bool) -> pd.DataFrame:
    """One row per sample, its value Self-BLEU; that of the stored text where the task has not measured it."""
    if measured or rows.empty:
        return rows[rows["metric"] == METRIC] if measured else rows
    once = rows.drop_duplicates(["cell_id", "sample_id"])
    values = [text_score(METRIC, task, said, "") for task, said in zip(once["task"], once["prediction"], strict=True)]
    return once.assign(metric=METRIC, value=values)


# Score and coverage against the eviction rate, one policy: K-VEC Figure 1.


def draw_coverage_curve(data: FigureData, width: float) -> Sketch:
    """Both from the same rows: the score, and the share of prompt tokens that some head of some layer holds."""
    rows = data.scored()
    policy = str(rows["policy"].iloc[0])
    look, metric = look_of(policy), metric_title(str(rows["metric"].iloc[0]))
    score, coverage = _by_rate(rows, "value"), _by_rate(rows, "coverage")
    n = count_text(score["n"])
    other = Line2D([], [], linestyle="--", linewidth=1.4, label="coverage of the prompt", **_open(policy))
    keys = [legend_entry(f"{metric} (mean)", look), other]
    top = legend_height(keys, width) + 4
    grid = PanelGrid.fit(width, 1, 200, 210, above=12, below=42)
    sheet = FigureSheet(width, top + grid.total, f"{policy}; {n} samples a point, bars: 95 % intervals over documents")
    sheet.legend(4, keys)
    axes = grid.panel(sheet, 0, top)
    for found, style in (
        (score, {"linestyle": "-", **marker_style(look)}),
        (coverage, {"linestyle": "--", **_open(policy)}),
    ):
        axes.plot(found["rate"], found["value"], linewidth=1.3, **style)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.errorbar(found["rate"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
    axes.set_xticks(score["rate"], [f"{rate:g}%" for rate in score["rate"]])
    axes.set_xlabel("eviction rate (% of the prompt's tokens)")
    axes.set_ylim(0, 1.03)
    axes.grid(axis="y")
    together = np.corrcoef(score["value"], coverage["value"])[0, 1] if _vary(score, coverage) else float("nan")
    fit = f" Pearson's correlation over the {len(score)} budgets: {together:.2f}." if np.isfinite(together) else ""
    return Sketch(sheet.figure, f"Score and coverage of {policy} against the eviction rate ({n}).{fit}")


def _vary(*found: pd.DataFrame) -> bool:
    """Whether there is anything to correlate."""
    return all(len(each) > 2 and each["value"].nunique() > 1 for each in found)


def _open(policy: str) -> dict[str, Any]:
    return {**marker_style(look_of(policy)), "markerfacecolor": "white"}


def _by_rate(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    found = row_means(rows, ["policy", "budget"], value)
    return found.assign(rate=[100 - parse_budget(text).amount for text in found["budget"]]).sort_values("rate")
