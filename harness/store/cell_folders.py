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
from harness.store.parts import part_names

CELL, WANTED = "cell.json", "wanted.json"
MISSING = "missing"  # why a cell is damaged whose ``cell.json`` is not there
LABELS = {
    **dict.fromkeys(("model", "policy", "budget", "prompt", "task", "dtype"), str),
    **dict.fromkeys(("block_size", "seed"), int),
}  # what tables group by, and the type of each


class DamagedCellError(UserError):
    """A ``cell.json`` that cannot be read, or is not there although samples of the cell are."""

    def __init__(self, file: Path, why: str) -> None:
        repair = f"'python -m harness store verify --repair results_dir={file.parent.parent.parent}', then "
        super().__init__(
            f"{file} is {MISSING if why == MISSING else f'damaged ({why})'}. Run {'' if why == MISSING else repair}the "
            "command that computed the cell: the file is written again, and the cell's samples are kept. To read the "
            "other cells meanwhile: load_rows(…, damaged='skip')."
        )
        self.file, self.why = file, why


def cell_names(root: Path) -> list[str]:
    """Every folder that a cell was opened in, sorted; also one that has samples and has lost its ``cell.json``."""
    try:
        folders = [entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    return sorted(name for name in folders if (root / name / CELL).exists() or part_names(root / name))


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
    except FileNotFoundError as error:
        raise DamagedCellError(file, MISSING) from error
    except (OSError, ValueError, TypeError) as error:
        raise DamagedCellError(file, " ".join(str(error).split())) from error
    if missing:
        raise DamagedCellError(file, f"it has no {' and no '.join(missing)}")
    for name, kind in LABELS.items():
        value = content.get(name, kind())
        if type(value) is not kind or beyond_64_bits(value):
            raise DamagedCellError(file, f"its {name} is {value!r}, which no column of rows holds")
    return dict(content)


def beyond_64_bits(value: object) -> bool:
    """Whether a whole number in a description (plain containers) is larger than any column can hold."""
    if isinstance(value, Mapping):
        return any(map(beyond_64_bits, value.values()))
    if isinstance(value, list | tuple):
        return any(map(beyond_64_bits, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def record_requested(folder: Path, samples: int) -> None:
    """Write to ``wanted.json`` how many samples a run requests, if it is the most of all runs. Raises OSError."""
    if (read_requested(folder) or 0) < samples:
        write_atomically(folder / WANTED, json.dumps({"samples": samples}).encode())


def read_requested(folder: Path) -> int | None:
    """Samples that runs have requested at most, or None where ``wanted.json`` is missing or damaged."""
    try:
        samples = json.loads((folder / WANTED).read_bytes())["samples"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return samples if type(samples) is int and samples > 0 else None


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
