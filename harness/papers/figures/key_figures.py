"""Kept and evicted keys of one head in two dimensions, a panel for each policy: KeyDiff Figures 4 and 7 to 9."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.papers.figures.canvas import MUTED, VIRIDIS, FigureSheet, NotDrawnError, Sketch, legend_height
from harness.papers.figures.figure_data import FigureData, evenly_spaced, index_note, scaled_index
from harness.papers.figures.figure_means import count_text, sample_means
from harness.report.looks import look_of

PANEL = 158  # CSS pixels
LAYERS, HEADS = 28, 8  # of the paper's model, Llama-3.2-3B
EVICTED = "#a3abb5"


def draw_key_clouds(data: FigureData, layer: int, head: int) -> Sketch:
    """The keys of ``layer`` and KV head ``head`` of the paper's model, or of those at the same relative place."""
    points = data.one_sample("key_points")
    own_layer = scaled_index(layer, LAYERS, int(points["layer"].max()) + 1)
    own_head = scaled_index(head, HEADS, int(points["head"].max()) + 1)
    notes = (*index_note((layer,), (own_layer,), "layer"), *index_note((head,), (own_head,), "KV head"))
    points = points[(points["layer"] == own_layer) & (points["head"] == own_head)]
    policies = [name for name in data.policies if name in set(points["policy"])]
    rows = -(-(len(policies) + 1) // 2)
    handles = [_key("kept", MUTED, "o"), _key("evicted", EVICTED, "o")]
    top = legend_height(2, 2) + 4
    sample, tokens = points["sample_id"].iloc[0], int(points["position"].max()) + 1
    footer = (
        f"One prompt ({sample}, {tokens} tokens), layer {own_layer}, KV head {own_head}: no interval. Axes in units "
        "of the keys; components are of each policy's own run, so that clouds of deeper layers differ a little"
    )
    sheet = FigureSheet(top + rows * (PANEL + 40) + 8, footer)
    sheet.legend(4, handles, 2)
    limits = [_limits(points[axis]) for axis in ("pc1", "pc2")]
    for i, policy in enumerate([*policies, ""]):
        left, high = 44 + (i % 2) * (PANEL + 28), top + 18 + (i // 2) * (PANEL + 40)
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
        if i % 2 == 0:
            axes.set_ylabel("second component", labelpad=1)
        if i >= len(policies) - 1:
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


# Angles or lengths of a head's keys and queries, layer by layer: KeyDiff Figures 11 and 13.


HISTOGRAM_PANEL, BINS, HISTOGRAM_LAYERS = 76, 30, 4  # CSS pixels; bins of a histogram; layers that are shown
COLUMNS = {"angle": ("cosine_to_anchor", "cosine_to_mean_query"), "norm": ("norm", "norm")}
AXES = {
    "angle": ("angle to mean key (degrees)", "angle to mean query (degrees)"),
    "norm": ("L2 norm of keys", "L2 norm of queries"),
}


def draw_vector_histograms(data: FigureData, what: str) -> Sketch:
    """``what``: angle or norm. Keys on the left with a line for each KV head, queries on the right for query heads."""
    keys, queries = data.one_sample("key_points"), data.one_sample("query_points")
    layers = evenly_spaced(int(keys["layer"].max()) + 1, HISTOGRAM_LAYERS)
    sample, tokens = keys["sample_id"].iloc[0], int(keys["position"].max()) + 1
    sides = [
        (keys.assign(line=keys["head"]), COLUMNS[what][0], AXES[what][0]),
        (queries.assign(line=queries["query_head"]), COLUMNS[what][1], AXES[what][1]),
    ]
    footer = (
        f"One prompt ({sample}, {tokens} tokens): no interval. A line a head (KV heads left, query heads right, "
        "from dark to light), as a share of its tokens"
    )
    sheet = FigureSheet(len(layers) * (HISTOGRAM_PANEL + 18) + 44, footer)
    for column, (frame, name, axis) in enumerate(sides):
        numbers = _shown(frame[name], what)
        edges = np.linspace(numbers.min(), numbers.max(), BINS + 1)
        for i, layer in enumerate(layers):
            axes = sheet.panel(42 + column * 186, 16 + i * (HISTOGRAM_PANEL + 18), 166, HISTOGRAM_PANEL)
            _histograms(axes, numbers[frame["layer"] == layer], frame.loc[frame["layer"] == layer, "line"], edges)
            axes.set_yticks([])
            axes.set_title(f"layer {layer}", loc="left", fontsize=9, pad=1)
            if i < len(layers) - 1:
                axes.set_xticklabels([])
            else:
                axes.set_xlabel(axis)
    sheet.figure.text(0.05, 0.55, "share of tokens", rotation=90, va="center", ha="center")
    return Sketch(sheet.figure, f"{_words(what)} of all keys and queries of {len(layers)} layers on one prompt.")


def _shown(numbers: pd.Series, what: str) -> pd.Series:
    return np.degrees(np.arccos(numbers.clip(-1, 1))) if what == "angle" else numbers


def _histograms(axes: Axes, numbers: pd.Series, lines: pd.Series, edges: np.ndarray) -> None:
    heads = sorted(lines.unique())
    for i, head in enumerate(heads):
        own = numbers[lines == head]
        share = np.histogram(own, edges)[0] / len(own)
        axes.stairs(share, edges, color=VIRIDIS(0.85 * i / max(1, len(heads) - 1)), linewidth=1)


def _words(what: str) -> str:
    return "Angles to the head's mean" if what == "angle" else "L2 norms"


# How the volume that kept keys span is distributed over prompts, layers and heads: KeyDiff Figure 5.


VOLUME_BINS = 24


def draw_volumes(data: FigureData) -> Sketch:
    """A histogram a policy, as a share of all heads, layers and prompts, with its mean and interval in the key."""
    found = data.internals("log_det")
    finite = found[np.isfinite(found["log_det"])]
    if finite.empty:
        raise NotDrawnError("No stored head keeps keys that span a volume.")
    lost = len(found) - len(finite)
    notes: tuple[str, ...] = (
        (f"{lost} of {len(found)} heads span no volume (log det = -inf) and are left out.",) if lost else ()
    )
    means = sample_means(finite, ["policy"], "log_det").set_index("policy")
    policies = [name for name in data.policies if name in means.index]
    handles = []
    for name in policies:
        mean, look = means.loc[name], look_of(name)
        label = f"{name}: mean {mean['value']:.1f} [{mean['low']:.1f}, {mean['high']:.1f}]"
        handles.append(Line2D([], [], color=look.light, linewidth=2, label=label))
    top = legend_height(len(handles), 1) + 6
    n = count_text(means["n"])
    kept = sorted(found["keys"].unique())
    sheet = FigureSheet(
        top + 222, f"{n} prompts, all layers and KV heads; [ ]: 95 % intervals of the mean over prompts"
    )
    sheet.legend(4, handles, 1)
    axes = sheet.panel(52, top + 8, 336, 170)
    edges = np.linspace(finite["log_det"].min(), finite["log_det"].max(), VOLUME_BINS + 1)
    for name in policies:
        own = finite[finite["policy"] == name]["log_det"]
        share = np.histogram(own, edges)[0] / len(own)
        axes.stairs(share, edges, color=look_of(name).light, linewidth=1.6)
        axes.stairs(share, edges, color=look_of(name).light, fill=True, alpha=0.14)
        axes.axvline(float(means["value"][name]), color=look_of(name).light, linewidth=1, linestyle=":")
    axes.set_xlabel("log det of the kept keys' Gram matrix (nats)")
    axes.set_ylabel("share of heads and prompts")
    if len(kept) > 1:
        notes += ("Prompts of several lengths leave several numbers of keys, and a volume grows with them.",)
    sizes = f"{kept[0]}" if len(kept) == 1 else f"{kept[0]} to {kept[-1]}"
    return Sketch(sheet.figure, f"Volume spanned by {sizes} kept keys per head ({n} prompts).", notes)
