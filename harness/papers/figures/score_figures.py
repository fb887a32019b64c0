"""Bars of policies side by side, in groups: BUZZ Figures 6 (where the answer stands) and 8b (local maxima or not)."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.papers.figures.canvas import (
    INK,
    MUTED,
    SMALL,
    FigureSheet,
    NotDrawnError,
    Sketch,
    draw_colour_bar,
    draw_matrix,
    legend_entry,
    legend_height,
    marker_style,
)
from harness.papers.figures.figure_data import FigureData, natural_key
from harness.papers.figures.figure_means import count_text, interval_width_text, row_means
from harness.report.labels import metric_title, ordered_budgets, ordered_policies, parse_budget
from harness.report.looks import look_of, looks
from tasks.metrics.overlap import self_bleu

PANEL = 190  # CSS pixels
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")  # where two policies share a colour
AVERAGE = "average"


def draw_bars(data: FigureData, group: str, axis: str, metric: tuple[str, ...] = (), averaged: bool = False) -> Sketch:
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
    policies = ordered_policies(found["policy"])
    style, hatches = looks(policies), _hatches(policies)
    keys = [Patch(facecolor=style[name].light, edgecolor="white", hatch=hatches[name], label=name) for name in policies]
    top = legend_height(len(keys), 3) + 6
    n = count_text(found["n"])
    sheet = FigureSheet(top + PANEL + 44, f"{n} samples a bar; whiskers: 95 % intervals over documents; dashed: dense")
    sheet.legend(4, keys, 3)
    axes = sheet.panel(52, top + 8, 336, PANEL)
    width = 0.84 / len(policies)
    for i, name in enumerate(policies):
        own = found[found["policy"] == name].set_index("group").reindex(groups)
        x = np.arange(len(groups)) + width * (i - (len(policies) - 1) / 2)
        axes.bar(x, own["value"], width, color=style[name].light, edgecolor="white", hatch=hatches[name], linewidth=0.5)
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
    dense = data.baselines[(data.baselines["policy"] == "dense") & (data.baselines["metric"] == rows["metric"].iloc[0])]
    for line in row_means(dense, ["policy", "task"]).to_dict("records")[:1]:
        axes.axhline(line["value"], color=MUTED, linewidth=1, linestyle=(0, (6, 3)))
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlabel(axis)
    axes.set_ylabel(f"{metric_title(str(rows['metric'].iloc[0]))} (mean)")
    axes.set_ylim(bottom=0)
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


# One article's summary by each policy, with its scores: BUZZ Figure 9.


LETTERS, LINE = 72, 13  # of the text in one line; CSS pixels
LONGEST = 420  # letters of one text


def draw_answers(data: FigureData, tables: tuple[str, ...]) -> Sketch:
    """The first sample that all policies have."""
    rows = data.scored()
    common = set.intersection(*(set(part["sample_id"]) for _, part in rows.groupby("policy")))
    if not common:
        raise NotDrawnError("Its policies have no sample in common.")
    sample = min(common, key=natural_key)
    own = data.rows[data.rows["sample_id"] == sample]
    blocks = [("reference summary", "", MUTED, str(own["reference"].iloc[0]))]
    for policy in ordered_policies(own["policy"]):
        part = own[own["policy"] == policy]
        scores = " · ".join(f"{metric_title(m)} {v:.2f}" for m, v in zip(part["metric"], part["value"], strict=True))
        printed = _printed(data, tables, policy)
        words = scores + (f" (the paper's example: {printed})" if printed else "")
        blocks.append((policy, words, look_of(policy).light, str(part["prediction"].iloc[0])))
    wrapped = [(name, words, colour, textwrap.wrap(_short(text), LETTERS)) for name, words, colour, text in blocks]
    height = sum(LINE * (len(lines) + 1 + len(_score_lines(words))) + 10 for _, words, _, lines in wrapped) + 8
    sheet = FigureSheet(height, f"Sample {sample}, n = 1: scores of one sample have no interval")
    y = 8.0
    for name, words, colour, lines in wrapped:
        sheet.text(8, y, name, color=colour, weight="bold", fontsize=10)
        y += LINE
        for line in _score_lines(words):
            sheet.text(8, y, line, color=MUTED, fontsize=SMALL)
            y += LINE
        for line in lines:
            sheet.text(8, y, line, fontsize=10)
            y += LINE
        y += 10
    return Sketch(
        sheet.figure, f"What each policy makes of sample {sample} at {own['budget'].iloc[0]}, with its scores."
    )


def _score_lines(words: str) -> list[str]:
    return textwrap.wrap(words, LETTERS + 6)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else flat[:LONGEST] + " …"


def _printed(data: FigureData, tables: tuple[str, ...], policy: str) -> str:
    found = data.printed(tables)
    found = found[found["policy"] == policy]
    return ", ".join(f"{metric} {number:.2f}" for metric, number in zip(found["metric"], found["value"], strict=True))


# Self-BLEU by policy and budget, compared with the full cache: BUZZ Figure 7.


METRIC = "self_bleu"
ROW = 30  # CSS pixels of one policy


def draw_self_bleu_map(data: FigureData) -> Sketch:
    """Colour: the distance to dense, as in the paper; the cells hold Self-BLEU itself."""
    measured = METRIC in set(data.rows["metric"])
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
    height = ROW * len(policies)
    sheet = FigureSheet(
        height + 108, f"{n} samples a cell, {interval_width_text(found)}; the number is the mean Self-BLEU"
    )
    axes = sheet.panel(96, 28, 292, height)
    texts = [[f"{number:.2f}" for number in line] for line in values.to_numpy()]
    draw_matrix(axes, distance, Normalize(0, largest), texts, size=10)
    axes.set_xticks(range(len(budgets)), budgets)
    axes.set_yticks(range(len(policies)), policies)
    axes.set_xlabel("cache budget (% of prompt and generation)")
    if len(full):
        low, high = full["low"].iloc[0], full["high"].iloc[0]
        axes.set_title(f"full cache: {reference:.2f} [{low:.2f}, {high:.2f}]", loc="left", fontsize=SMALL + 1)
    draw_colour_bar(sheet, 96, height + 84, 160, Normalize(0, largest), title)
    return Sketch(sheet.figure, f"Mean Self-BLEU by policy and budget ({n}); darker is nearer to dense.", tuple(notes))


def _dense(data: FigureData) -> pd.DataFrame:
    return data.baselines[data.baselines["policy"] == "dense"]


def _own(rows: pd.DataFrame, measured: bool) -> pd.DataFrame:
    """One row per sample, its value Self-BLEU; that of the stored text where the task has not measured it."""
    if measured or rows.empty:
        return rows[rows["metric"] == METRIC] if measured else rows
    once = rows.drop_duplicates(["cell_id", "sample_id"])
    return once.assign(metric=METRIC, value=[self_bleu(text) for text in once["prediction"]])


# Score and coverage against the eviction rate, one policy: K-VEC Figure 1.


def draw_coverage_curve(data: FigureData) -> Sketch:
    """Both from the same rows: the score, and the share of prompt tokens that some head of some layer holds."""
    rows = data.scored()
    policy = str(rows["policy"].iloc[0])
    look, metric = look_of(policy), metric_title(str(rows["metric"].iloc[0]))
    score, coverage = _by_rate(rows, "value"), _by_rate(rows, "coverage")
    n = count_text(score["n"])
    sheet = FigureSheet(270, f"{policy}; {n} samples a point, bars: 95 % intervals over documents")
    other = Line2D([], [], linestyle="--", linewidth=1.4, label="coverage of the prompt", **_open(policy))
    sheet.legend(4, [legend_entry(f"{metric} (mean)", look), other], 2)
    axes = sheet.panel(52, 30, 336, 190)
    for found, style in (
        (score, {"linestyle": "-", **marker_style(look)}),
        (coverage, {"linestyle": "--", **_open(policy)}),
    ):
        axes.plot(found["rate"], found["value"], linewidth=1.3, **style)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.errorbar(found["rate"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
    axes.set_xticks(score["rate"], [f"{rate:g}%" for rate in score["rate"]])
    axes.set_xlabel("eviction rate (% of the prompt's tokens)")
    axes.set_ylabel("share (0 to 1)")
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
