"""Kept and evicted keys of one head in two dimensions, a panel for each policy: KeyDiff Figures 4 and 7 to 9."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.figures.canvas import MUTED, Sheet, legend_height
from harness.figures.drawing import Sketch
from harness.figures.heads import said, stand_in
from harness.figures.material import Material
from harness.report.colours import look_of

PANEL = 158  # CSS pixels
LAYERS, HEADS = 28, 8  # of the paper's model, Llama-3.2-3B
EVICTED = "#a3abb5"


def draw(material: Material, layer: int, head: int) -> Sketch:
    """The keys of ``layer`` and KV head ``head`` of the paper's model, or of those at the same relative place."""
    points = material.one_sample("key_points")
    own_layer = stand_in(layer, LAYERS, int(points["layer"].max()) + 1)
    own_head = stand_in(head, HEADS, int(points["head"].max()) + 1)
    notes = (*said((layer,), (own_layer,), "layer"), *said((head,), (own_head,), "KV head"))
    points = points[(points["layer"] == own_layer) & (points["head"] == own_head)]
    policies = [name for name in material.policies if name in set(points["policy"])]
    rows = -(-(len(policies) + 1) // 2)
    handles = [_key("kept", MUTED, "o"), _key("evicted", EVICTED, "o")]
    top = legend_height(2, 2) + 4
    sample, tokens = points["sample_id"].iloc[0], int(points["position"].max()) + 1
    footer = (
        f"One prompt ({sample}, {tokens} tokens), layer {own_layer}, KV head {own_head}: no interval. Axes in units "
        "of the keys; components are of each policy's own run, so that clouds of deeper layers differ a little"
    )
    sheet = Sheet(top + rows * (PANEL + 40) + 8, footer)
    sheet.legend(4, handles, 2)
    limits = [_limits(points[axis]) for axis in ("pc1", "pc2")]
    for place, policy in enumerate([*policies, ""]):
        left, high = 44 + (place % 2) * (PANEL + 28), top + 18 + (place // 2) * (PANEL + 40)
        axes = sheet.panel(left, high, PANEL, PANEL - 16)
        own = points[points["policy"] == policy]
        if policy:
            _cloud(axes, own[~own["kept"]], EVICTED, "o", 5, 0.8)
            _cloud(axes, own[own["kept"]], look_of(policy).light, look_of(policy).marker, 10, 0.8)
            title = f"{policy} (kept {int(own['kept'].sum())})"
        else:
            for each in policies:
                kept = points[(points["policy"] == each) & points["kept"]]
                _cloud(axes, kept, look_of(each).light, look_of(each).marker, 9, 0.65)
            title = "kept keys only"
        axes.set(xlim=limits[0], ylim=limits[1])
        axes.set_title(title, loc="left", pad=4)
        if place % 2 == 0:
            axes.set_ylabel("second component", labelpad=1)
        if place >= len(policies) - 1:
            axes.set_xlabel("first component", labelpad=1)
    says = (
        f"Principal components of all keys of layer {own_layer}, KV head {own_head}, on one prompt of {tokens} tokens."
    )
    return Sketch(sheet.figure, says, notes)


def _cloud(axes: Axes, points: pd.DataFrame, colour: str, marker: str, size: float, alpha: float) -> None:
    # As pixels inside the SVG: a prompt of the paper's length has tens of thousands of keys.
    size = 2.2 * size if marker == "*" else size
    axes.scatter(
        points["pc1"], points["pc2"], s=size, c=colour, marker=marker, alpha=alpha, linewidths=0, rasterized=True
    )


def _key(label: str, colour: str, marker: str) -> Line2D:
    words = f"{label} (in the policy's colour)" if label == "kept" else label
    return Line2D([], [], linestyle="none", marker=marker, markersize=5, color=colour, label=words)


def _limits(numbers: pd.Series) -> tuple[float, float]:
    low, high = float(numbers.min()), float(numbers.max())
    room = 0.05 * (high - low) or 1.0
    return float(np.floor(low - room)), float(np.ceil(high + room))
