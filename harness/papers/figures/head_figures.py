"""One number for each head, in several layers: KeyDiff Figures 12 and 14."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from harness.papers.figures.canvas import (
    MUTED,
    PUBLISHED,
    SMALL,
    FigureSheet,
    Sketch,
    distinct_looks,
    legend_entry,
    legend_height,
    marker_style,
)
from harness.papers.figures.figure_data import FigureData, evenly_spaced
from harness.papers.figures.figure_means import count_text, interval_width_text, sample_means
from harness.papers.figures.matrix_panels import BAR, draw_colour_bar, draw_matrix, tick_indices
from harness.papers.figures.panel_grid import PanelGrid
from harness.report.labels import ordered_policies
from harness.report.looks import HUES

LAYERS = 6  # that are shown


def draw_head_values(data: FigureData, width: float, column: str, title: str) -> Sketch:
    """A panel a layer, a bar and a point a query head, so that zero can be seen; whiskers: intervals over samples."""
    frame = data.internals("key_query")
    found = sample_means(frame, ["layer", "query_head"], column)
    layers = evenly_spaced(int(found["layer"].max()) + 1, LAYERS)
    n = count_text(found["n"])
    over = "over prompts" if found["n"].max() > 1 else "(one prompt: none)"
    footer = (
        f"Up to {LAYERS} evenly spaced layers, all query heads (across), {title} (down); {n} prompts; whiskers: 95 % "
        f"intervals {over}"
    )
    grid = PanelGrid.fit(width, len(layers), 240, 104, left=44, above=24, below=28)
    sheet = FigureSheet(width, grid.total + 4, footer)
    values = np.array([found["value"].min(), found["value"].max(), *found[["low", "high"]].stack().dropna()])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    for i, layer in enumerate(layers):
        own = found[found["layer"] == layer]
        axes = grid.panel(sheet, i, 0)
        axes.bar(own["query_head"], own["value"], 0.7, color=HUES["blue"][0])
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        axes.errorbar(
            own["query_head"], own["value"], yerr=bars, fmt="o", markersize=4, color=HUES["blue"][0], ecolor=MUTED,
            elinewidth=1, capsize=3,
        )  # fmt: skip
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_title(f"layer {layer}: {own['value'].mean():.2f} on average", loc="left", fontsize=SMALL, pad=3)
        axes.grid(axis="y")
    negative = float((found["value"] < 0).mean())
    says = f"{title[0].upper()}{title[1:]} for each query head ({n} prompts); negative in {negative:.0%} of all heads."
    return Sketch(sheet.figure, says)


# Error of the attention output by layer, base policies solid, with CAOTE dashed: CAOTE Figure 3.


PANELS = {
    "dense run": "against the dense run (errors of the layers below included)",
    "own states": "against the run's own states (this layer's eviction alone)",
}
CORRECTED = "caote_"
RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 5, 10, 20, 50, 100)  # labels of their axis


def draw_layer_curves(data: FigureData, width: float) -> Sketch:
    """Two errors, because the paper does not say on which states its dense output is computed; then CAOTE's effect."""
    frame = data.internals("output_error")
    policies = ordered_policies(frame["policy"])
    style = distinct_looks(policies)
    keys = [legend_entry(name, style[name]) for name in policies]
    top = legend_height(keys, width) + 6
    errors = layer_errors(frame)
    found, ratios = by_layer(errors), _corrected_over_base(errors)
    n = count_text(found["n"])
    footer = (
        "First normalised MSE by layer, then that with CAOTE over that of its base on the same prompt (under 1: CAOTE "
        f"errs less); {n} prompts, all passes and heads; bars: 95 % intervals over prompts"
    )
    grid = PanelGrid.fit(width, 2 * len(PANELS), 400 if width > 600 else 200, 170, left=48, above=40)
    sheet = FigureSheet(width, top + grid.total, footer)
    sheet.legend(4, keys)
    shown = [(part, against, title) for part in (found, ratios) for against, title in PANELS.items()]
    for i, (part, against, title) in enumerate(shown):
        axes = grid.panel(sheet, i, top)
        names = [name for name in policies if name in set(part["policy"])]
        for number, name in enumerate(names):
            own = part[(part["policy"] == name) & (part["against"] == against)]
            x = own["layer"] + 0.08 * (number - (len(names) - 1) / 2)
            bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
            axes.plot(x, own["value"], linestyle=style[name].line, linewidth=1.3, **marker_style(style[name], 5))
            axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=style[name].light, elinewidth=0.8, capsize=2)
        what = "error" if part is found else "CAOTE over base"
        axes.set_title(f"{what} {title}".replace(" (", "\n("), loc="left", fontsize=SMALL, pad=4)
        axes.set_xlabel("layer")
        if part is found:
            axes.set_ylim(bottom=0)
        else:
            axes.axhline(1, color=MUTED, linewidth=1, linestyle=(0, (6, 3)))
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_yticks([ratio for ratio in RATIOS if low <= ratio <= high])
            axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
    return Sketch(
        sheet.figure, f"Squared error of attention outputs, relative to the dense output's norm ({n} prompts)."
    )


