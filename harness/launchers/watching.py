"""What a person sees while workers elsewhere compute: read from the results folder, which is all that is shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from harness import terminal
from harness.planning.plan import Plan
from harness.store import Store, leases

PAUSE = 2.0  # seconds between two looks at the folder, at least
SHARE = 0.05  # of the time that looking may take: a folder of thousands of cells on a slow disk is looked at less often


@dataclass(frozen=True)
class Standing:
    """``workers``: those that hold a batch now."""

    cells_done: int
    samples_done: int
    workers: int


class Underway:
    """The samples that plans say are missing, and how many of them are there by now."""

    def __init__(self, store: Store, plans: Sequence[Plan]) -> None:
        self.store = store
        self.missing: dict[str, set[str]] = {cell.id: set() for plan in plans for cell in plan.cells}
        for plan in plans:
            for job in plan.jobs:
                self.missing[job.cell.id].add(job.sample.id)
        self.cells = len(self.missing)
        self.samples = sum(plan.present for plan in plans) + sum(map(len, self.missing.values()))

    def look(self) -> Standing:
        """How far it is now. Parts that cannot be read count for nothing: workers say what is wrong with them."""
        unfinished = [cell for cell, samples in self.missing.items() if samples]
        found, _ = self.store.survey(unfinished)
        workers: set[str] = set()
        for cell, parts in found.items():
            self.missing[cell].difference_update(*(part.samples for part in parts))
            folder = self.store.root / cell
            if folder.is_dir():
                workers |= {lease.worker for lease in leases.of_cell(folder) if lease.alive()}
        left = [len(samples) for samples in self.missing.values()]
        return Standing(left.count(0), self.samples - sum(left), len(workers))


@contextmanager
def shown(store: Store, plans: Sequence[Plan]) -> Iterator[None]:
    """A bar over the samples of all plans while the block runs. Nothing where nobody watches."""
    if not terminal.console.is_terminal:
        yield
        return
    underway = Underway(store, plans)
    over = threading.Event()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=terminal.console,
    )
    task = bar.add_task("waiting for workers", total=underway.samples, completed=sum(plan.present for plan in plans))

    def watch() -> None:
        took = 0.0
        while not over.wait(max(PAUSE, took / SHARE)):
            took = look()

    def look() -> float:
        began = time.monotonic()
        with suppress(OSError):  # a folder that does not answer now may do so at the next look
            now = underway.look()
            bar.update(task, completed=now.samples_done, description=said(now, underway))
        return time.monotonic() - began

    watcher = threading.Thread(target=watch, name="watcher", daemon=True)
    with bar:
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            look()


def said(now: Standing, underway: Underway) -> str:
    """``3 of 12 cells · 240 of 1,200 samples · 2 at work``."""
    return (
        f"{now.cells_done:,} of {underway.cells:,} cells · {now.samples_done:,} of {underway.samples:,} samples · "
        f"{now.workers:,} at work"
    )
