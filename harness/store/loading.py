"""Every row of a results folder as one pandas frame."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from harness.store import cells, packed
from harness.store.runs import Store
from harness.store.standing import superseded


def load_rows(results_dir: str | Path = "results") -> pd.DataFrame:
    """Every row under ``<results_dir>/runs``, samples joined with their cells (docs/results-schema.md).

    Cells that a newer version of the code, the data or the model has superseded are left out. A folder without ``runs``
    may hold the rows packed (``python -m harness.store pack``). Raises `UserError` for files that are damaged.
    """
    store, one_file = Store(Path(results_dir) / "runs"), Path(results_dir) / packed.FILE
    if one_file.exists() and not store.root.exists():
        return packed.unpacked(one_file)
    names = store.cells()
    hidden = superseded(cells.described(store.root / name) for name in names)
    return store.load(name for name in names if name not in hidden)
