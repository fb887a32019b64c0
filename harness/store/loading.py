"""Every row of a results folder as one pandas frame."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd

from harness.origin import fingerprint
from harness.store import cells, packed, parts
from harness.store.runs import Store
from harness.store.standing import superseded


def load_rows(results_dir: str | Path = "results") -> pd.DataFrame:
    """Every row under ``<results_dir>/runs``, samples joined with their cells (docs/results-schema.md).

    Cells that a newer version of the code, the data or the model has superseded are left out. A folder without ``runs``
    may hold the rows packed (``python -m harness.store pack``). Raises `UserError` for files that are damaged.
    """
    store, one_file = _places(results_dir)
    return packed.unpacked(one_file) if one_file else store.load(_shown(store))


def rows_fingerprint(results_dir: str | Path) -> str:
    """16 hex digits that are the same as long as `load_rows` gives the same rows.

    Parts are not read, as their names are checksums.
    """
    store, one_file = _places(results_dir)
    if one_file:
        return fingerprint.of_data({"file": hashlib.sha256(one_file.read_bytes()).hexdigest()})
    folders = {name: store.root / name for name in _shown(store)}
    return fingerprint.of_data(
        {name: [cells.described(folder), *parts.names_in(folder)] for name, folder in folders.items()}
    )


def _places(results_dir: str | Path) -> tuple[Store, Path | None]:
    """The store, and the packed rows that stand for it where there is none."""
    store, one_file = Store(Path(results_dir) / "runs"), Path(results_dir) / packed.FILE
    return store, one_file if one_file.exists() and not store.root.exists() else None


def _shown(store: Store) -> list[str]:
    """The cells that nothing newer has superseded."""
    names = store.cells()
    hidden = superseded(cells.described(store.root / name) for name in names)
    return [name for name in names if name not in hidden]
