"""What a run gives back: its cells, and where their rows are."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from harness.cells import Cell
from harness.store import Store


@dataclass(frozen=True)
class Finished:
    """What a run was asked for and what it did. ``computed`` and ``present`` count samples over all cells."""

    cells: tuple[Cell, ...]
    store: Store
    computed: int
    present: int

    def rows(self) -> pd.DataFrame:
        """All rows of these cells, of this run and earlier ones, in the order in which cells were asked for."""
        return self.store.load(cell.id for cell in self.cells)
