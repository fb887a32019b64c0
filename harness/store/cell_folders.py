"""Cells as the store keeps them: a folder named by the identity, with ``cell.json`` and ``wanted.json``."""

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
    """Write ``cell.json`` where there is none. Raises OSError."""
    if not (folder / CELL).exists():
        folder.mkdir(parents=True, exist_ok=True)
        flush_folder(folder.parent)
        write_atomically(folder / CELL, json.dumps(dict(description), indent=1, sort_keys=True).encode())


def read_description(folder: Path) -> dict[str, Any]:
    """What ``cell.json`` says. Raises `DamagedCellError`."""
    file = folder / CELL
    try:
        content = json.loads(file.read_bytes())
        missing = [key for key in ("cell_id", "config") if key not in content]
    except (OSError, ValueError, TypeError) as error:
        raise DamagedCellError(file, " ".join(str(error).split())) from error
    if missing:
        raise DamagedCellError(file, f"it has no {' and no '.join(missing)}")
    return dict(content)


def want(folder: Path, samples: int) -> None:
    """Remember how many samples were asked for, the most of all runs. Raises OSError."""
    if (wanted(folder) or 0) < samples:
        write_atomically(folder / WANTED, json.dumps({"samples": samples}).encode())


def wanted(folder: Path) -> int | None:
    """Samples that were asked for, or None where nobody has said."""
    try:
        return int(json.loads((folder / WANTED).read_bytes())["samples"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


# Leases: who works on a cell just now. Workers write them; everything else only reads.
#
# A lease is the file ``<cell>/lease-<name>.json``; what ``<name>`` stands for (the cell, a shard of it) is the workers'
# business. It is alive for ``seconds`` after its heartbeat, by the reader's clock.


@dataclass(frozen=True)
class Lease:
    """``heartbeat``: seconds since 1970, UTC. ``seconds``: how long it holds after the last heartbeat."""

    worker: str  # unique among the workers of a sweep
    host: str
    pid: int
    heartbeat: float
    seconds: float

    def alive(self, now: float | None = None) -> bool:
        """Whether the worker has been heard of recently enough."""
        return (time.time() if now is None else now) <= self.heartbeat + self.seconds


def write_lease(file: Path, lease: Lease) -> None:
    """A new lease, or a heartbeat of an older one: whole or not there. Raises OSError."""
    write_atomically(file, json.dumps(asdict(lease)).encode())


def read_lease(file: Path) -> Lease | None:
    """The lease; None where it has gone or is not one."""
    try:
        return Lease(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def leases_of_cell(folder: Path) -> list[Lease]:
    """All leases of a cell, dead ones included."""
    found = os.listdir(folder)  # noqa: PTH208 (several times as fast, which counts over thousands of cells)
    names = sorted(name for name in found if name.startswith("lease-") and name.endswith(".json"))
    return [lease for name in names if (lease := read_lease(folder / name)) is not None]
