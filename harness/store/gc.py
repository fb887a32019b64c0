"""Taking away what nobody needs: files that were never finished, older versions of cells."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.store import leases
from harness.store.runs import Store
from harness.store.status import statuses
from harness.store.writing import is_left_behind


def left_behind(store: Store) -> Iterator[Path]:
    """Temporary files and probes whose writer is gone."""
    for pattern in (".*.tmp", ".probe-*", "*/.*.tmp", "*/*/.*.tmp"):
        yield from (file for file in sorted(store.root.glob(pattern)) if is_left_behind(file))


def stale(store: Store) -> Iterator[tuple[Path, str]]:
    """Folders of stale cells and why they are; never one that somebody works on."""
    for cell in statuses(store)[0]:
        folder = store.root / cell.cell_id
        if cell.state == "stale" and not any(lease.alive() for lease in leases.of_cell(folder)):
            yield folder, cell.why


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it. Raises OSError."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
