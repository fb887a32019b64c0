"""One number for each head, in several layers: KeyDiff Figures 12 and 14."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.analysis.statistics import mean_interval
from harness.papers.figures.canvas import (
    MUTED,
    PUBLISHED,
    FigureSheet,
    Sketch,
    distinct_looks,
    draw_colour_bar,
    draw_matrix,
    legend_entry,
    legend_height,
    marker_style,
    tick_indices,
)
from harness.papers.figures.figure_data import FigureData, evenly_spaced
from harness.papers.figures.figure_means import count_text, interval_width_text, sample_means
from harness.report.labels import ordered_policies
from harness.report.looks import HUES

PANEL, LAYERS = 74, 6  # CSS pixels; layers that are shown


def draw_head_values(data: FigureData, column: str, title: str) -> Sketch:
    """A panel a layer, a bar a query head; whiskers are intervals over samples."""
    frame = data.internals("key_query")
    found = sample_means(frame, ["layer", "query_head"], column)
    layers = evenly_spaced(int(found["layer"].max()) + 1, LAYERS)
    n = count_text(found["n"])
    lines = -(-len(layers) // 2)
    over = "over prompts" if found["n"].max() > 1 else "(one prompt: none)"
    sheet = FigureSheet(lines * (PANEL + 20) + 40, f"{n} prompts; whiskers: 95 % intervals {over}; a bar a query head")
    values = np.array([found["value"].min(), found["value"].max(), *found[["low", "high"]].stack().dropna()])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    for i, layer in enumerate(layers):
        own = found[found["layer"] == layer]
        axes = sheet.panel(52 + (i % 2) * 178, 16 + (i // 2) * (PANEL + 20), 156, PANEL)
        axes.bar(own["query_head"], own["value"], 0.8, color=HUES["blue"][0])
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        axes.errorbar(own["query_head"], own["value"], yerr=bars, fmt="none", ecolor=MUTED, elinewidth=0.9, capsize=1.5)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        axes.set_title(f"layer {layer}", loc="left", fontsize=9, pad=2)
        if i % 2:
            axes.set_yticklabels([])
        axes.grid(axis="y")
        if i >= len(layers) - 2:
            axes.set_xlabel("query head")
        else:
            axes.set_xticklabels([])
    sheet.figure.text(0.022, 0.55, title, rotation=90, va="center", ha="center")
    negative = float((found["value"] < 0).mean())
    says = f"{title[0].upper()}{title[1:]} for each query head ({n} prompts); negative in {negative:.0%} of all heads."
    return Sketch(sheet.figure, says)


# Error of the attention output by layer, base policies solid, with CAOTE dashed: CAOTE Figure 3.


LAYER_PANEL = 160  # CSS pixels
PANELS = {
    "dense run": "against the dense run (errors of the layers below included)",
    "own states": "against the run's own states (this layer's eviction alone)",
}


def draw_layer_curves(data: FigureData) -> Sketch:
    """Two panels, because the paper does not say on which states its dense output is computed."""
    frame = data.internals("output_error")
    policies = ordered_policies(frame["policy"])
    style = distinct_looks(policies)
    keys = [legend_entry(name, style[name]) for name in policies]
    top = legend_height(len(keys), 2) + 6
    found = by_layer(frame)
    n = count_text(found["n"])
    sheet = FigureSheet(
        top + 2 * (LAYER_PANEL + 46), f"{n} prompts, all passes and heads; bars: 95 % intervals over prompts"
    )
    sheet.legend(4, keys, 2)
    for i, (against, title) in enumerate(PANELS.items()):
        axes = sheet.panel(56, top + 20 + i * (LAYER_PANEL + 46), 332, LAYER_PANEL - 18)
        for number, name in enumerate(policies):
            own = found[(found["policy"] == name) & (found["against"] == against)]
            x = own["layer"] + 0.05 * (number - (len(policies) - 1) / 2)
            bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
            axes.plot(x, own["value"], linestyle=style[name].line, linewidth=1.3, **marker_style(style[name], 5))
            axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=style[name].light, elinewidth=0.8, capsize=1.5)
        axes.set_title(title, loc="left", fontsize=9, pad=4)
        axes.set_ylabel("normalised MSE")
        axes.set_xlabel("layer")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
    return Sketch(
        sheet.figure, f"Squared error of attention outputs, relative to the dense output's norm ({n} prompts)."
    )


def by_layer(frame: pd.DataFrame) -> pd.DataFrame:
    """Sums over passes and heads divided by sums, sample by sample; then mean and interval over samples."""
    by = ["policy", "against", "layer"]
    sums = frame.groupby([*by, "sample_id"])[["squared_error", "squared_norm"]].sum()
    ratio = (sums["squared_error"] / sums["squared_norm"]).rename("error").reset_index()
    lines = []
    for key, part in ratio.groupby(by, sort=True):
        found = mean_interval(part["error"].to_numpy(), part["sample_id"].to_numpy())
        lines.append((*key, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=[*by, "value", "low", "high", "n"])


# A number for each layer and head, two maps: HashEvict Figure 8.


TITLES = {"lsh": "(a) LSH ranking", "l2": "(b) L2 norm ranking"}
SIDE = 158.0  # CSS pixels


def draw_layer_head_maps(data: FigureData) -> Sketch:
    """Both maps on one scale, so that they can be compared; the paper's is Eq. 7."""
    frame = data.internals("ranking_loss")
    found = sample_means(frame, ["ranking", "layer", "query_head"], "difference")
    n = count_text(found["n"])
    largest = float(found["value"].max())
    scale = Normalize(0, largest)
    footer = f"{n} prompts, a cell is their mean; {interval_width_text(found)}. 0: drops keys in the order of attention"
    sheet = FigureSheet(SIDE + 96, footer)
    for i, (ranking, title) in enumerate(TITLES.items()):
        own = found[found["ranking"] == ranking].pivot(index="query_head", columns="layer", values="value")
        axes = sheet.panel(40 + i * (SIDE + 34), 22, SIDE, SIDE)
        room = SIDE / len(own.columns) >= 24 and SIDE / len(own) >= 12
        texts = [[f"{number:.0f}" if largest >= 10 else f"{number:.1f}" for number in line] for line in own.to_numpy()]
        draw_matrix(axes, own, scale, texts if room else None, size=8)
        axes.set_title(title, loc="left", pad=4)
        axes.set_xlabel("layer", labelpad=1)
        positions = (tick_indices(len(own.columns), 8), tick_indices(len(own), 8))
        axes.set_xticks(positions[0], [str(own.columns[i]) for i in positions[0]])
        axes.set_yticks(positions[1], [str(own.index[i]) for i in positions[1]])
        if i == 0:
            axes.set_ylabel("query head", labelpad=1)
    draw_colour_bar(sheet, 40, SIDE + 74, 200, scale, "cumulative attention loss (sum over dropped keys)")
    return Sketch(sheet.figure, f"What attention it costs to drop keys in the order of a ranking ({n} prompts).")


