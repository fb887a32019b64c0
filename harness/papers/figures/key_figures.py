"""Kept and evicted keys of one head in two dimensions, a panel for each policy: KeyDiff Figures 4 and 7 to 9."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.papers.figures.canvas import SMALL, FigureSheet, NotDrawnError, Sketch, legend_height
from harness.papers.figures.figure_data import FigureData, evenly_spaced, index_note, scaled_index
from harness.papers.figures.figure_means import count_text, first_prompts, sample_means
from harness.papers.figures.matrix_panels import VIRIDIS
from harness.papers.figures.panel_grid import PanelGrid
from harness.report.looks import look_of

LAYERS, HEADS = 28, 8  # of the paper's model, Llama-3.2-3B
EVICTED = "#a3abb5"
HEADING = 22  # CSS pixels of the line above a prompt's panels


def draw_key_clouds(data: FigureData, width: float, layer: int, head: int) -> Sketch:
    """The keys of ``layer`` and KV head ``head`` of the paper's model, or of those at the same relative place."""
    points = data.first_samples("key_points")
    own_layer = scaled_index(layer, LAYERS, int(points["layer"].max()) + 1)
    own_head = scaled_index(head, HEADS, int(points["head"].max()) + 1)
    notes = (*index_note((layer,), (own_layer,), "layer"), *index_note((head,), (own_head,), "KV head"))
    points = points[(points["layer"] == own_layer) & (points["head"] == own_head)]
    policies = [name for name in data.policies if name in set(points["policy"])]
    samples = list(dict.fromkeys(points["sample_id"]))
    handles = [_key("evicted", EVICTED, "o")]
    handles += [_key(f"kept by {name}", look_of(name).light, look_of(name).marker) for name in policies]
    key = legend_height(handles, width) + 4
    footer = (
        f"Rule: {first_prompts(samples)}; layer and head of the paper, at the same relative place (layer {own_layer}, "
        f"KV head {own_head}). First component across, second up, in units of the keys; components are of each "
        "policy's own run, so that clouds of deeper layers differ a little. Single prompts: no interval"
    )
    grid = PanelGrid.fit(width, len(policies) + 1, 110, 150 if width > 600 else 110, left=36, above=20, below=24)
    sheet = FigureSheet(width, key + len(samples) * (HEADING + grid.total) + 4, footer)
    sheet.legend(4, handles)
    for number, sample in enumerate(samples):
        top = key + number * (HEADING + grid.total)
        of_sample = points[points["sample_id"] == sample]
        sheet.text(6, top + 4, f"prompt {sample}, {int(of_sample['position'].max()) + 1} tokens", weight="bold")
        limits = [_limits(of_sample[axis]) for axis in ("pc1", "pc2")]
        for i, policy in enumerate([*policies, ""]):
            axes = grid.panel(sheet, i, top + HEADING)
            own = of_sample[of_sample["policy"] == policy]
            if policy:
                _cloud(axes, own[~own["kept"]], EVICTED, "o", 5, 0.8)
            for each in [policy] if policy else policies:
                kept = of_sample[(of_sample["policy"] == each) & of_sample["kept"]]
                _cloud(axes, kept, look_of(each).light, look_of(each).marker, 9, 0.75)
            axes.set(xlim=limits[0], ylim=limits[1])
            axes.locator_params(nbins=4)
            title = f"{policy}: {int(own['kept'].sum())} kept" if policy else "kept keys of all"
            axes.set_title(title, loc="left", fontsize=SMALL, pad=4)
    says = f"Principal components of all keys of layer {own_layer}, KV head {own_head}; {first_prompts(samples)}."
    return Sketch(sheet.figure, says, notes)


def _cloud(axes: Axes, points: pd.DataFrame, colour: str, marker: str, size: float, alpha: float) -> None:
    # As pixels inside the SVG: a prompt of the paper's length has tens of thousands of keys.
    size = 2.2 * size if marker == "*" else size
    axes.scatter(
        points["pc1"], points["pc2"], s=size, c=colour, marker=marker, alpha=alpha, linewidths=0, rasterized=True
    )


def _key(label: str, colour: str, marker: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker=marker, markersize=6, color=colour, label=label)


def _limits(numbers: pd.Series) -> tuple[float, float]:
    low, high = float(numbers.min()), float(numbers.max())
    room = 0.05 * (high - low) or 1.0
    return float(np.floor(low - room)), float(np.ceil(high + room))


# Angles or lengths of heads' keys and queries, layer by layer: KeyDiff Figures 11 and 13.


BINS, HISTOGRAM_LAYERS = 30, 6  # bins of a histogram; layers that are shown
COLUMNS = {"angle": ("cosine_to_anchor", "cosine_to_mean_query"), "norm": ("norm", "norm")}
AXES = {
    "angle": ("angle to the mean key (degrees)", "angle to the mean query (degrees)"),
    "norm": ("L2 norm of keys", "L2 norm of queries"),
}


