"""Correlation of attention and inverted Hamming distance by hash size, layer and head: HashEvict Figure 9."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from harness.figures.canvas import PUBLISHED, Sheet
from harness.figures.drawing import Sketch
from harness.figures.maps import bar, grid, spaced
from harness.figures.material import Material
from harness.report.colours import HUES

BITS = 16  # of panels b to d; the paper does not say
READINGS = {"pairs": ("blue", "o", "over pairs of tokens"), "keys": ("orange", "s", "over keys")}


def draw(material: Material, tables: tuple[str, ...]) -> Sketch:
    """Bars are standard deviations, as in the paper: over prompts, layers and heads."""
    frame = material.internals("lsh")
    n = frame["sample_id"].nunique()
    printed = _printed(material, tables)
    footer = (
        f"n = {n} prompts; bars: standard deviations, as the paper's (not intervals of the mean), over prompts, layers "
    )
    footer += f"and heads; b to d at {BITS} bits; d: means over prompts, pairs of tokens"
    sheet = Sheet(446, footer)
    places = [(46, 44), (238, 44), (46, 236), (238, 236)]
    panels = [sheet.panel(left, top, 150, 136) for left, top in places]
    handles = [
        Line2D([], [], color=HUES[hue][0], marker=shape, markersize=4, linewidth=1.2, label=words)
        for hue, shape, words in READINGS.values()
    ]
    sheet.legend(4, [*handles, _hollow(PUBLISHED)], 3)
    at = frame[frame["bits"] == BITS]
    for place, (reading, (hue, shape, _)) in enumerate(READINGS.items()):
        shift = 0.12 * (place - 0.5)
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
    grid(panels[3], means, scale, texts if room else None, size=8)
    for axis, size, ticks in (("x", len(means.columns), means.columns), ("y", len(means), means.index)):
        shown = spaced(size, 8)
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
    bar(sheet, 238, 416, 150, scale, "Pearson's correlation (d)")
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


def _printed(material: Material, tables: tuple[str, ...]) -> pd.DataFrame:
    """``bits``, ``pearson``, ``pearson_std``."""
    found = material.printed(tables)
    found = found.assign(bits=found["note"].str.extract(r"hash_bits=(\d+)", expand=False).astype(int))
    return found.pivot_table(index="bits", columns="metric", values="value").reset_index()
