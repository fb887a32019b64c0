"""One number for each head, in several layers: KeyDiff Figures 12 and 14."""

from __future__ import annotations

import numpy as np

from harness.figures.canvas import MUTED, Sheet
from harness.figures.drawing import Sketch
from harness.figures.estimates import count, over_samples
from harness.figures.heads import spread_over
from harness.figures.material import Material
from harness.report.colours import HUES

PANEL, LAYERS = 74, 6  # CSS pixels; layers that are shown


def draw(material: Material, column: str, title: str) -> Sketch:
    """A panel a layer, a bar a query head; whiskers are intervals over samples."""
    frame = material.internals("key_query")
    found = over_samples(frame, ["layer", "query_head"], column)
    layers = spread_over(int(found["layer"].max()) + 1, LAYERS)
    n = count(found["n"])
    lines = -(-len(layers) // 2)
    over = "over prompts" if found["n"].max() > 1 else "(one prompt: none)"
    sheet = Sheet(lines * (PANEL + 20) + 40, f"{n} prompts; whiskers: 95 % intervals {over}; a bar a query head")
    values = np.array([found["value"].min(), found["value"].max(), *found[["low", "high"]].stack().dropna()])
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    for place, layer in enumerate(layers):
        own = found[found["layer"] == layer]
        axes = sheet.panel(52 + (place % 2) * 178, 16 + (place // 2) * (PANEL + 20), 156, PANEL)
        axes.bar(own["query_head"], own["value"], 0.8, color=HUES["blue"][0])
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        axes.errorbar(own["query_head"], own["value"], yerr=bars, fmt="none", ecolor=MUTED, elinewidth=0.9, capsize=1.5)
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        axes.set_title(f"layer {layer}", loc="left", fontsize=9, pad=2)
        if place % 2:
            axes.set_yticklabels([])
        axes.grid(axis="y")
        if place >= len(layers) - 2:
            axes.set_xlabel("query head")
        else:
            axes.set_xticklabels([])
    sheet.figure.text(0.022, 0.55, title, rotation=90, va="center", ha="center")
    negative = float((found["value"] < 0).mean())
    says = f"{title[0].upper()}{title[1:]} for each query head ({n} prompts); negative in {negative:.0%} of all heads."
    return Sketch(sheet.figure, says)
