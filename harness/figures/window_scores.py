"""Windowed attention over the prompt in one head: K-VEC Figure 2."""

from __future__ import annotations

import numpy as np

from harness.figures.canvas import MUTED, Sheet
from harness.figures.drawing import Sketch
from harness.figures.material import Material
from harness.report.colours import look_of

TENTHS = 10


def draw(material: Material, layer: int, head: int, policy: str) -> Sketch:
    """Above, what the last queries attend to; below, the same in tenths of the prompt, beside the mean of all heads."""
    frame = material.one_sample("window_attention")
    frame = frame[frame["policy"] == frame["policy"].iloc[0]]
    own = frame[(frame["layer"] == layer) & (frame["query_head"] == head)].sort_values("position")
    tokens, sample = len(own), own["sample_id"].iloc[0]
    look = look_of(policy)
    sheet = Sheet(330, f"One prompt ({sample}, {tokens} tokens), before eviction: no interval")
    axes = sheet.panel(56, 20, 332, 130)
    axes.plot(own["position"], own["attention"], color=look.light, linewidth=0.8)
    axes.set_xlim(0, tokens - 1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("attention (mean, 0 to 1)")
    axes.set_xlabel("position in the prompt (tokens)")
    axes.set_title(f"layer {layer}, query head {head}", loc="left", pad=4)
    below = sheet.panel(56, 216, 332, 74)
    tenth = np.minimum(frame["position"] * TENTHS // tokens, TENTHS - 1)
    shares = frame.assign(tenth=tenth).groupby(["layer", "query_head", "tenth"])["attention"].sum()
    chosen = shares.loc[(layer, head)]
    below.bar(chosen.index + 0.5, chosen, 0.86, color=look.light)
    everywhere = shares.groupby("tenth").mean()
    below.plot(everywhere.index + 0.5, everywhere, color=MUTED, marker="o", markersize=3, linewidth=1)
    below.set_title(
        "share of attention by tenth of the prompt (grey: mean of all heads)", loc="left", fontsize=9, pad=4
    )
    below.set_xticks(range(0, TENTHS + 1, 2), [f"{10 * place}%" for place in range(0, TENTHS + 1, 2)])
    below.set_ylabel("share")
    below.set_xlabel("place in the prompt (% of its tokens)")
    says = (
        f"Attention of the last 32 prompt tokens in layer {layer}, query head {head}; {float(chosen.iloc[-1]):.0%} of "
        "it goes to the last tenth of the prompt."
    )
    return Sketch(sheet.figure, says)
