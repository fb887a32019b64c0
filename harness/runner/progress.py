"""How far a run is, and how that is shown: a bar in a terminal or a notebook, lines in a log file.

`Progress` follows the batches of this process. `watch_progress` follows workers in other processes: it reads the
results folder, which is all that they share.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from harness.console import console, say
from harness.runner.model_work import ModelWork
from harness.runner.plan import Job, Plan
from harness.runner.process import used_bytes
from harness.store import cell_folders
from harness.store.store import Store


class ProgressCount:
    """Tokens, samples and cells of one run. ``planned``: the work of all its rows, in tokens, each prompt counted once
    for every row that reads it.

    Where a run has several models, a token of the largest is the unit: one of another counts for what it costs of that.

    A batch that does not fit into memory is started again in halves. The tokens that it was fed until then are
    forgotten, so that every token counts once.
    """

    def __init__(self, planned: float = 0) -> None:
        self.planned = planned
        self.cost = 1.0  # of a token of the present model, in tokens of the largest
        self.samples = 0
        self.cells: set[str] = set()
        self.stored = 0.0  # the work of the rows in the store
        self.through = 0  # tokens fed for them, a shared prompt counted for every row; fewer where answers end early
        self.underway = 0  # tokens that the present batch has been fed
        self.since = time.perf_counter()
        self.computing = False  # whether a batch has started

    def start_batch(self) -> None:
        """A batch starts. The one before it has failed, unless it was finished.

        The clock starts with the first: loading a model says nothing about the speed of what follows.
        """
        if not self.computing:
            self.since, self.computing = time.perf_counter(), True
        self.underway = 0

    def add_tokens(self, tokens: int) -> None:
        """The present batch was fed so many tokens."""
        self.underway += tokens

    def finish_jobs(self, jobs: Sequence[Job]) -> None:
        """The rows of these jobs of the present batch are in the store."""
        self.samples += len(jobs)
        self.cells |= {job.cell.id for job in jobs}
        tokens = sum(row.total_tokens for job in jobs for row in job.rows)
        self.stored += self.cost * tokens
        self._leave(min(tokens, self.underway))

    def end_batch(self) -> None:
        """The present batch has no more jobs."""
        self._leave(self.underway)

    def _leave(self, tokens: int) -> None:
        self.through += tokens
        self.underway -= tokens

    def done_elsewhere(self, tokens: int) -> None:
        """Other workers have stored rows of so many tokens. What they did before this one began says nothing about the
        time that is left."""
        if self.computing:
            self.stored += self.cost * tokens
        else:
            self.planned -= self.cost * tokens

    @property
    def done(self) -> float:
        """Work of the plan that is stored or in the present batch."""
        return self.stored + self.cost * self.underway

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / max(1, self.planned)

    def time_left(self) -> str:
        """``about 12 min left``, from the mean speed since the first batch."""
        return time_left(time.perf_counter() - self.since, self.share)

    def facts(self) -> str:
        """``3 cells · 40 samples · 1,234 tokens/s · 1.9 GiB``; the speed is the mean since the first batch."""
        speed = (self.through + self.underway) / max(1e-9, time.perf_counter() - self.since)
        return (
            f"{_counted(len(self.cells), 'cell')} · {_counted(self.samples, 'sample')} · {speed:,.0f} tokens/s · "
            f"{used_bytes() / 2**30:.1f} GiB"
        )


def time_left(seconds: float, share: float) -> str:
    """``about 12 min left``, where this share of the work took so many seconds."""
    left = seconds * (1 - share) / max(1e-9, share)
    return f"about {left / 60:,.0f} min left" if left > 60 else "less than a minute left"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


class NotebookBar:
    """tqdm's bar behind the calls of rich's bar that `Progress` makes: one line, gone when the work is done.

    rich draws into an output widget of its own there, which stays behind and cannot be stored with the notebook.
    """

    bar: Any

    def add_task(self, description: str, total: float, facts: str) -> int:
        """Draw the bar. It has one task, number 0."""
        self.bar = importlib.import_module("tqdm.auto").tqdm(
            total=total,
            desc=description,
            leave=False,
            smoothing=0,  # the time left follows from the mean speed, as in `ProgressCount.facts`
            bar_format="{percentage:3.0f}% {bar} {remaining} left · {desc}{postfix}",
        )
        return 0

    def update(self, task: int, completed: float | None = None, description: str = "", facts: str = "") -> None:
        """Draw again, at most ten times a second unless the description changes."""
        if facts:
            self.bar.set_postfix_str(facts, refresh=False)
        if completed is not None:
            self.bar.update(completed - self.bar.n)
        if description:
            self.bar.set_description_str(description)

    def __enter__(self) -> NotebookBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.bar.total = self.bar.n  # tqdm takes anything less for a failure, and leaves the bar there in red
        self.bar.close()


# Workers in this process.


FIRST_LINE, PAUSE = 15.0, 60.0  # seconds until the first line, and between two


class Progress:
    """One bar over the tokens of the whole sweep, with speed, time left and memory; cells and samples beside it.

    Without a terminal or notebook: a line on stdout after `FIRST_LINE` seconds, then one in `PAUSE` seconds.
    ``on_stored`` is called with jobs after their rows are stored.
    """

    def __init__(self, shown: bool | None = None, on_stored: Callable[[Sequence[Job]], None] | None = None) -> None:
        self.shown = console.is_terminal or console.is_jupyter if shown is None else shown
        self.on_stored = on_stored
        self.count = ProgressCount()
        self.next_line = 0.0  # of the clock
        self.bar: Any = NotebookBar() if self.shown and console.is_jupyter else _terminal_bar(self.shown)
        self.task: Any = None

    @contextmanager
    def over(self, tokens: float) -> Iterator[None]:
        """Show the bar while the block runs; nothing where ``tokens``, of the largest model, is 0."""
        if tokens == 0:
            yield
            return
        self.count = ProgressCount(tokens)
        self.next_line = time.monotonic() + FIRST_LINE
        self.task = self.bar.add_task("planning", total=tokens, facts="")
        with self.bar:
            yield

    def of_model(self, cost: float) -> None:
        """The work of another model begins: what a token of it costs, in tokens of the largest."""
        self.count.cost = cost

    def say(self, what: str) -> None:
        """A batch starts; ``what`` describes it on the bar. An unfinished batch before it no longer counts."""
        self.count.start_batch()
        self.bar.update(self.task, description=escape(what))

    def fed(self, tokens: int) -> None:
        """So many tokens went through the model."""
        self.count.add_tokens(tokens)
        self._show()

    def done_elsewhere(self, tokens: int) -> None:
        """Other workers have stored rows of so many tokens."""
        self.count.done_elsewhere(tokens)
        self._show()

    def end_batch(self) -> None:
        """All jobs of the batch are finished."""
        self.count.end_batch()

    def finished(self, jobs: Sequence[Job]) -> None:
        """The rows of these jobs are in the store."""
        self.count.finish_jobs(jobs)
        self._show()
        if self.on_stored:
            self.on_stored(jobs)

    def _show(self) -> None:
        if self.shown:
            self.bar.update(self.task, completed=self.count.done, facts=self.count.facts())
        elif time.monotonic() >= self.next_line:
            self.next_line = time.monotonic() + PAUSE
            say(escape(f"{self.count.share:.0%} · {self.count.facts()} · {self.count.time_left()}"))


def _terminal_bar(shown: bool) -> Bar:
    return Bar(
        TextColumn("{task.description}\n{task.fields[facts]}"),  # two lines, so that 80 columns hold the rest
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        disable=not shown,
    )


# Workers in other processes.


PASS = 8  # tokens of a block that take about as long as a pass does beside its tokens
STORE_PAUSE = 2.0  # seconds between two looks at the folder, at least
SHARE = 0.05  # of the time that looking may take: a folder of thousands of cells on a slow disk is looked at less often


@dataclass(frozen=True)
class SweepStatus:
    """``workers``: those that hold a batch now. ``work_done``: of what was missing, in the unit of `StoreProgress`."""

    cells_done: int
    samples_done: int
    workers: int
    work_done: float = 0.0


class StoreProgress:
    """How many of the samples that plans have found missing are in the store by now.

    ``work``: of the same plans. It is measured in tokens, and `PASS` more for each pass, times the model's weights.
    """

    def __init__(self, store: Store, plans: Sequence[Plan], work: Sequence[ModelWork] = ()) -> None:
        self.store = store
        self.cost = {
            job.key: (job.load.tokens + PASS * job.load.passes) * each.footprint.weights
            for each in work
            for job in each.jobs
        }
        self.work = float(sum(self.cost.values()))
        self.missing = {
            cell: set(samples) - store.finished(cell) for plan in plans for cell, samples in plan.samples.items()
        }
        self.cells = len(self.missing)
        self.samples = sum(plan.requested for plan in plans)

    def look(self) -> SweepStatus:
        """How far it is now. Parts that cannot be read are skipped here: workers report what is wrong with them."""
        unfinished = [cell for cell, samples in self.missing.items() if samples]
        found, _ = self.store.survey(unfinished)
        workers: set[str] = set()
        for cell, parts in found.items():
            self.missing[cell].difference_update(*(part.samples for part in parts))
            folder = self.store.root / cell
            if folder.is_dir():
                workers |= {lease.worker for lease in cell_folders.leases_of_cell(folder) if lease.alive()}
        left = [len(samples) for samples in self.missing.values()]
        open_work = sum(
            self.cost.get((cell, sample), 0) for cell, samples in self.missing.items() for sample in samples
        )
        return SweepStatus(left.count(0), self.samples - sum(left), len(workers), self.work - open_work)


@contextmanager
def watch_progress(store: Store, plans: Sequence[Plan], work: Sequence[ModelWork]) -> Iterator[None]:
    """A bar over the work of all plans while the block runs; without a terminal lines as those of `Progress`."""
    underway = StoreProgress(store, plans, work)
    started = time.monotonic()
    over = threading.Event()
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        disable=not console.is_terminal,
    )
    next_line = time.monotonic() + FIRST_LINE
    task = bar.add_task("waiting for workers", total=underway.work)

    def watch() -> None:
        took = 0.0
        while not over.wait(max(STORE_PAUSE, took / SHARE)):
            took = look()

    def look() -> float:
        nonlocal next_line
        began = time.monotonic()
        if bar.disable and began < next_line:
            return 0.0  # nobody would see what the folder says
        with suppress(OSError):  # a folder that does not answer now may do so at the next look
            now = underway.look()
            bar.update(task, completed=now.work_done, description=status_text(now, underway))
            if bar.disable:
                next_line = began + PAUSE
                share = now.work_done / underway.work
                left = f" · {time_left(began - started, share)}" if 0 < share < 1 else ""
                say(escape(status_text(now, underway) + left))
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


def status_text(now: SweepStatus, underway: StoreProgress) -> str:
    """``3 of 12 cells · 240 of 1,200 samples · 2 at work``."""
    return (
        f"{now.cells_done:,} of {underway.cells:,} cells · {now.samples_done:,} of {underway.samples:,} samples · "
        f"{now.workers:,} at work"
    )
