"""What the last queries of a prompt attend to, head by head: K-VEC Figure 2."""

from __future__ import annotations

import numpy as np
import pandas as pd

from harness.papers.figures.canvas import MUTED, SMALL, FigureSheet, Sketch
from harness.papers.figures.figure_data import SPREAD_WORDS, FigureData, spread_of_heads
from harness.papers.figures.figure_means import count_text, first_prompts, sample_means
from harness.papers.figures.panel_grid import PanelGrid
from harness.report.looks import look_of

TENTHS = 10
HEADING = 22  # CSS pixels of the line above a prompt's panels
KEYS = ["layer", "query_head"]


def draw_window_scores(data: FigureData, width: float, layer: int, head: int, policy: str) -> Sketch:
    """A line of panels a prompt, a column a head; in the last line the same in tenths, averaged over prompts.

    ``layer``, ``head``: the paper's own, beside those that are taken by rule.
    """
    frame = data.first_samples("window_attention")
    frame = frame[frame["policy"] == frame["policy"].iloc[0]]
    samples = list(dict.fromkeys(frame["sample_id"]))
    tenths = _by_tenth(frame)
    last = tenths[tenths["tenth"] == TENTHS - 1].groupby(KEYS)["share"].mean()
    chosen = list(dict.fromkeys([(layer, head), *spread_of_heads(last)]))
    means = sample_means(tenths, [*KEYS, "tenth"], "share").set_index(KEYS)
    everywhere = tenths.groupby("tenth")["share"].mean()
    footer = (
        f"Rule: {first_prompts(samples)}, before eviction; the paper's head and {SPREAD_WORDS} of the share that the "
        "last tenth of the prompt gets. Across the position in the prompt (tokens), down the attention of the last 32 "
        f"queries (mean, 0 to 1). Last line: shares by tenth of the prompt, {count_text(means['n'])}, whiskers: 95 % "
        "intervals over prompts, grey: mean of all heads"
    )
    grid = PanelGrid.fit(width, len(chosen), 120, 90, left=44, right=10, above=20, below=26)
    sheet = FigureSheet(width, (len(samples) + 1) * (HEADING + grid.total) + 4, footer)
    look = look_of(policy)
    top = 0.0
    for sample in samples:
        own = frame[frame["sample_id"] == sample]
        tokens = int(own["position"].max()) + 1
        sheet.text(6, top + 4, f"prompt {sample}, {tokens} tokens", weight="bold")
        for i, key in enumerate(chosen):
            part = own[(own["layer"] == key[0]) & (own["query_head"] == key[1])].sort_values("position")
            axes = grid.panel(sheet, i, top + HEADING)
            axes.plot(part["position"], part["attention"], color=look.light, linewidth=0.9)
            axes.set(xlim=(0, tokens - 1), ylim=(0, None))
            axes.locator_params(nbins=4)
            axes.set_title(_title(key, (layer, head)), loc="left", fontsize=SMALL, pad=4)
        top += HEADING + grid.total
    sheet.text(6, top + 4, "mean share by tenth of the prompt", weight="bold")
    for i, key in enumerate(chosen):
        axes, own = grid.panel(sheet, i, top + HEADING), means.loc[[key]]
        axes.bar(own["tenth"] + 0.5, own["value"], 0.86, color=look.light)
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        axes.errorbar(own["tenth"] + 0.5, own["value"], yerr=bars, fmt="none", ecolor=MUTED, elinewidth=0.9, capsize=2)
        axes.plot(everywhere.index + 0.5, everywhere, color=MUTED, marker="o", markersize=3, linewidth=1)
        axes.set_xticks((0, 5, 10), ("0%", "50%", "100%"))
        axes.set_ylim(bottom=0)
        axes.set_title(_title(key, (layer, head)), loc="left", fontsize=SMALL, pad=4)
    words = "; ".join(f"{last[key]:.0%} in layer {key[0]}, head {key[1]}" for key in chosen)
    return Sketch(sheet.figure, f"Attention of the last 32 prompt tokens; the last tenth of the prompt gets {words}.")


def _by_tenth(frame: pd.DataFrame) -> pd.DataFrame:
    """``share`` of the attention by sample, layer, query head and tenth of the prompt."""
    tokens = frame.groupby("sample_id")["position"].transform("max") + 1
    tenth = np.minimum(frame["position"] * TENTHS // tokens, TENTHS - 1)
    sums = frame.assign(tenth=tenth).groupby(["sample_id", *KEYS, "tenth"])["attention"].sum()
    return sums.rename("share").reset_index()


def _title(key: tuple[int, int], papers: tuple[int, int]) -> str:
    return f"layer {key[0]}, head {key[1]}" + " (the paper's)" * (key == papers)
