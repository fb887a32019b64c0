"""Needle recall over document length and needle depth, a map for each policy: KeyDiff Figure 6, CAOTE Figure 2."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from harness.papers.figures.canvas import MUTED, SMALL, FigureSheet, NotDrawnError, Sketch
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_means import count_text, row_means
from harness.papers.figures.marked_bars import draw_marked_bars
from harness.papers.figures.matrix_panels import BAR, draw_colour_bar, draw_matrix, tick_indices
from harness.papers.figures.panel_grid import PanelGrid
from harness.report.heatmap import tick_text
from harness.report.looks import HUES

ROW, SHORTEST, COLUMN = 22, 84, 34  # CSS pixels of one depth, of a map, of one length
AXES = ("axis_length", "axis_depth")


def draw_needle_maps(data: FigureData, width: float, tables: tuple[str, ...] = (), budget: str = "") -> Sketch:
    """Means by length and depth; above each map the mean over all, and its rank, ours and the paper's."""
    rows = data.scored()
    if any(axis not in rows or rows[axis].isna().any() for axis in AXES):
        raise NotDrawnError("Its rows have no length and depth of the needle.")
    lengths, depths = (sorted(rows[axis].unique()) for axis in AXES)
    policies = [name for name in data.policies if name in set(rows["policy"])]
    cells = row_means(rows, ["policy", *AXES])
    means = row_means(rows, ["policy", "task"])
    ranks = _ranks(means, _printed(data, tables, budget))
    footer = (
        f"{count_text(cells['n'])} samples a cell, {count_text(means['n'])} a map; above a map its mean [95 % interval]"
        + f"; ranks by the mean among {len(ranks)}, = where several share one" * bool(ranks)
        + ". Needle depth (%) down, document length (tokens) across"
    )
    room = COLUMN * len(lengths)
    grid = PanelGrid.fit(
        width, len(policies), max(108, room), max(SHORTEST, ROW * len(depths)), left=38, right=10, above=58, below=24
    )
    sheet = FigureSheet(width, grid.total + BAR + 6, footer)
    for i, policy in enumerate(policies):
        axes = grid.panel(sheet, i, 0)
        own = cells[cells["policy"] == policy].pivot(index=AXES[1], columns=AXES[0], values="value")
        own = own.reindex(index=depths, columns=lengths)
        texts = [[f"{number:.2f}" for number in line] for line in own.to_numpy()]
        draw_matrix(axes, own, Normalize(0, 1), texts if grid.width / len(lengths) >= COLUMN - 4 else None)
        _label(axes, lengths, depths)
        words = _title(policy, means[means["policy"] == policy].iloc[0], ranks)
        axes.set_title(words, loc="left", fontsize=SMALL, pad=4, linespacing=1.25)
    draw_colour_bar(sheet, 38, grid.total, min(260.0, width - 60), Normalize(0, 1), "needle recall (mean score)")
    says = f"Needle recall by document length and needle depth, {count_text(means['n'])} samples a policy."
    return Sketch(sheet.figure, says)


def _title(policy: str, mean: pd.Series, ranks: dict[str, str]) -> str:
    words = f"{policy}\n{mean['value']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}]"
    return f"{words}\n{ranks[policy]}" if policy in ranks else words


def _ranks(means: pd.DataFrame, printed: dict[str, float]) -> dict[str, str]:
    """Places among the policies that both have: the scores of two models are on no common scale. Ties share a place."""
    ours = means.set_index("policy")["value"]
    both = [name for name in ours.index if name in printed]
    places = [_places(ours[both]), _places(pd.Series(printed, dtype=float)[both])]
    return {name: f"rank {places[0][name]}, paper {places[1][name]}" for name in both}


def _places(scores: pd.Series) -> dict[str, str]:
    best = scores.round(6).rank(method="min", ascending=False).astype(int)
    tied = best.duplicated(keep=False)
    return {str(name): f"{best[name]}{'=' * bool(tied[name])}" for name in scores.index}


def _printed(data: FigureData, tables: tuple[str, ...], budget: str) -> dict[str, float]:
    """The paper's averages of the figure's model and budget, by our policies."""
    found = data.printed(tables)
    found = found[(found["budget"] == budget) & found["our_task"].eq("needle/grid")]
    found = found[found["model"] == (found["model"].iloc[0] if len(found) else "")]
    return {str(name): float(value) for name, value in zip(found["policy"], found["value"], strict=True)}


