"""What a drawn figure is, and what stands in its place where it cannot be drawn."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure. ``svg`` stands alone and inside a page, ``png`` is the same at twice the size."""

    svg: str
    png: bytes
    caption: str
    notes: tuple[str, ...]  # what stands in for the paper's own setting, and what is missing


@dataclass(frozen=True)
class Place:
    """A figure's place in a report: its drawing, or the sentence that says why there is none."""

    drawing: Drawing | None
    reason: str = ""


@dataclass(frozen=True)
class Sketch:
    """What one kind of figure gives: the canvas, what it shows (sentences), and notes."""

    figure: Figure
    says: str
    notes: tuple[str, ...] = ()
    fixed_width: bool = False  # whether the text is set in a font of fixed width


class GapError(Exception):
    """The figure cannot be drawn from what is stored; the message is the sentence that says why."""
