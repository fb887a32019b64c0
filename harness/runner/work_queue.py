"""The work queue of a sweep: its batches, fixed once. The first worker writes them, all others read them.

What fits into a batch depends on the memory of the device, which only a worker knows, and what is missing depends on
the moment. If every worker made its own batches, they would overlap, and rows would be computed twice.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.atomic_files import not_written
from harness.runner.locks import BatchLock, BatchLocks
from harness.runner.model_work import ModelWork, QueuedJob
from harness.store import work_files
from harness.store.work_files import Key


@dataclass(frozen=True)
class WorkItem:
    """A batch that one worker locks as a whole. ``name``: the same for all workers of the sweep."""

    name: str
    jobs: tuple[QueuedJob, ...]

    @property
    def cells(self) -> list[str]:
        """Ids of its cells, once each."""
        return list(dict.fromkeys(job.cell for job in self.jobs))


PAUSE = 1.0  # seconds between looks at batches that others hold


class WorkQueue:
    """Batches of the jobs of one model, kept in ``<runs>/.work/<sweep>``."""

    def __init__(self, runs: Path, work: ModelWork) -> None:
        self.jobs = {job.key: job for job in work.jobs}
        self.folder = runs / work_files.FOLDER / work.sweep

    def items(self, make_batches: Callable[[Sequence[QueuedJob]], Iterable[Sequence[QueuedJob]]]) -> Iterator[WorkItem]:
        """Every job in exactly one item. ``make_batches`` gets the jobs that no earlier queue file lists.

        Raises `UserError` where the queue cannot be written.
        """
        open_jobs = dict(self.jobs)
        for number in itertools.count():
            if not open_jobs:
                return
            listed = self._read(number) or self._publish(number, make_batches(list(open_jobs.values())))
            for place, keys in enumerate(listed):
                members = tuple(open_jobs.pop(key) for key in keys if key in open_jobs)
                if members:
                    yield WorkItem(f"{number}-{place}", members)

    def _publish(self, number: int, batches: Iterable[Sequence[QueuedJob]]) -> list[list[Key]]:
        """Write the queue file, unless another worker was faster, and return the batches that it now lists."""
        mine = [[job.key for job in batch] for batch in batches]
        content = gzip.compress(json.dumps(mine).encode(), mtime=0)
        temporary = self.folder / f".queue.{os.getpid()}.{os.urandom(4).hex()}.tmp"
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
        """The listed batches, if any. A damaged file lists none, and the next one is read."""
        return work_files.read_batches(self._file(number))

    def _file(self, number: int) -> Path:
        return self.folder / f"queue-{number}.json.gz"


def held_items(
    items: Iterable[WorkItem],
    locks: BatchLocks,
    runs: Path,
    finished: Callable[[WorkItem], bool],
    pause: float = PAUSE,
) -> Iterator[tuple[BatchLock, WorkItem]]:
    """Items that this worker now holds, each once. Ends when this worker or others have finished all of them.

    While others hold all that is left it waits: when one of them dies, its item is taken over.
    """
    left = list(items)
    while left:
        held_by_others: list[WorkItem] = []
        for item in left:
            if finished(item):
                continue
            lock = locks.take(item.name, [runs / cell for cell in item.cells])
            if lock is None:
                held_by_others.append(item)
                continue
            yield lock, item
            if not finished(item):  # lost to another worker, which may not finish it either
                held_by_others.append(item)
        if len(held_by_others) == len(left):
            time.sleep(min(pause, locks.seconds / 2))
        left = held_by_others
