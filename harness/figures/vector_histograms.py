"""Angles or lengths of a head's keys and queries, layer by layer: KeyDiff Figures 11 and 13."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.canvas import Sheet
from harness.figures.drawing import Sketch
from harness.figures.heads import spread_over
from harness.figures.maps import VIRIDIS
from harness.figures.material import Material

PANEL, BINS, LAYERS = 76, 30, 4  # CSS pixels; bins of a histogram; layers that are shown
COLUMNS = {"angle": ("cosine_to_anchor", "cosine_to_mean_query"), "norm": ("norm", "norm")}
AXES = {
    "angle": ("angle to mean key (degrees)", "angle to mean query (degrees)"),
    "norm": ("L2 norm of keys", "L2 norm of queries"),
}


def draw(material: Material, what: str) -> Sketch:
    """``what``: angle or norm. Keys on the left with a line for each KV head, queries on the right for query heads."""
    keys, queries = material.one_sample("key_points"), material.one_sample("query_points")
    layers = spread_over(int(keys["layer"].max()) + 1, LAYERS)
    sample, tokens = keys["sample_id"].iloc[0], int(keys["position"].max()) + 1
    sides = [
        (keys.assign(line=keys["head"]), COLUMNS[what][0], AXES[what][0]),
        (queries.assign(line=queries["query_head"]), COLUMNS[what][1], AXES[what][1]),
    ]
    footer = (
        f"One prompt ({sample}, {tokens} tokens): no interval. A line a head (KV heads left, query heads right, "
        "from dark to light), as a share of its tokens"
    )
    sheet = Sheet(len(layers) * (PANEL + 18) + 44, footer)
    for column, (frame, name, axis) in enumerate(sides):
        numbers = _shown(frame[name], what)
        edges = np.linspace(numbers.min(), numbers.max(), BINS + 1)
        for place, layer in enumerate(layers):
            axes = sheet.panel(42 + column * 186, 16 + place * (PANEL + 18), 166, PANEL)
            _histograms(axes, numbers[frame["layer"] == layer], frame.loc[frame["layer"] == layer, "line"], edges)
            axes.set_yticks([])
            axes.set_title(f"layer {layer}", loc="left", fontsize=9, pad=1)
            if place < len(layers) - 1:
                axes.set_xticklabels([])
            else:
                axes.set_xlabel(axis)
    sheet.figure.text(0.05, 0.55, "share of tokens", rotation=90, va="center", ha="center")
    return Sketch(sheet.figure, f"{_words(what)} of all keys and queries of {len(layers)} layers on one prompt.")


def _shown(numbers: pd.Series, what: str) -> pd.Series:
    return np.degrees(np.arccos(numbers.clip(-1, 1))) if what == "angle" else numbers


def _histograms(axes: Axes, numbers: pd.Series, lines: pd.Series, edges: np.ndarray) -> None:
    heads = sorted(lines.unique())
    for place, head in enumerate(heads):
        own = numbers[lines == head]
        share = np.histogram(own, edges)[0] / len(own)
        axes.stairs(share, edges, color=VIRIDIS(0.85 * place / max(1, len(heads) - 1)), linewidth=1)


def _words(what: str) -> str:
    return "Angles to the head's mean" if what == "angle" else "L2 norms"
