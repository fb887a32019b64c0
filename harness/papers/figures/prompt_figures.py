"""Needle recall over document length and needle depth, a map for each policy: KeyDiff Figure 6, CAOTE Figure 2."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from harness.papers.figures.canvas import (
    MUTED,
    SMALL,
    FigureSheet,
    NotDrawnError,
    Sketch,
    draw_colour_bar,
    draw_matrix,
    tick_indices,
)
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import count_text, row_means
from harness.report.heatmap import tick_text
from harness.report.looks import HUES

COLUMNS, MAP_WIDTH, TITLE, BELOW = 3, 100, 40, 22  # panels in a row; CSS pixels
ROW, SHORTEST = 19, 84  # CSS pixels of one depth, of a map
AXES = ("axis_length", "axis_depth")


def draw_needle_maps(data: FigureData, tables: tuple[str, ...] = (), budget: str = "") -> Sketch:
    """Means by length and depth; above each map the mean over all, and the paper's where it prints one."""
    rows = data.scored()
    if any(axis not in rows or rows[axis].isna().any() for axis in AXES):
        raise NotDrawnError("Its rows have no length and depth of the needle.")
    lengths, depths = (sorted(rows[axis].unique()) for axis in AXES)
    policies = [name for name in data.policies if name in set(rows["policy"])]
    height = max(SHORTEST, ROW * len(depths))
    lines = -(-len(policies) // COLUMNS)
    each = TITLE + height + BELOW
    cells = row_means(rows, ["policy", *AXES])
    means = row_means(rows, ["policy", "task"])
    printed = _printed(data, tables, budget)
    footer = (
        f"{count_text(cells['n'])} samples a cell, {count_text(means['n'])} a map; [ ]: 95 % intervals of a map's mean"
        + "; printed: the paper's mean" * bool(printed)
    )
    sheet = FigureSheet(lines * each + 62, footer)
    for i, policy in enumerate(policies):
        left, top = 50 + (i % COLUMNS) * (MAP_WIDTH + 18), TITLE + (i // COLUMNS) * each
        axes = sheet.panel(left, top, MAP_WIDTH, height)
        own = cells[cells["policy"] == policy].pivot(index=AXES[1], columns=AXES[0], values="value")
        own = own.reindex(index=depths, columns=lengths)
        texts = [[f"{number:.2f}" for number in line] for line in own.to_numpy()]
        draw_matrix(axes, own, Normalize(0, 1), texts if MAP_WIDTH / len(lengths) >= 24 else None)
        _label(axes, lengths, depths, first=i % COLUMNS == 0, last=i >= len(policies) - COLUMNS)
        axes.set_title(
            _title(policy, means[means["policy"] == policy].iloc[0], printed),
            loc="left",
            fontsize=SMALL,
            pad=4,
            linespacing=1.25,
        )
    sheet.text(200, lines * each + 2, "document length (tokens)", ha="center")
    draw_colour_bar(sheet, 140, lines * each + 30, 120, Normalize(0, 1), "needle recall (mean score)")
    says = f"Needle recall by document length and needle depth, {count_text(means['n'])} samples a policy."
    return Sketch(sheet.figure, says)


def _title(policy: str, mean: pd.Series, printed: dict[str, float]) -> str:
    words = f"{policy}\nmean {mean['value']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}]"
    return words + f"\nprinted {printed[policy]:.3f}" if policy in printed else words


def _printed(data: FigureData, tables: tuple[str, ...], budget: str) -> dict[str, float]:
    """The paper's averages of the figure's model and budget, by our policies."""
    found = data.printed(tables)
    found = found[(found["budget"] == budget) & found["our_task"].eq("needle/grid")]
    found = found[found["model"] == (found["model"].iloc[0] if len(found) else "")]
    return {str(name): float(value) for name, value in zip(found["policy"], found["value"], strict=True)}


def _label(axes: Axes, lengths: list[object], depths: list[object], first: bool, last: bool) -> None:
    positions = tick_indices(len(lengths), 3)
    axes.set_xticks(positions, [tick_text(lengths[i]) for i in positions] if last else [])
    shown = tick_indices(len(depths), 6)
    percent = np.array([float(str(depth)) for depth in depths])
    percent = percent * 100 if percent.max() <= 1 else percent
    axes.set_yticks(shown, [f"{percent[i]:.3g}" for i in shown] if first else [])
    if first:
        axes.set_ylabel("needle depth (%)", labelpad=2)


# How long the prompts of each task are: KeyDiff Figure 10.


LENGTH_COLUMNS, WIDTH, PANEL, GAP = 3, 96, 54, 40  # panels in a row; CSS pixels
BINS = ("le_2K", "2K_4K", "4K_6K", "6K_8K", "ge_8K")  # as KeyDiff Table 5 prints them
TITLES = ("2", "4", "6", "8", "8+")
EDGES = (0, 2048, 4096, 6144, 8192, np.inf)  # tokens
FEW = 8  # bins of our own, where prompts are too short for the paper's


def draw_lengths(data: FigureData, tables: tuple[str, ...]) -> Sketch:
    """One histogram a task, in the paper's bins with its counts in outline; in finer ones for the testbed's prompts."""
    prompts = data.scored().drop_duplicates(["task", "sample_id"])
    tasks = [task for task in data.wanted.values("task") if task in set(prompts["task"])]
    longest = int(prompts["prompt_tokens"].max())
    fine = data.mini
    edges = np.linspace(0, np.ceil(longest / 256) * 256, FEW + 1) if fine else np.array(EDGES)
    printed = {} if fine else _printed_lengths(data, tables)
    lines = -(-len(tasks) // LENGTH_COLUMNS)
    footer = (
        "n: prompts, in tokens of the model's own tokenizer"
        + ("; outline: the paper's counts, Llama-2's tokenizer" if printed else "")
        + "; counts of all prompts, no interval"
    )
    sheet = FigureSheet(lines * (PANEL + GAP) + 22, footer)
    for i, task in enumerate(tasks):
        own = prompts[prompts["task"] == task]
        counts = np.histogram(own["prompt_tokens"], edges)[0]
        top = 20 + (i // LENGTH_COLUMNS) * (PANEL + GAP)
        axes = sheet.panel(34 + (i % LENGTH_COLUMNS) * (WIDTH + 30), top, WIDTH, PANEL)
        axes.bar(np.arange(len(counts)), counts, 0.9, color=HUES["blue"][0])
        if task in printed:
            axes.bar(np.arange(len(counts)), printed[task], 0.9, fill=False, edgecolor=MUTED, linewidth=1)
        if fine:
            axes.set_xticks([-0.5, FEW / 2 - 0.5, FEW - 0.5], [f"{edges[i]:.0f}" for i in (0, FEW // 2, FEW)])
        else:
            axes.set_xticks(range(len(TITLES)), TITLES)
        axes.tick_params(labelsize=SMALL - 1)
        axes.set_title(f"{task.split('/')[-1]} (n = {len(own)})", loc="left", fontsize=SMALL - 0.5, pad=3)
    axis = "tokens" if fine else "up to so many thousand tokens (1,024 each)"
    sheet.text(200, lines * (PANEL + GAP) + 6, f"prompt length ({axis}); prompts on the left axis", ha="center")
    return Sketch(sheet.figure, f"Prompt lengths of {len(tasks)} tasks, {len(prompts)} prompts.")


def _printed_lengths(data: FigureData, tables: tuple[str, ...]) -> dict[str, list[float]]:
    found = data.printed(tables)
    found = found.assign(bin=found["note"].str.extract(r"length_bin=(\w+)", expand=False))
    wide: pd.DataFrame = found.pivot_table(index="our_task", columns="bin", values="value", aggfunc="first")
    return {str(task): [float(line[name]) for name in BINS] for task, line in wide.iterrows()}