# Correlation of attention and inverted Hamming distance by hash size, layer and head: HashEvict Figure 9.


BITS = 16  # of panels b to d; the paper does not say
READINGS = {"pairs": ("blue", "o", "over pairs of tokens"), "keys": ("orange", "s", "over keys")}


def draw_correlations(data: FigureData, tables: tuple[str, ...]) -> Sketch:
    """Bars are standard deviations, as in the paper: over prompts, layers and heads."""
    frame = data.internals("lsh")
    n = frame["sample_id"].nunique()
    printed = _printed(data, tables)
    footer = (
        f"n = {n} prompts; bars: standard deviations, as the paper's (not intervals of the mean), over prompts, layers "
    )
    footer += f"and heads; b to d at {BITS} bits; d: means over prompts, pairs of tokens"
    sheet = FigureSheet(446, footer)
    positions = [(46, 44), (238, 44), (46, 236), (238, 236)]
    panels = [sheet.panel(left, top, 150, 136) for left, top in positions]
    handles = [
        Line2D([], [], color=HUES[hue][0], marker=shape, markersize=4, linewidth=1.2, label=words)
        for hue, shape, words in READINGS.values()
    ]
    sheet.legend(4, [*handles, _hollow(PUBLISHED)], 3)
    at = frame[frame["bits"] == BITS]
    for i, (reading, (hue, shape, _)) in enumerate(READINGS.items()):
        shift = 0.12 * (i - 0.5)
        own = frame[frame["over"] == reading]
        _points(panels[0], own, "bits", hue, shape, 6 * shift)
        _points(panels[1], at[at["over"] == reading], "layer", hue, shape, shift)
        _points(panels[2], at[at["over"] == reading], "query_head", hue, shape, shift)
    panels[0].errorbar(
        printed["bits"], printed["pearson"], yerr=printed["pearson_std"], fmt="none", ecolor="#9aa1aa", elinewidth=0.8
    )
    panels[0].plot(printed["bits"], printed["pearson"], **_marks())
    panels[0].set_xticks(sorted(frame["bits"].unique()))
    means = at[at["over"] == "pairs"].pivot_table(index="query_head", columns="layer", values="pearson")
    scale = Normalize(float(means.to_numpy().min()), float(means.to_numpy().max()))
    room = 150 / len(means.columns) >= 22 and 136 / len(means) >= 12
    texts = [[f"{number:.2f}".replace("0.", ".") for number in line] for line in means.to_numpy()]
    draw_matrix(panels[3], means, scale, texts if room else None, size=8)
    for axis, size, ticks in (("x", len(means.columns), means.columns), ("y", len(means), means.index)):
        shown = tick_indices(size, 8)
        getattr(panels[3], f"set_{axis}ticks")(shown, [str(ticks[i]) for i in shown])
    panels[3].set_ylabel("query head", labelpad=1)
    titles = ("(a) by hash size", "(b) by layer", "(c) by query head", "(d) layer × head")
    names = ("hash size (bits)", "layer", "query head", "layer")
    for axes, title, name in zip(panels, titles, names, strict=True):
        axes.set_title(title, loc="left", pad=4)
        axes.set_xlabel(name, labelpad=1)
    for axes in panels[:3]:
        axes.grid(axis="y")
    panels[0].set_ylabel("Pearson's correlation", labelpad=1)
    panels[2].set_ylabel("Pearson's correlation", labelpad=1)
    draw_colour_bar(sheet, 238, 416, 150, scale, "Pearson's correlation (d)")
    says = f"Pearson's correlation of attention and inverted average Hamming distance ({n} prompts)."
    return Sketch(sheet.figure, says)


def _points(axes: Axes, own: pd.DataFrame, by: str, hue: str, shape: str, shift: float) -> None:
    found = own.groupby(by)["pearson"].agg(["mean", "std"]).reset_index()
    axes.errorbar(
        found[by] + shift, found["mean"], yerr=found["std"], color=HUES[hue][0], marker=shape, markersize=4,
        linewidth=1.2, elinewidth=0.8, capsize=1.5,
    )  # fmt: skip


def _marks() -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "D",
        "markersize": 5,
        "markerfacecolor": "none",
        "markeredgecolor": "#5d636b",
    }


def _hollow(label: str) -> Line2D:
    return Line2D([], [], label=f"{label} (Table 11)", **_marks())


def _printed(data: FigureData, tables: tuple[str, ...]) -> pd.DataFrame:
    """``bits``, ``pearson``, ``pearson_std``."""
    found = data.printed(tables)
    found = found.assign(bits=found["note"].str.extract(r"hash_bits=(\d+)", expand=False).astype(int))
    return found.pivot_table(index="bits", columns="metric", values="value").reset_index()