def draw_vector_histograms(data: FigureData, width: float, what: str) -> Sketch:
    """``what``: angle or norm. A panel a layer; keys with a line for each KV head, then queries for query heads."""
    keys, queries = data.first_samples("key_points"), data.first_samples("query_points")
    layers = evenly_spaced(int(keys["layer"].max()) + 1, HISTOGRAM_LAYERS)
    samples = list(dict.fromkeys(keys["sample_id"]))
    sides = [
        (keys.assign(line=keys["head"]), COLUMNS[what][0], AXES[what][0]),
        (queries.assign(line=queries["query_head"]), COLUMNS[what][1], AXES[what][1]),
    ]
    footer = (
        f"Rule: all heads of up to {HISTOGRAM_LAYERS} evenly spaced layers, {first_prompts(samples)}. A line a head "
        "(from dark to light): the share of a prompt's tokens, averaged over the prompts; its band reaches from the "
        "smallest to the largest of them (no interval: the prompts are too few)"
    )
    grid = PanelGrid.fit(width, len(layers), 120, 88, left=34, right=8, above=20, below=24)
    sheet = FigureSheet(width, 2 * (HEADING + grid.total) + 4, footer)
    for row, (frame, name, axis) in enumerate(sides):
        numbers = _shown(frame[name], what)
        edges = np.linspace(numbers.min(), numbers.max(), BINS + 1)
        top = row * (HEADING + grid.total)
        sheet.text(6, top + 4, axis, weight="bold")
        for i, layer in enumerate(layers):
            axes = grid.panel(sheet, i, top + HEADING)
            own = frame["layer"] == layer
            _histograms(axes, numbers[own], frame.loc[own, "line"], frame.loc[own, "sample_id"], edges)
            axes.locator_params(nbins=4)
            axes.set_title(f"layer {layer}", loc="left", fontsize=SMALL, pad=3)
    return Sketch(
        sheet.figure, f"{_words(what)} of all keys and queries of {len(layers)} layers, {first_prompts(samples)}."
    )


def _shown(numbers: pd.Series, what: str) -> pd.Series:
    return np.degrees(np.arccos(numbers.clip(-1, 1))) if what == "angle" else numbers


def _histograms(axes: Axes, numbers: pd.Series, lines: pd.Series, samples: pd.Series, edges: np.ndarray) -> None:
    heads = sorted(lines.unique())
    for i, head in enumerate(heads):
        own = numbers[lines == head]
        shares = np.array([np.histogram(part, edges)[0] / len(part) for _, part in own.groupby(samples[own.index])])
        colour = VIRIDIS(0.85 * i / max(1, len(heads) - 1))
        axes.stairs(shares.mean(0), edges, color=colour, linewidth=1)
        axes.stairs(shares.max(0), edges, baseline=shares.min(0), fill=True, color=colour, alpha=0.15)
    axes.set_ylim(bottom=0)


def _words(what: str) -> str:
    return "Angles to the head's mean" if what == "angle" else "L2 norms"


# How the volume that kept keys span is distributed over prompts, layers and heads: KeyDiff Figure 5.


VOLUME_BINS = 24


def draw_volumes(data: FigureData, width: float) -> Sketch:
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
        label = f"{name}: {mean['value']:.1f} [{mean['low']:.1f}, {mean['high']:.1f}]"
        handles.append(Line2D([], [], color=look.light, linewidth=2, label=label))
    top = legend_height(handles, width) + 6
    n = count_text(means["n"])
    kept = sorted(found["keys"].unique())
    grid = PanelGrid.fit(width, 1, 200, 230, below=44)
    footer = f"{n} prompts, all layers and KV heads; dotted: means, with 95 % intervals over prompts in the key"
    sheet = FigureSheet(width, top + grid.total, footer)
    sheet.legend(4, handles)
    axes = grid.panel(sheet, 0, top)
    edges = np.linspace(finite["log_det"].min(), finite["log_det"].max(), VOLUME_BINS + 1)
    for name in policies:
        own = finite[finite["policy"] == name]["log_det"]
        share = np.histogram(own, edges)[0] / len(own)
        axes.stairs(share, edges, color=look_of(name).light, linewidth=1.6)
        axes.stairs(share, edges, color=look_of(name).light, fill=True, alpha=0.14)
        axes.axvline(float(means["value"][name]), color=look_of(name).light, linewidth=1.2, linestyle=":")
    axes.set_xlabel("log det of the kept keys' Gram matrix (nats)")
    axes.set_title("share of heads and prompts", loc="left", fontsize=SMALL, pad=4)
    if len(kept) > 1:
        notes += ("Prompts of several lengths leave several numbers of keys, and a volume grows with them.",)
    sizes = f"{kept[0]}" if len(kept) == 1 else f"{kept[0]} to {kept[-1]}"
    return Sketch(sheet.figure, f"Volume spanned by {sizes} kept keys per head ({n} prompts).", notes)
