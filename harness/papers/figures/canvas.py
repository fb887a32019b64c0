"""What all figures share: the canvas, its style, markers and heat maps, and rendering to SVG and PNG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.report.looks import Look, contrast, looks
from harness.report.svg import PX, matplotlib_style, simplify_svg


@dataclass(frozen=True)
class Drawing:
    """One figure. ``svg`` works as a file and within a page; ``png`` is the same at twice the size."""

    svg: str
    png: bytes
    caption: str
    notes: tuple[str, ...]  # what replaces the paper's own setting, and what is missing


@dataclass(frozen=True)
class FigureSlot:
    """A figure in a report: its drawing, or the sentence that says why there is none."""

    drawing: Drawing | None
    reason: str = ""


@dataclass(frozen=True)
class Sketch:
    """A figure before it is rendered: the canvas, what it shows (sentences), and notes."""

    figure: Figure
    says: str
    notes: tuple[str, ...] = ()
    fixed_width: bool = False  # whether the text is set in a font of fixed width


class NotDrawnError(Exception):
    """The figure cannot be drawn from what is stored; the message is the sentence that says why."""


# One canvas for all figures: as wide as a phone, white like paper, the same bytes for the same rows.


WIDTH = 400.0  # CSS pixels: panels go below each other, so that text stays readable at 390 px
INK, MUTED, RULE = "#15181c", "#5d636b", "#dfe3e8"
SMALL = 9  # CSS pixels
LINE_HEIGHT = 12.0  # CSS pixels of one line of small text
LINE_LETTERS = 78  # of small text in one line
PUBLISHED = "published"
LINE_STYLES = ("--", "-.", ":")  # of policies whose family has one colour
_ON_WHITE = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "grid.color": RULE,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 10,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
}


class FigureSheet:
    """A canvas in CSS pixels, the origin at the top left.

    ``footer`` (small print) is set below everything else, in lines of at most ``letters``.
    """

    def __init__(self, height: float, footer: str = "", width: float = WIDTH, letters: int = LINE_LETTERS) -> None:
        lines = textwrap.wrap(footer, letters)
        self.width, self.height = width, height + LINE_HEIGHT * len(lines) + 6 * bool(lines)
        self.figure = Figure(figsize=(self.width * PX, self.height * PX))
        for i, line in enumerate(lines):
            self.text(8, height + 4 + LINE_HEIGHT * i, line, color=MUTED, fontsize=SMALL)

    def panel(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes whose frame has this corner and size."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text whose top left corner is at (x, y)."""
        self.figure.text(x / self.width, 1 - y / self.height, text, **{"va": "top", **style})

    def legend(self, top: float, handles: Sequence[Artist], columns: int) -> None:
        """The key to colours and markers."""
        self.figure.legend(
            handles=list(handles), loc="upper left", bbox_to_anchor=(0.012, 1 - top / self.height), frameon=False,
            ncols=columns, borderaxespad=0, columnspacing=1.2, handlelength=2.2, handletextpad=0.5, labelspacing=0.35,
        )  # fmt: skip


