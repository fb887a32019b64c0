"""Maps over a prompt's first tokens: cosines and attention (KeyDiff Figure 2), attention and norms (HashEvict 7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.ticker import MaxNLocator

from harness.papers.figures.canvas import SMALL, FigureSheet, Sketch
from harness.papers.figures.figure_data import SPREAD_WORDS, FigureData, index_note, scaled_index, spread_of_heads
from harness.papers.figures.figure_means import first_prompts, sample_means
from harness.papers.figures.matrix_panels import BAR, draw_colour_bar, draw_matrix
from harness.papers.figures.panel_grid import PanelGrid
from harness.report.looks import HUES

LAYERS, HEADS = 32, 32  # of HashEvict's model, Llama-3-8B
ATTENTION = PowerNorm(0.4, 0, 1)  # most attention weights are small
HEADING = 22  # CSS pixels of the line above a prompt's panels


def draw_cosines_and_attention(data: FigureData, width: float) -> Sketch:
    """Pairs of maps for heads from one end of the correlation to the other. The paper chose two heads by eye."""
    frame = data.first_samples("first_tokens")
    frame = frame[frame["policy"] == frame["policy"].iloc[0]]
    samples = list(dict.fromkeys(frame["sample_id"]))
    found = _correlations(frame)
    overall = sample_means(found, ["layer", "query_head"], "r").set_index(["layer", "query_head"])
    chosen = spread_of_heads(overall["value"])
    tokens = int(frame["key"].max()) + 1
    mean = sample_means(found.assign(every=0), ["every"], "r").iloc[0]
    footer = (
        f"Rule: {first_prompts(samples)}, {SPREAD_WORDS} of r (mean over these prompts; {len(overall)} heads). First "
        f"{tokens} tokens, no eviction. r: correlation of a key's mean cosine and the attention that later tokens give "
        f"it; left of each pair key by key, right query (down) by key (across). {_spread_text(overall, mean)}"
    )
    grid = PanelGrid.fit(width, 2 * len(chosen), 110, left=36, right=10, above=36, below=24)
    bars = BAR if width > 600 else 2 * BAR
    sheet = FigureSheet(width, len(samples) * (HEADING + grid.total) + bars + 6, footer)
    rs = found.set_index(["sample_id", "layer", "query_head"])["r"]
    for number, sample in enumerate(samples):
        top = number * (HEADING + grid.total)
        sheet.text(6, top + 4, f"prompt {sample}", weight="bold")
        for i, (layer, head) in enumerate(chosen):
            own = frame[(frame["sample_id"] == sample) & (frame["layer"] == layer) & (frame["query_head"] == head)]
            cosine, attention = (grid.panel(sheet, 2 * i + side, top + HEADING) for side in (0, 1))
            draw_matrix(cosine, _matrix(own, "cosine"), Normalize(-1, 1))
            draw_matrix(attention, _matrix(own, "attention").where(_earlier(own)), ATTENTION)
            words = f"layer {layer}, head {head}\nr = {rs[(sample, layer, head)]:.2f}; cosine"
            cosine.set_title(words, loc="left", fontsize=SMALL, pad=4)
            attention.set_title("attention", loc="left", fontsize=SMALL, pad=4)
            for axes in (cosine, attention):
                _ticks(axes, tokens)
    low = len(samples) * (HEADING + grid.total)
    draw_colour_bar(sheet, 36, low, 240, Normalize(-1, 1), "cosine of two keys")
    left, down = (340, 0) if width > 600 else (36, BAR)
    draw_colour_bar(sheet, left, low + down, 240, ATTENTION, "attention weight")
    return Sketch(sheet.figure, "Cosines between keys beside attention. " + _spread_text(overall, mean))


def _spread_text(overall: pd.DataFrame, mean: pd.Series) -> str:
    negative = float((overall["value"] < 0).mean())
    words = f"r is negative in {negative:.0%} of the heads, {mean['value']:.2f} on average"
    return words + (
        f" (95 % interval {mean['low']:.2f} to {mean['high']:.2f})." * bool(np.isfinite(mean["low"])) or "."
    )


def draw_attention_and_norms(data: FigureData, width: float, layer: int, heads: tuple[int, ...]) -> Sketch:
    """The attention of the first tokens above the norms of their keys, without the first token's."""
    frame, points = data.first_samples("first_tokens"), data.first_samples("key_points")
    samples = [name for name in dict.fromkeys(frame["sample_id"]) if name in set(points["sample_id"])]
    count = int(frame["query_head"].max()) + 1
    group = count // (int(points["head"].max()) + 1)
    own_layer = scaled_index(layer, LAYERS, int(frame["layer"].max()) + 1)
    own_heads = list(dict.fromkeys(scaled_index(head, HEADS, count) for head in heads))
    notes = (*index_note((layer,), (own_layer,), "layer"), *index_note(heads, own_heads, "query head"))
    tokens = int(frame["key"].max()) + 1
    footer = (
        f"Rule: {first_prompts(samples)}; layer and heads of the paper, at the same relative place. First {tokens} "
        "tokens, no eviction: single prompts, no interval. Above query (down) by key (across), below the norms of the "
        "keys without the first token's, as in the paper"
    )
    strip = 54.0
    grid = PanelGrid.fit(width, len(own_heads), 100, left=38, right=10, above=20, below=strip + 34)
    sheet = FigureSheet(width, len(samples) * (HEADING + grid.total) + BAR + 6, footer)
    for number, sample in enumerate(samples):
        top = number * (HEADING + grid.total)
        sheet.text(6, top + 4, f"prompt {sample}, layer {own_layer}", weight="bold")
        for i, head in enumerate(own_heads):
            own = frame[(frame["sample_id"] == sample) & (frame["layer"] == own_layer) & (frame["query_head"] == head)]
            attention = grid.panel(sheet, i, top + HEADING)
            draw_matrix(attention, _matrix(own, "attention").where(_earlier(own)), ATTENTION)
            attention.set_title(f"query head {head}", loc="left", fontsize=SMALL, pad=3)
            _ticks(attention, tokens)
            attention.set_xticklabels([])
            norms = points[
                (points["sample_id"] == sample) & (points["layer"] == own_layer) & (points["head"] == head // group)
                & points["position"].between(1, tokens - 1)
            ]  # fmt: skip
            _norms(_below(sheet, attention, strip), norms, tokens)
    draw_colour_bar(sheet, 38, len(samples) * (HEADING + grid.total), 240, ATTENTION, "attention weight")
    says = f"Attention and key norms in layer {own_layer}, first {tokens} tokens; {first_prompts(samples)}."
    return Sketch(sheet.figure, says, notes)


def _below(sheet: FigureSheet, axes: Axes, height: float) -> Axes:
    """A strip below a panel, as wide as it."""
    box = axes.get_position()
    left, width = box.x0 * sheet.width, box.width * sheet.width
    return sheet.panel(left, (1 - box.y0) * sheet.height + 8, width, height - 8)


def _norms(axes: Axes, norms: pd.DataFrame, tokens: int) -> None:
    axes.plot(norms["position"], norms["norm"], color=HUES["blue"][0], linewidth=1)
    axes.set_xlim(-0.5, tokens - 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    positions = list(range(0, tokens, 16))
    axes.set_xticks(positions, [str(i) for i in positions])
    axes.tick_params(pad=2)


def _correlations(frame: pd.DataFrame) -> pd.DataFrame:
    """``r`` by sample, layer and query head: does a key that is like the others get attention?"""
    found: list[tuple[Any, ...]] = []
    for i, own in frame.groupby(["sample_id", "layer", "query_head"], sort=True):
        cosine, attention = _matrix(own, "cosine").to_numpy(), _matrix(own, "attention").to_numpy()
        size = len(cosine)
        alike = (cosine.sum(0) - 1) / (size - 1)
        later = np.tril(np.ones_like(attention), -1).sum(0)
        received = np.tril(attention, -1).sum(0)[:-1] / later[:-1]
        found.append((*i, float(np.corrcoef(alike[:-1], received)[0, 1])))
    return pd.DataFrame(found, columns=["sample_id", "layer", "query_head", "r"])


def _matrix(own: pd.DataFrame, column: str) -> pd.DataFrame:
    return own.pivot(index="query", columns="key", values=column)


def _earlier(own: pd.DataFrame) -> np.ndarray:
    size = int(own["key"].max()) + 1
    return np.tril(np.ones((size, size), dtype=bool))


def _ticks(axes: Axes, tokens: int) -> None:
    positions = list(range(0, tokens, 32 if tokens > 40 else 16))
    axes.set_xticks(positions, [str(i) for i in positions])
    axes.set_yticks(positions, [str(i) for i in positions])