def _label(axes: Axes, lengths: list[object], depths: list[object]) -> None:
    positions = tick_indices(len(lengths), 4)
    axes.set_xticks(positions, [tick_text(lengths[i]) for i in positions])
    shown = tick_indices(len(depths), 6)
    percent = np.array([float(str(depth)) for depth in depths])
    percent = percent * 100 if percent.max() <= 1 else percent
    axes.set_yticks(shown, [f"{percent[i]:.3g}" for i in shown])


# How long the prompts of each task are: KeyDiff Figure 10.


BINS = ("le_2K", "2K_4K", "4K_6K", "6K_8K", "ge_8K")  # as KeyDiff Table 5 prints them
TITLES = ("2", "4", "6", "8", "8+")
EDGES = (0, 2048, 4096, 6144, 8192, np.inf)  # tokens
FEW = 8  # bins of our own, where prompts are too short for the paper's


def draw_lengths(data: FigureData, width: float, tables: tuple[str, ...]) -> Sketch:
    """One histogram a task, in the paper's bins with its counts in outline; in finer ones for the testbed's prompts."""
    prompts = data.scored().drop_duplicates(["task", "sample_id"])
    tasks = [task for task in data.wanted.values("task") if task in set(prompts["task"])]
    shortest, longest = int(prompts["prompt_tokens"].min()), int(prompts["prompt_tokens"].max())
    fine = data.of_stand_in
    edges = _fine_edges(shortest, longest) if fine else np.array(EDGES)
    printed = {} if fine else _printed_lengths(data, tables)
    axis = "tokens" if fine else "up to so many thousand tokens (1,024 each)"
    footer = (
        f"Prompt length across ({axis}, of the model's own tokenizer), prompts down; n: prompts"
        + "; outline: the paper's counts, Llama-2's tokenizer" * bool(printed)
        + "; counts of all prompts, no interval"
    )
    grid = PanelGrid.fit(width, len(tasks), 200, 70, left=36, above=30, below=26)
    sheet = FigureSheet(width, grid.total + 4, footer)
    for i, task in enumerate(tasks):
        own = prompts[prompts["task"] == task]
        counts = np.histogram(own["prompt_tokens"], edges)[0]
        axes = grid.panel(sheet, i, 0)
        places = np.arange(len(counts))
        draw_marked_bars(axes, places, counts, 0.86, HUES["blue"][0], texts=[f"{count:d}" for count in counts])
        if task in printed:
            axes.bar(places, printed[task], 0.86, fill=False, edgecolor=MUTED, linewidth=1)
        if fine:
            axes.set_xticks(np.arange(0, FEW + 1, 2) - 0.5, [f"{edges[place]:.0f}" for place in range(0, FEW + 1, 2)])
        else:
            axes.set_xticks(range(len(TITLES)), TITLES)
        axes.locator_params(axis="y", nbins=3, integer=True)
        axes.set_title(f"{task.split('/')[-1]} (n = {len(own)})", loc="left", fontsize=SMALL, pad=4)
        axes.set_ylim(0, 1.35 * max(1, counts.max(), *printed.get(task, [0])))
    return Sketch(sheet.figure, f"Prompt lengths of {len(tasks)} tasks, {len(prompts)} prompts.")


def _fine_edges(shortest: int, longest: int) -> np.ndarray:
    """`FEW` bins of round width that hold all prompts."""
    step = max(1, int(np.ceil((longest + 1 - shortest) / (FEW - 1) / 8)) * 8)
    low = shortest // step * step
    return np.arange(low, low + step * (FEW + 1), step)


def _printed_lengths(data: FigureData, tables: tuple[str, ...]) -> dict[str, list[float]]:
    found = data.printed(tables)
    found = found.assign(bin=found["note"].str.extract(r"length_bin=(\w+)", expand=False))
    wide: pd.DataFrame = found.pivot_table(index="our_task", columns="bin", values="value", aggfunc="first")
    return {str(task): [float(line[name]) for name in BINS] for task, line in wide.iterrows()}