def legend_height(entries: int, columns: int) -> float:
    """CSS pixels that a legend of so many entries takes."""
    return 13.5 * -(-entries // columns) + 6


def distinct_looks(policies: Iterable[str]) -> dict[str, Look]:
    """The looks of a figure's policies; where two share their colour and line, the later ones get other lines."""
    chosen: dict[str, Look] = {}
    for policy, look in looks(policies).items():
        taken = {each.line for each in chosen.values() if each.light == look.light}
        free = next((line for line in (look.line, *LINE_STYLES) if line not in taken), look.line)
        chosen[policy] = replace(look, line=free)
    return chosen


def marker_style(look: Look, size: float = 6) -> dict[str, Any]:
    """Matplotlib's settings for a policy's points: its colour, filled as its value correction says."""
    inside = "white" if look.filling == "none" else look.light
    return {
        "marker": look.marker,
        "markersize": size * (1.35 if look.marker == "*" else 1),
        "fillstyle": "bottom" if look.filling == "bottom" else "full",
        "markerfacecolor": inside,
        "markerfacecoloralt": "white",
        "markeredgecolor": look.light,
        "color": look.light,
    }


def hollow_marker(look: Look, size: float = 6) -> dict[str, Any]:
    """Matplotlib's settings for a published number: the policy's marker in outline, smaller and without a line."""
    return {
        "marker": look.marker or "o",
        "markersize": 0.85 * size * (1.35 if look.marker == "*" else 1),
        "markerfacecolor": "none",
        "markeredgecolor": look.light,
        "markeredgewidth": 0.9,
        "linestyle": "none",
        "alpha": 0.85,
        "zorder": 4,
    }


def legend_entry(label: str, look: Look) -> Line2D:
    """The legend's entry of one policy."""
    return Line2D([], [], linestyle=look.line, linewidth=1.4, label=label, **marker_style(look))


@contextmanager
def white_page_style() -> Iterator[None]:
    """The context within which sheets are filled and rendered: the style of the reports on a white page."""
    with matplotlib_style(), matplotlib.rc_context(_ON_WHITE):
        yield


def render_figure(drawn: Figure, name: str, description: str, fixed_width: bool = False) -> tuple[str, bytes]:
    """As SVG and PNG. ``name`` makes the SVG's ids unique on a page; ``description`` is read aloud."""
    vector, pixels = io.StringIO(), io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.savefig(vector, format="svg", facecolor="white", metadata=nothing, dpi=144)
    drawn.savefig(pixels, format="png", facecolor="white", metadata={"Software": None}, dpi=144)
    # matplotlib wrote this document itself and escapes every text in it, so it is safe to parse and to embed.
    root = ElementTree.fromstring(vector.getvalue())
    simplify_svg(root, name, {})
    width, height = (f"{float(size):g}" for size in root.attrib["viewBox"].split()[2:])
    root.attrib = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": root.attrib["viewBox"],
        "width": width,
        "height": height,
        "font-family": "monospace" if fixed_width else "system-ui, 'DejaVu Sans', Arial, sans-serif",
        "role": "img",
        "aria-label": description,
    }
    return ElementTree.tostring(root, encoding="unicode"), pixels.getvalue()


# Heat maps: cells with numbers where there is room, a colour bar, and text that can be read on every colour.


VIRIDIS = colormaps["viridis"]  # perceptually uniform, readable with colour-vision deficiencies
DARKER = colormaps["viridis_r"]  # dark for much, where nothing is white


def draw_matrix(
    axes: Axes,
    numbers: npt.ArrayLike,
    scale: Normalize,
    texts: Sequence[Sequence[str]] | None = None,
    size: float = SMALL,
    colours: Colormap = VIRIDIS,
) -> None:
    """A matrix, row 0 on top; NaN stays white. ``texts``: what is written into the cells."""
    matrix = np.asarray(numbers, dtype=float)
    axes.imshow(matrix, cmap=colours, norm=scale, aspect="auto", interpolation="nearest")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=3)
    for (y, x), number in np.ndenumerate(matrix):
        if texts is None:
            return
        if np.isfinite(number):
            axes.text(x, y, texts[y][x], ha="center", va="center", color=ink_on(number, scale, colours), fontsize=size)
        else:
            axes.text(x, y, "–", ha="center", va="center", color=MUTED, fontsize=size)


def ink_on(number: float, scale: Normalize, colours: Colormap = VIRIDIS) -> str:
    """Black or white, whichever can be read on the number's colour."""
    behind = to_hex(colours(scale(number)))
    return max(("#ffffff", "#111111"), key=lambda candidate: contrast(candidate, behind))


def draw_colour_bar(
    sheet: FigureSheet, left: float, top: float, width: float, scale: Normalize, title: str, colours: Colormap = VIRIDIS
) -> None:
    """The colour scale, with its ends and its unit."""
    axes = sheet.panel(left, top, width, 8)
    axes.imshow(np.linspace(0, 1, 128)[None], cmap=colours, aspect="auto", extent=(0, 1, 0, 1))
    axes.set_yticks([])
    shown = np.linspace(0, 1, 3 if width < 180 else 5)
    axes.set_xticks(shown, [f"{float(scale.inverse(share)):.3g}" for share in shown])
    axes.tick_params(length=0, pad=2, labelsize=SMALL)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=SMALL, pad=2, loc="left")


def tick_indices(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` indices, evenly spaced, for tick labels."""
    return list(range(0, count, max(1, -(-count // most))))
