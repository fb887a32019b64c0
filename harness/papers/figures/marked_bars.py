"""Bars that cannot be overlooked: each has its number, zero has a mark, and what is missing is said to be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from harness.papers.figures.canvas import INK, MUTED, SMALL

UPRIGHT = 26  # CSS pixels of a bar from which its number stands upright
NOT_MEASURED = "not measured"


def draw_marked_bars(
    axes: Axes,
    places: npt.ArrayLike,
    values: npt.ArrayLike,
    width: float,
    colour: str,
    *,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    hatch: str = "",
    texts: Sequence[str] | None = None,
    pixels: float = UPRIGHT,
) -> None:
    """Bars at ``places`` with whiskers from ``low`` to ``high`` and the numbers above; NaN: "not measured".

    ``texts``: what is written instead of two decimals. ``pixels``: the width of a bar on the canvas.
    """
    x, heights = np.asarray(places, dtype=float), np.asarray(values, dtype=float)
    there = np.isfinite(heights)
    axes.bar(x[there], heights[there], width, color=colour, edgecolor="white", hatch=hatch, linewidth=0.5)
    zero = there & (heights == 0)
    if zero.any():
        axes.plot(x[zero], heights[zero], color=colour, linestyle="none", marker="s", markersize=4, clip_on=False)
    tops = heights
    if low is not None and high is not None:
        low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        bars = np.vstack([heights - low, high - heights])[:, there]
        axes.errorbar(
            x[there], heights[there], yerr=bars, fmt="none", ecolor=INK, elinewidth=0.8, capsize=min(3, 0.2 * pixels)
        )
        tops = np.where(np.isfinite(high), np.maximum(heights, high), heights)
    turned = pixels < UPRIGHT
    for i, place in enumerate(x):
        words = NOT_MEASURED if not there[i] else texts[i] if texts else f"{heights[i]:.2f}".replace("0.", ".", 1)
        axes.annotate(
            words, (place, tops[i] if there[i] else 0), xytext=(0, 3), textcoords="offset points", ha="center",
            va="bottom", fontsize=SMALL, rotation=90 if turned or not there[i] else 0,
            color=INK if there[i] else MUTED, annotation_clip=False,
        )  # fmt: skip
