"""The agenda of a sweep: its batches, agreed upon once. Whoever comes first writes it, all others read it.

What fits into a batch depends on the memory of the device, and what is missing on the moment. Were every worker to plan
for itself, their batches would overlap, and rows would be computed twice.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.atomic_files import not_written
from harness.runner.locks import BatchLock, BatchLocks
from harness.runner.plan import Job, Plan
from harness.runner.run_settings import RunSettings
from harness.store import work_files
from harness.store.work_files import Key


@dataclass(frozen=True)
class WorkItem:
    """A batch that is claimed as a whole. ``name``: the same for all workers of the sweep."""

    name: str
    jobs: tuple[Job, ...]

    @property
    def cells(self) -> list[str]:
        """Ids of its cells, once each."""
        return list(dict.fromkeys(job.cell.id for job in self.jobs))


class WorkQueue:
    """Batches of the jobs of one plan, kept in ``<runs>/.work/<sweep>``.

    The same cells and samples on the same terms are the same sweep, whoever asks for it and when.
    """

    def __init__(self, runs: Path, work: Plan, terms: RunSettings) -> None:
        self.jobs = {_key(job): job for job in work.jobs}
        asked = sorted((cell.id, terms.shard.number, terms.shard.of) for cell in work.cells)
        how = [work.samples, terms.deterministic, terms.batch_rows]
        sweep = hashlib.sha256(json.dumps([asked, how]).encode()).hexdigest()[:12]
        self.folder = runs / work_files.FOLDER / sweep

    def units(self, batches: Callable[[Sequence[Job]], Iterable[Sequence[Job]]]) -> Iterator[WorkItem]:
        """Every job in exactly one unit. ``batches`` makes them of jobs that no earlier agenda has.

        Raises `UserError` where the agenda cannot be written.
        """
        open_jobs = dict(self.jobs)
        for number in itertools.count():
            if not open_jobs:
                return
            agreed = self._read(number) or self._agree(number, batches(list(open_jobs.values())))
            for place, keys in enumerate(agreed):
                members = tuple(open_jobs.pop(key) for key in keys if key in open_jobs)
                if members:
                    yield WorkItem(f"{number}-{place}", members)

    def _agree(self, number: int, batches: Iterable[Sequence[Job]]) -> list[list[Key]]:
        """Publish batches, unless somebody else was faster; what is agreed upon then."""
        mine = [[_key(job) for job in batch] for batch in batches]
        content = gzip.compress(json.dumps(mine).encode(), mtime=0)
        temporary = self.folder / f".agenda.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(content)
                os.link(temporary, self._file(number))  # fails where the name is taken, and shows whole files only
            except FileExistsError:
                pass
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise not_written(self.folder, error) from error
        return self._read(number) or mine

    def _read(self, number: int) -> list[list[Key]]:
        """What is agreed upon, if anything. A damaged agenda says nothing, and the next one is asked."""
        return work_files.batches(self._file(number))

    def _file(self, number: int) -> Path:
        return self.folder / f"agenda-{number}.json.gz"


def _key(job: Job) -> Key:
    return job.cell.id, job.sample.id


# What a worker does next: the first unit that is not finished and that nobody holds, until all are finished.


PAUSE = 1.0  # seconds between looks at units that others hold


def claimed_items(
    units: Iterable[WorkItem],
    claims: BatchLocks,
    runs: Path,
    finished: Callable[[WorkItem], bool],
    pause: float = PAUSE,
) -> Iterator[tuple[BatchLock, WorkItem]]:
    """Units that this worker now holds, each once. Ends when everything is finished, by whomever.

    While others hold all that is left it waits: should one of them die, its unit is taken over.
    """
    left = list(units)
    while left:
        held_by_others: list[WorkItem] = []
        for unit in left:
            if finished(unit):
                continue
            claim = claims.take(unit.name, [runs / cell for cell in unit.cells])
            if claim is None:
                held_by_others.append(unit)
                continue
            yield claim, unit
            if not finished(unit):  # lost to somebody, who may not finish it either
                held_by_others.append(unit)
        if len(held_by_others) == len(left):
            time.sleep(min(pause, claims.seconds / 2))
        left = held_by_others
