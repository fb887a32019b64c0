"""The papers' figures, drawn from stored rows and stored diagnostics only (docs/figures.md)."""

from harness.figures.drawing import Drawing, Place
from harness.figures.gallery import drawn, place

__all__ = ["Drawing", "Place", "drawn", "place"]
