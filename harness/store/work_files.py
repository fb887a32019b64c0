"""What workers leave beside the rows, and which of it no worker can need any more.

.work/order-<id>.json                what the workers of a launcher are told
.work/<sweep>/agenda-<n>.json.gz     the batches of a sweep
.work/<sweep>/<unit>.<epoch>.json    claims on them
<cell>/lease-<sweep>-<unit>.json     the same, for the readers of a cell
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

from harness.atomic_files import ABANDONED
from harness.store import cell_folders
from harness.store.store import Store

FOLDER = ".work"  # beside the cells
ORDER_KEPT = 30 * 24 * 3600  # seconds that an unfinished order may wait for a scheduler to begin with it
Key = tuple[str, str]  # of a job: its cell and its sample
Stored = dict[str, set[str]]  # cell: its samples


def batches(agenda: Path) -> list[list[Key]]:
    """The batches that an agenda's file lists; none where there is no file, an empty one where it is damaged."""
    try:
        listed = json.loads(gzip.decompress(agenda.read_bytes()))
        return [[(cell, sample) for cell, sample in batch] for batch in listed]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, EOFError):
        return [[]]


def unneeded(store: Store, now: float | None = None) -> Iterator[tuple[Path, str]]:
    """Files and folders of workers that nobody can need, and why. Damaged parts count as missing.

    A sweep's folder stays while anybody holds one of its batches, or has done so within `ABANDONED` seconds and left
    samples missing. An order stays as long as samples of its cells are missing, `ORDER_KEPT` seconds at most.
    """
    at = time.time() if now is None else now
    found, _ = store.survey(store.cells())
    stored = {cell: {sample for part in members for sample in part.samples} for cell, members in found.items()}
    for lease in sorted(store.root.glob("*/lease-*.json")):
        if _expired(lease, at):
            yield lease, "an expired lease"
    for folder in sorted(path for path in (store.root / FOLDER).glob("*") if path.is_dir()):
        if why := _why_over(folder, stored, at):
            yield folder, why
    for order in sorted((store.root / FOLDER).glob("order-*.json")):
        if _is_complete(order, store.root, stored):
            yield order, "an order whose cells are complete"
        elif _age(order, at) > ORDER_KEPT:
            yield order, f"an order of more than {ORDER_KEPT // 86400} days ago"


def _why_over(sweep: Path, stored: Stored, now: float) -> str:
    """Why nobody needs a sweep's folder; empty where somebody may. Whoever claims or beats touches the folder."""
    claims = (cell_folders.read_lease(file) for file in sweep.glob("[0-9]*.json"))
    if any(claim.alive(now) for claim in claims if claim is not None):
        return ""
    jobs = [job for agenda in sweep.glob("agenda-*") for batch in batches(agenda) for job in batch]
    if jobs and all(sample in stored.get(cell, ()) for cell, sample in jobs):
        return "batches of a complete sweep"
    return "batches of a sweep that nobody works on" if _age(sweep, now) > ABANDONED else ""


def _is_complete(order: Path, root: Path, stored: Stored) -> bool:
    try:
        ids = json.loads(order.read_bytes())["ids"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return all(len(stored.get(cell, ())) >= max(1, cell_folders.wanted(root / cell) or 1) for cell in ids)


def _expired(lease: Path, now: float) -> bool:
    found = cell_folders.read_lease(lease)
    return _age(lease, now) > ABANDONED if found is None else not found.alive(now)


def _age(path: Path, now: float) -> float:
    """Seconds since it changed; 0 where it has just gone."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
