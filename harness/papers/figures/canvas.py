"""What all figures share: the canvas, its style, its markers, and rendering to SVG and PNG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.report.looks import Look, looks
from harness.report.svg import PX, matplotlib_style, simplify_svg


@dataclass(frozen=True)
class Drawing:
    """One figure, drawn twice: ``svg`` for pages as wide as a desk's screen, ``narrow`` for those of a phone.

    Both work as files and within a page; ``png`` is the wide one at twice the size.
    """

    svg: str
    narrow: str
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


# One canvas for all figures, white like paper, the same bytes for the same rows. Text keeps its size whatever the
# width: panels stand beside each other on a wide canvas and below each other on a narrow one.


WIDE, NARROW = 1040.0, 320.0  # CSS pixels: a card's content on a page of 1280 px, and on one of 390 px
INK, MUTED, RULE = "#15181c", "#5d636b", "#dfe3e8"
SMALL = 11  # CSS pixels; no text is smaller
LINE_HEIGHT = 15.0  # CSS pixels of one line of small text
LETTER = 6.3  # CSS pixels of a letter of small text, on average
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
    "font.size": 12,
    "axes.labelsize": 12,
    "axes.titlesize": 12,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
}


class FigureSheet:
    """A canvas in CSS pixels, the origin at the top left. ``footer``: small print below everything else."""

    def __init__(self, width: float, height: float, footer: str = "", letter: float = LETTER) -> None:
        lines = textwrap.wrap(footer, int((width - 12) / letter))
        self.width, self.height = width, height + LINE_HEIGHT * len(lines) + 6 * bool(lines)
        self.figure = Figure(figsize=(self.width * PX, self.height * PX))
        for i, line in enumerate(lines):
            self.text(6, height + 4 + LINE_HEIGHT * i, line, color=MUTED, fontsize=SMALL)

    def panel(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes whose frame has this corner and size."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text whose top left corner is at (x, y)."""
        self.figure.text(x / self.width, 1 - y / self.height, text, **{"va": "top", **style})

    def legend(self, top: float, handles: Sequence[Artist]) -> None:
        """The key to colours and markers, outside of every panel; `legend_height` is what it takes."""
        self.figure.legend(
            handles=list(handles), loc="upper left", bbox_to_anchor=(6 / self.width, 1 - top / self.height),
            frameon=False, ncols=_legend_columns(handles, self.width), borderaxespad=0, columnspacing=1.2,
            handlelength=2.2, handletextpad=0.5, labelspacing=0.35,
        )  # fmt: skip


def legend_height(handles: Sequence[Artist], width: float) -> float:
    """CSS pixels that the legend takes on a canvas of this width."""
    return 17.0 * -(-len(handles) // _legend_columns(handles, width)) + 6


def _legend_columns(handles: Sequence[Artist], width: float) -> int:
    longest = max((len(str(each.get_label())) for each in handles), default=1)
    return max(1, min(len(handles), int((width - 12) / (LETTER * longest + 44))))


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


def render_figure(sketch: Sketch, name: str, description: str) -> str:
    """As SVG. ``name`` makes its ids unique on a page; ``description`` is read aloud."""
    vector = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    sketch.figure.savefig(vector, format="svg", facecolor="white", metadata=nothing, dpi=90)
    # matplotlib wrote this document itself and escapes every text in it, so it is safe to parse and to embed.
    root = ElementTree.fromstring(vector.getvalue())
    simplify_svg(root, name, {})
    for image in root.iter("image"):
        if "style" in image.attrib:  # a matrix, which has cells and no shades between them; clouds of points have none
            image.attrib["style"] = "image-rendering: pixelated"
    width, height = (f"{float(size):g}" for size in root.attrib["viewBox"].split()[2:])
    root.attrib = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": root.attrib["viewBox"],
        "width": width,
        "height": height,
        "font-family": "monospace" if sketch.fixed_width else "system-ui, 'DejaVu Sans', Arial, sans-serif",
        "role": "img",
        "aria-label": description,
    }
    return ElementTree.tostring(root, encoding="unicode")


def render_pixels(sketch: Sketch) -> bytes:
    """As PNG, two pixels for each of CSS."""
    pixels = io.BytesIO()
    sketch.figure.savefig(pixels, format="png", facecolor="white", metadata={"Software": None}, dpi=144)
    return pixels.getvalue()
