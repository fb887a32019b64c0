"""Where a figure's panels stand: as many beside each other as a canvas has room for, all of one size."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes

from harness.papers.figures.canvas import FigureSheet


@dataclass(frozen=True)
class PanelGrid:
    """Panels of one size in rows. All in CSS pixels; ``left``, ``above``, ...: what labels take around each frame."""

    count: int
    columns: int
    width: float  # of a panel's frame
    height: float
    left: float
    right: float
    above: float
    below: float

    @classmethod
    def fit(
        cls,
        canvas: float,
        count: int,
        least: float,
        height: float = 0,
        *,
        widest: float = 1e9,
        left: float = 50,
        right: float = 12,
        above: float = 24,
        below: float = 38,
    ) -> PanelGrid:
        """``count`` panels whose frames are ``least`` to ``widest`` wide; ``height`` 0: as high as they are wide."""
        most = max(1, min(count, int(canvas // (least + left + right))))
        columns = -(-count // -(-count // most))  # as many rows as needed, and these evenly filled
        width = min(widest, canvas / columns - left - right)
        return cls(count, columns, width, height or width, left, right, above, below)

    @property
    def rows(self) -> int:
        """Of panels."""
        return -(-self.count // self.columns)

    @property
    def total(self) -> float:
        """The height of all rows with their labels."""
        return self.rows * (self.above + self.height + self.below)

    def panel(self, sheet: FigureSheet, i: int, top: float) -> Axes:
        """The frame of panel ``i``; the grid begins at ``top``."""
        across, down = i % self.columns, i // self.columns
        pitch = self.width + self.left + self.right
        low = top + down * (self.above + self.height + self.below) + self.above
        return sheet.panel(self.left + across * pitch, low, self.width, self.height)

    def first(self, i: int) -> bool:
        """Whether panel ``i`` is the first of its row."""
        return i % self.columns == 0

    def last(self, i: int) -> bool:
        """Whether no panel stands below panel ``i``."""
        return i + self.columns >= self.count