def layer_errors(frame: pd.DataFrame) -> pd.DataFrame:
    """``error`` by policy, reference, layer and sample: sums over passes and heads divided by sums."""
    sums = frame.groupby(["policy", "against", "layer", "sample_id"])[["squared_error", "squared_norm"]].sum()
    return (sums["squared_error"] / sums["squared_norm"]).rename("error").reset_index()


def by_layer(errors: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval over samples (`layer_errors`)."""
    return sample_means(errors, ["policy", "against", "layer"], "error")


def _corrected_over_base(errors: pd.DataFrame) -> pd.DataFrame:
    """The same of the error with CAOTE over that of its base on the same prompt; means and intervals of logarithms."""
    base = errors.assign(base=errors["policy"].str.partition("/")[0])
    corrected = errors[errors["policy"].str.startswith(CORRECTED)]
    corrected = corrected.assign(base=corrected["policy"].str.removeprefix(CORRECTED))
    both = corrected.merge(base, on=["base", "against", "layer", "sample_id"], suffixes=("", "_base"))
    both = both[(both["error_base"] > 0) & (both["error"] > 0)]
    found = by_layer(both.assign(error=np.log(both["error"] / both["error_base"])))
    return found.assign(**{name: np.exp(found[name]) for name in ("value", "low", "high")})


# A number for each layer and head, two maps: HashEvict Figure 8.


TITLES = {"lsh": "(a) LSH ranking", "l2": "(b) L2 norm ranking"}


def draw_layer_head_maps(data: FigureData, width: float) -> Sketch:
    """Both maps on one scale, so that they can be compared; the paper's is Eq. 7."""
    frame = data.internals("ranking_loss")
    found = sample_means(frame, ["ranking", "layer", "query_head"], "difference")
    n = count_text(found["n"])
    largest = float(found["value"].max())
    scale = Normalize(0, largest)
    footer = (
        f"{n} prompts, a cell is their mean; {interval_width_text(found)}. Layer across, query head down. 0: drops "
        "keys in the order of attention"
    )
    heads = found["query_head"].nunique()
    grid = PanelGrid.fit(width, len(TITLES), 240, max(160.0, min(16.0 * heads, 300.0)), left=38, below=28)
    sheet = FigureSheet(width, grid.total + BAR + 6, footer)
    for i, (ranking, title) in enumerate(TITLES.items()):
        part = found[found["ranking"] == ranking]
        own = part.pivot(index="query_head", columns="layer", values="value")
        axes = grid.panel(sheet, i, 0)
        room = grid.width / len(own.columns) >= 30 and grid.height / len(own) >= 14
        texts = [[f"{number:.0f}" if largest >= 10 else f"{number:.1f}" for number in line] for line in own.to_numpy()]
        draw_matrix(axes, own, scale, texts if room else None)
        axes.set_title(f"{title}: {part['value'].mean():.3g} on average", loc="left", fontsize=SMALL, pad=4)
        _index_ticks(axes, own)
    title = "cumulative attention loss (over dropped keys)"
    draw_colour_bar(sheet, 38, grid.total, min(260.0, width - 60), scale, title)
    return Sketch(sheet.figure, f"What attention it costs to drop keys in the order of a ranking ({n} prompts).")


def _index_ticks(axes: Axes, matrix: pd.DataFrame) -> None:
    across, down = tick_indices(len(matrix.columns), 8), tick_indices(len(matrix), 8)
    axes.set_xticks(across, [str(matrix.columns[i]) for i in across])
    axes.set_yticks(down, [str(matrix.index[i]) for i in down])


# Correlation of attention and inverted Hamming distance by hash size, layer and head: HashEvict Figure 9.


BITS = 16  # of panels b to d; the paper does not say
READINGS = {"pairs": ("blue", "o", "over pairs of tokens"), "keys": ("orange", "s", "over keys")}


def draw_correlations(data: FigureData, width: float, tables: tuple[str, ...]) -> Sketch:
    """Bars are standard deviations, as in the paper: over prompts, layers and heads."""
    frame = data.internals("lsh")
    n = frame["sample_id"].nunique()
    printed = _printed(data, tables)
    footer = (
        f"Pearson's correlation; n = {n} prompts; bars: standard deviations, as the paper's (not intervals of the "
        f"mean), over prompts, layers and heads; (b) to (d) at {BITS} bits; (d): means over prompts, pairs of tokens"
    )
    handles = [
        Line2D([], [], color=HUES[hue][0], marker=shape, markersize=4, linewidth=1.2, label=words)
        for hue, shape, words in READINGS.values()
    ]
    handles.append(_hollow(PUBLISHED))
    top = legend_height(handles, width) + 6
    alone = data.of_stand_in  # another model's correlations have an axis of their own
    grid = PanelGrid.fit(width, 4 + alone, 140 if width > 600 else 200, 170, left=44)
    sheet = FigureSheet(width, top + grid.total + BAR, footer)
    sheet.legend(4, handles)
    panels = [grid.panel(sheet, i, top) for i in range(4 + alone)]
    at = frame[frame["bits"] == BITS]
    for i, (reading, (hue, shape, _)) in enumerate(READINGS.items()):
        shift = 0.12 * (i - 0.5)
        own = frame[frame["over"] == reading]
        _points(panels[0], own, "bits", hue, shape, 6 * shift)
        _points(panels[1], at[at["over"] == reading], "layer", hue, shape, shift)
        _points(panels[2], at[at["over"] == reading], "query_head", hue, shape, shift)
    theirs = panels[4 if alone else 0]
    theirs.errorbar(
        printed["bits"], printed["pearson"], yerr=printed["pearson_std"], fmt="none", ecolor="#9aa1aa", elinewidth=0.8
    )
    theirs.plot(printed["bits"], printed["pearson"], **_marks())
    theirs.set_xticks(sorted(printed["bits"].unique()))
    panels[0].set_xticks(sorted(frame["bits"].unique()))
    means = at[at["over"] == "pairs"].pivot_table(index="query_head", columns="layer", values="pearson")
    scale = Normalize(float(means.to_numpy().min()), float(means.to_numpy().max()))
    room = grid.width / len(means.columns) >= 22 and grid.height / len(means) >= 14
    texts = [[f"{number:.2f}".replace("0.", ".") for number in line] for line in means.to_numpy()]
    draw_matrix(panels[3], means, scale, texts if room else None)
    _index_ticks(panels[3], means)
    titles = ("(a) by hash size", "(b) by layer", "(c) by query head", "(d) head by layer", "(a) in the paper")
    names = ("hash size (bits)", "layer", "query head", "layer", "hash size (bits)")
    for axes, title, name in zip(panels, titles, names, strict=False):
        axes.set_title(title, loc="left", fontsize=SMALL, pad=4)
        axes.set_xlabel(name, labelpad=1)
    for axes in (*panels[:3], theirs):
        axes.grid(axis="y")
    draw_colour_bar(sheet, 44, top + grid.total, min(220.0, width - 60), scale, "Pearson's correlation (d)")
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
