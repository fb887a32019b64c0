"""The folder of a cell, named by its identity: ``cell.json``, ``wanted.json``, and leases of its workers.

A lease is the file ``<cell>/lease-<name>.json``. Workers write it to show that they compute a batch with samples of the
cell; all others only read it. The workers choose ``<name>``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.atomic_files import flush_folder, write_atomically
from harness.errors import UserError

CELL, WANTED = "cell.json", "wanted.json"


class DamagedCellError(UserError):
    """A ``cell.json`` that cannot be read."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(
            f"{file} is damaged ({why}). Run 'python -m harness store verify --repair results_dir="
            f"{file.parent.parent.parent}', then the command that computed the cell: it is written again, and the "
            "cell's samples are kept."
        )
        self.file, self.why = file, why


def cell_names(root: Path) -> list[str]:
    """Every folder that a cell was opened in, sorted."""
    try:
        folders = [entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    return sorted(name for name in folders if (root / name / CELL).exists())


def describe(folder: Path, description: Mapping[str, Any]) -> None:
    """Write ``cell.json``, unless it is there. Raises OSError."""
    if not (folder / CELL).exists():
        folder.mkdir(parents=True, exist_ok=True)
        flush_folder(folder.parent)
        write_atomically(folder / CELL, json.dumps(dict(description), indent=1, sort_keys=True).encode())


def read_description(folder: Path) -> dict[str, Any]:
    """The content of ``cell.json``. Raises `DamagedCellError`."""
    file = folder / CELL
    try:
        content = json.loads(file.read_bytes())
        missing = [key for key in ("cell_id", "config") if key not in content]
    except (OSError, ValueError, TypeError) as error:
        raise DamagedCellError(file, " ".join(str(error).split())) from error
    if missing:
        raise DamagedCellError(file, f"it has no {' and no '.join(missing)}")
    return dict(content)


def record_requested(folder: Path, samples: int) -> None:
    """Write to ``wanted.json`` how many samples a run requests, if it is the most of all runs. Raises OSError."""
    if (read_requested(folder) or 0) < samples:
        write_atomically(folder / WANTED, json.dumps({"samples": samples}).encode())


def read_requested(folder: Path) -> int | None:
    """Samples that runs have requested at most, or None where ``wanted.json`` is missing or damaged."""
    try:
        return int(json.loads((folder / WANTED).read_bytes())["samples"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True)
class Lease:
    """``heartbeat``: seconds since 1970, UTC. ``seconds``: how long it is alive after it, by the reader's clock."""

    worker: str  # unique among the workers of a sweep
    host: str
    pid: int
    heartbeat: float
    seconds: float

    def alive(self, now: float | None = None) -> bool:
        """Whether the last heartbeat is recent enough."""
        return (time.time() if now is None else now) <= self.heartbeat + self.seconds


def write_lease(file: Path, lease: Lease) -> None:
    """Write a new lease, or the next heartbeat of one: whole or not there. Raises OSError.

    A batch shows its lease in hundreds of cells: flushing each to the disk would take the disk's time from the results,
    and no lease outlives a power cut.
    """
    write_atomically(file, json.dumps(asdict(lease)).encode(), flushed=False)


def read_lease(file: Path) -> Lease | None:
    """The lease; None where the file has gone or cannot be read."""
    try:
        return Lease(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def leases_of_cell(folder: Path) -> list[Lease]:
    """All leases of a cell, dead ones included."""
    found = os.listdir(folder)  # noqa: PTH208 (several times as fast, which counts over thousands of cells)
    names = sorted(name for name in found if name.startswith("lease-") and name.endswith(".json"))
    return [lease for name in names if (lease := read_lease(folder / name)) is not None]
