"""The files that workers leave beside the rows, and which of them no worker can need any more.

.work/job-<id>.json.gz               the job spec that a launcher gives its workers
.work/<sweep>/queue-<n>.json.gz      the batches of a sweep
.work/<sweep>/<batch>.<epoch>.json   locks on them
<cell>/lease-<sweep>-<batch>.json    the same, for readers of the cell
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
JOB_SPEC_KEPT = 30 * 24 * 3600  # seconds that an unfinished job spec may wait for a scheduler to start it
Key = tuple[str, str]  # of a job: its cell and its sample
Stored = dict[str, set[str]]  # cell: its samples


def job_spec_file(folder: Path, name: str) -> Path:
    """The file of a job spec in the folder of all workers."""
    return folder / f"job-{name}.json.gz"


def read_batches(queue: Path) -> list[list[Key]]:
    """The batches that a queue file lists; none without a file, one empty batch where the file is damaged."""
    try:
        listed = json.loads(gzip.decompress(queue.read_bytes()))
        return [[(cell, sample) for cell, sample in batch] for batch in listed]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, EOFError):
        return [[]]


def unneeded(store: Store, now: float | None = None) -> Iterator[tuple[Path, str]]:
    """Files and folders of workers that are no longer needed, and why. Damaged parts count as missing.

    The folder of a sweep stays while a worker holds one of its batches. It also stays for `ABANDONED` seconds after
    that, if samples are missing. A job spec stays while samples of its cells are missing, at most `JOB_SPEC_KEPT`
    seconds.
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
    for spec in sorted((store.root / FOLDER).glob("job-*.json.gz")):
        if _is_complete(spec, store.root, stored):
            yield spec, "a job spec whose cells are complete"
        elif _age(spec, at) > JOB_SPEC_KEPT:
            yield spec, f"a job spec from more than {JOB_SPEC_KEPT // 86400} days ago"


def _why_over(sweep: Path, stored: Stored, now: float) -> str:
    """Why the folder of a sweep is no longer needed; empty where it may be. Every lock and heartbeat changes the
    folder's time."""
    leases = (cell_folders.read_lease(file) for file in sweep.glob("[0-9]*.json"))
    if any(lease.alive(now) for lease in leases if lease is not None):
        return ""
    jobs = [job for queue in sweep.glob("queue-*") for batch in read_batches(queue) for job in batch]
    if jobs and all(sample in stored.get(cell, ()) for cell, sample in jobs):
        return "batches of a complete sweep"
    return "batches of a sweep without a worker" if _age(sweep, now) > ABANDONED else ""


def _is_complete(spec: Path, root: Path, stored: Stored) -> bool:
    try:
        ids = json.loads(gzip.decompress(spec.read_bytes()))["ids"]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return False
    return all(len(stored.get(cell, ())) >= max(1, cell_folders.read_requested(root / cell) or 1) for cell in ids)


def _expired(lease: Path, now: float) -> bool:
    found = cell_folders.read_lease(lease)
    return _age(lease, now) > ABANDONED if found is None else not found.alive(now)


def _age(path: Path, now: float) -> float:
    """Seconds since it changed; 0 where it has just gone."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
