"""Maps over the first tokens of a prompt: KeyDiff Figure 2 (key cosines and attention), HashEvict Figure 7 (attention
above key norms)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.ticker import MaxNLocator

from harness.figures.canvas import Sheet
from harness.figures.drawing import Sketch
from harness.figures.heads import said, stand_in
from harness.figures.maps import bar, grid
from harness.figures.material import Material
from harness.report.colours import HUES

LAYERS, HEADS = 32, 32  # of HashEvict's model, Llama-3-8B
ATTENTION = PowerNorm(0.4, 0, 1)  # most attention weights are small


def cosines_and_attention(material: Material) -> Sketch:
    """Two heads: the one where alike keys get least attention, and the median one. The paper chose two by eye."""
    frame = material.one_sample("first_tokens")
    frame = frame[frame["policy"] == frame["policy"].iloc[0]]
    ranked = _correlations(frame)
    chosen = [ranked.index[0], ranked.index[len(ranked) // 2]]
    tokens = int(frame["key"].max()) + 1
    sample = frame["sample_id"].iloc[0]
    footer = (
        f"One prompt ({sample}), its first {tokens} tokens, no eviction: no interval. r: correlation of a key's mean "
    )
    footer += f"cosine and its attention; left the lowest of {len(ranked)} heads, right the median one"
    sheet = Sheet(450, footer)
    side = 160.0
    for column, (layer, head) in enumerate(chosen):
        own = frame[(frame["layer"] == layer) & (frame["query_head"] == head)]
        left = 40 + column * 190
        cosine = sheet.panel(left, 22, side, side)
        grid(cosine, _matrix(own, "cosine"), Normalize(-1, 1))
        cosine.set_title(f"layer {layer}, head {head} (r = {ranked[(layer, head)]:.2f})", loc="left", fontsize=9, pad=4)
        attention = sheet.panel(left, 212, side, side)
        grid(attention, _matrix(own, "attention").where(_earlier(own)), ATTENTION)
        for axes, name in ((cosine, "key"), (attention, "query")):
            _ticks(axes, tokens)
            if column == 0:
                axes.set_ylabel(f"{name} (position)", labelpad=1)
        attention.set_xlabel("key (position)", labelpad=1)
    bar(sheet, 40, 420, 160, Normalize(-1, 1), "cosine of two keys (above)")
    bar(sheet, 230, 420, 160, ATTENTION, "attention weight (below)")
    return Sketch(
        sheet.figure, f"Cosines between keys (above) and attention (below), first {tokens} tokens of one prompt."
    )


def attention_and_norms(material: Material, layer: int, heads: tuple[int, ...]) -> Sketch:
    """The attention of the first tokens above the norms of their keys, without the first token's."""
    frame, points = material.one_sample("first_tokens"), material.one_sample("key_points")
    count = int(frame["query_head"].max()) + 1
    group = count // (int(points["head"].max()) + 1)
    own_layer = stand_in(layer, LAYERS, int(frame["layer"].max()) + 1)
    own_heads = list(dict.fromkeys(stand_in(head, HEADS, count) for head in heads))
    notes = (*said((layer,), (own_layer,), "layer"), *said(heads, own_heads, "query head"))
    tokens = int(frame["key"].max()) + 1
    footer = (
        f"One prompt ({frame['sample_id'].iloc[0]}), its first {tokens} tokens, no eviction: no interval. Norms leave "
    )
    footer += "out the first token, as in the paper"
    side = 94.0
    sheet = Sheet(2 * (side + 84) + 22, footer)
    for place, head in enumerate(own_heads):
        left, top = 40 + (place % 3) * (side + 32), 18 + (place // 3) * (side + 84)
        own = frame[(frame["layer"] == own_layer) & (frame["query_head"] == head)]
        attention = sheet.panel(left, top, side, side)
        grid(attention, _matrix(own, "attention").where(_earlier(own)), ATTENTION)
        attention.set_title(f"head {head}", loc="left", fontsize=9, pad=3)
        _ticks(attention, tokens)
        attention.set_xticklabels([])
        norms = points[
            (points["layer"] == own_layer) & (points["head"] == head // group) & (points["position"] < tokens)
        ]
        norms = norms[norms["position"] > 0]
        below = sheet.panel(left, top + side + 6, side, 42)
        below.plot(norms["position"], norms["norm"], color=HUES["blue"][0], linewidth=1)
        below.set_xlim(-0.5, tokens - 0.5)
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        below.tick_params(labelsize=8, pad=2)
        if place % 3 == 0:
            attention.set_ylabel("query", labelpad=1)
            below.set_ylabel("norm", labelpad=1)
        if place >= len(own_heads) - 3:
            below.set_xlabel("key (position)", labelpad=1)
    bar(sheet, 292, 18 + side + 84 + 30, side, ATTENTION, "attention weight")
    says = f"Attention (above) and key norms (below) in layer {own_layer}, first {tokens} tokens of one prompt."
    return Sketch(sheet.figure, says, notes)


def _correlations(frame: pd.DataFrame) -> pd.Series:
    """By layer and query head: does a key that is like the others get attention? Lowest correlation first."""
    found: dict[Any, float] = {}
    for place, own in frame.groupby(["layer", "query_head"]):
        cosine, attention = _matrix(own, "cosine").to_numpy(), _matrix(own, "attention").to_numpy()
        size = len(cosine)
        alike = (cosine.sum(0) - 1) / (size - 1)
        later = np.tril(np.ones_like(attention), -1).sum(0)
        received = np.tril(attention, -1).sum(0)[:-1] / later[:-1]
        found[place] = float(np.corrcoef(alike[:-1], received)[0, 1])
    return pd.Series(found).sort_values(kind="stable")


def _matrix(own: pd.DataFrame, column: str) -> pd.DataFrame:
    return own.pivot(index="query", columns="key", values=column)


def _earlier(own: pd.DataFrame) -> np.ndarray:
    size = int(own["key"].max()) + 1
    return np.tril(np.ones((size, size), dtype=bool))


def _ticks(axes: Axes, tokens: int) -> None:
    places = list(range(0, tokens, 16))
    axes.set_xticks(places, [str(place) for place in places])
    axes.set_yticks(places, [str(place) for place in places])
