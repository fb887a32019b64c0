"""Heat maps: cells with numbers where there is room, a colour bar, and text that can be read on every colour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex

from harness.papers.figures.canvas import MUTED, SMALL, FigureSheet
from harness.report.looks import contrast

VIRIDIS = colormaps["viridis"]  # perceptually uniform, readable with colour-vision deficiencies
DARKER = colormaps["viridis_r"]  # dark for much, where nothing is white
BAR = 44  # CSS pixels that a colour bar takes with its title and its ticks


def draw_matrix(
    axes: Axes,
    numbers: npt.ArrayLike,
    scale: Normalize,
    texts: Sequence[Sequence[str]] | None = None,
    colours: Colormap = VIRIDIS,
) -> None:
    """A matrix, row 0 on top; NaN stays white. ``texts``: what is written into the cells, a dash where NaN is."""
    matrix = np.asarray(numbers, dtype=float)
    axes.imshow(matrix, cmap=colours, norm=scale, aspect="auto", interpolation="none")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=3)
    for (y, x), number in np.ndenumerate(matrix):
        if texts is None:
            return
        if np.isfinite(number):
            axes.text(x, y, texts[y][x], ha="center", va="center", color=ink_on(number, scale, colours), fontsize=SMALL)
        else:
            axes.text(x, y, "–", ha="center", va="center", color=MUTED, fontsize=SMALL)


def ink_on(number: float, scale: Normalize, colours: Colormap = VIRIDIS) -> str:
    """Black or white, whichever can be read on the number's colour."""
    behind = to_hex(colours(scale(number)))
    return max(("#ffffff", "#111111"), key=lambda candidate: contrast(candidate, behind))


def draw_colour_bar(
    sheet: FigureSheet,
    left: float,
    top: float,
    width: float,
    scale: Normalize,
    title: str,
    colours: Colormap = VIRIDIS,
    counts: int = 0,
) -> None:
    """The colour scale, with its ends and its unit, in `BAR` pixels below ``top``. ``counts``: a scale of 0, 1, ..."""
    axes = sheet.panel(left, top + 16, width, 8)
    axes.imshow(np.linspace(0, 1, 128)[None], cmap=colours, aspect="auto", extent=(0, 1, 0, 1), interpolation="none")
    axes.set_yticks([])
    shown = np.arange(counts + 1) / counts if counts else np.linspace(0, 1, 3 if width < 180 else 5)
    axes.set_xticks(shown, [f"{float(scale.inverse(share)):.3g}" for share in shown])
    axes.tick_params(length=0, pad=2, labelsize=SMALL)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=SMALL, pad=3, loc="left")


def tick_indices(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` indices, evenly spaced, for tick labels."""
    return list(range(0, count, max(1, -(-count // most))))
