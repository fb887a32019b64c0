"""Leases: who works on a cell just now. Workers write them; everything else only reads.

A lease is the file ``<cell>/lease-<name>.json``; what ``<name>`` stands for (the cell, a shard of it) is the workers'
business. It is alive for ``seconds`` after its heartbeat, by the reader's clock.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.store.writing import write_atomically


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


def write(file: Path, lease: Lease) -> None:
    """A new lease, or a heartbeat of an older one: whole or not there. Raises OSError."""
    write_atomically(file, json.dumps(asdict(lease)).encode())


def read(file: Path) -> Lease | None:
    """The lease; None where it has gone or is not one."""
    try:
        return Lease(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def of_cell(folder: Path) -> list[Lease]:
    """All leases of a cell, dead ones included."""
    found = os.listdir(folder)  # noqa: PTH208 (several times as fast, which counts over thousands of cells)
    names = sorted(name for name in found if name.startswith("lease-") and name.endswith(".json"))
    return [lease for name in names if (lease := read(folder / name)) is not None]
