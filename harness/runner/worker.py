"""A worker: computes the missing samples of cells and stores their rows, one model at a time.

Any number of workers may run the same cells at once. Finished work is never repeated.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from rich.markup import escape

from harness.config import provenance
from harness.config.cell import Cell
from harness.config.model import DTYPES, dtype_advice, eos_token_ids
from harness.console import say
from harness.engine.cuda_graphs import CudaGraphRunner, on_gpu
from harness.engine.engine import Engine, Observer
from harness.engine.fast_layers import compile_layers, pack_layers
from harness.engine.requests import RequestOutput
from harness.errors import UserError
from harness.runner import process
from harness.runner.locks import BatchLock, BatchLocks
from harness.runner.memory import allowed_bytes, allowed_tokens, out_of_memory, release_cached
from harness.runner.model_work import JobBuilder, ModelWork, QueuedJob
from harness.runner.plan import ROWS_AT_ONCE, Job, RunResult, make_batches, make_waves, plan_models, unique_cells
from harness.runner.process import Usage, stoppable, uninterrupted
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts, result_rows
from harness.runner.work_queue import WorkItem, WorkQueue, held_items
from harness.store.store import Store
from harness.store.work_files import Key

ABOUT_A_SHARE = 1.05  # of a worker: a little more, so that no batch is left over with the last few samples
HANDED_ON_EVERY = 30.0  # seconds, so that finished samples are stored soon though their batch goes on


def run(
    cells: Sequence[Cell],
    results_dir: Path,
    device: str,
    prompts: Prompts,
    progress: Progress,
    settings: RunSettings = RunSettings(),  # noqa: B008 (frozen)
) -> RunResult:
    """Plan and compute every missing sample of these cells, together with all other workers on the same cells.

    All checks come before the first model is loaded. SIGINT and SIGTERM drop the current batch and raise
    KeyboardInterrupt; what was finished is in the store.
    """
    unique = unique_cells(cells)
    store = Store(results_dir / "runs")
    plans = plan_models(unique, store, prompts, settings)
    work = [ModelWork.of(each, prompts, settings) for each in plans if each.jobs]
    present = sum(each.present for each in plans)
    stored = compute_work(work, JobBuilder(work, prompts, unique), store, device, progress, settings)
    return RunResult(unique, store, stored, present)


def compute_work(
    work: Sequence[ModelWork],
    builder: JobBuilder,
    store: Store,
    device: str,
    progress: Progress,
    settings: RunSettings,
) -> int:
    """Compute planned work together with all other workers on it; how many samples this one has stored."""
    store.remember()
    settings.enable_determinism()
    stored = 0
    largest = max((each.footprint.weights for each in work), default=1)
    with stoppable(), progress.over(sum(each.tokens * each.footprint.weights / largest for each in work)):
        for each in work:
            if each.jobs:
                progress.of_model(each.footprint.weights / largest)
                stored += Worker(each, builder, store, device, progress, settings).compute()
    if stored:
        store.remember()  # for the next reader; this worker has read most of the parts anyway
    return stored


class _TakenOver(Exception):  # noqa: N818, it is a signal and not an error
    """Ends a batch that another worker has taken over meanwhile."""


class Worker:
    """Computes the work of one model, batch by batch, beside others that do the same."""

    def __init__(
        self,
        work: ModelWork,
        builder: JobBuilder,
        store: Store,
        device: str,
        progress: Progress,
        settings: RunSettings,
    ) -> None:
        self.work, self.builder, self.store, self.device = work, builder, store, device
        self.progress, self.settings = progress, settings
        self.stored = 0  # samples, by this worker
        self.done: set[str] = set()  # names of the items that this worker has computed or found computed

    def compute(self) -> int:
        """Work until all workers together have stored every sample; how many this one has stored."""
        spec = self.work.model
        if slow := dtype_advice(spec.name, DTYPES[spec.dtype], self.device):
            say(escape(slow))
        model = spec.load(self.device)
        graphs = None
        if self.settings.compile_on(model.device):
            if reason := compile_layers(model):
                say(escape(reason))
            graphs = CudaGraphRunner(on_gpu(), lambda sentence: say(escape(sentence)))
        if self.settings.pack_on(model.device):
            pack_layers(model)
        self.engine = Engine(model, eos_token_ids(model), graphs=graphs)
        for cell_id, cell in self.work.cells.items():
            described = {**cell.description, **provenance.cell_provenance(self.device)}
            self.store.describe(cell_id, described, cell.requested)
        queue = WorkQueue(self.store.root, self.work)
        with BatchLocks(queue.folder, self.settings.lease) as locks:
            for lock, item in held_items(queue.items(self._batches), locks, self.store.root, self._is_finished):
                with lock:
                    self._compute_item(lock, item)
        return self.stored

    @cached_property
    def _limits(self) -> tuple[int, int]:
        """Bytes and rows of a batch at most. Read once: the allocator keeps the memory that a batch has used."""
        memory = 2**62 if self.settings.deterministic else allowed_bytes(self.engine.model.device)
        return memory, self.settings.batch_rows or ROWS_AT_ONCE

    def _batches(self, jobs: Sequence[QueuedJob]) -> Iterator[list[QueuedJob]]:
        """Of these jobs. So that all workers have some, none has much more than one worker's share of the tokens."""
        tokens = allowed_tokens(self.work.footprint, self.engine.model.device)
        if not self.settings.deterministic:  # there a row's company must not depend on the number of workers
            tokens = min(tokens, ABOUT_A_SHARE * sum(job.load.tokens for job in jobs) / self.settings.workers)
        for batch in make_batches([job.load for job in jobs], self.work.footprint, *self._limits, tokens):
            yield [jobs[place] for place in batch]

    def _waves(self, jobs: Sequence[QueuedJob]) -> list[list[Job]]:
        waves = make_waves([job.load for job in jobs], self.work.footprint, *self._limits)
        return [self.builder.build(jobs[place] for place in wave) for wave in waves]

    def _is_finished(self, item: WorkItem) -> bool:
        if item.name in self.done:
            return True
        if self._missing(job.key for job in item.jobs):
            return False
        self.done.add(item.name)
        self.progress.done_elsewhere(sum(job.load.tokens for job in item.jobs))
        return True

    def _missing(self, keys: Iterable[Key]) -> set[Key]:
        listed = set(keys)
        finished = {cell: self.store.finished(cell) for cell in {cell for cell, _ in listed}}
        return {(cell, sample) for cell, sample in listed if sample not in finished[cell]}

    def _compute_item(self, lock: BatchLock, item: WorkItem) -> None:
        """Compute what is missing of the item. In deterministic runs the whole item, so that rows are the same as
        without an interruption."""
        missing = self._missing(job.key for job in item.jobs)
        if not missing:
            return
        waves = self._waves([job for job in item.jobs if self.settings.deterministic or job.key in missing])

        def store(finished: FinishedJobs) -> None:
            with uninterrupted():
                if not lock.renew():
                    raise _TakenOver
                self._store(lock, finished)

        try:
            compute_batch(self.engine, waves, self.progress, store, self.settings.deterministic)
        except _TakenOver:
            self.progress.say("given up: another worker has taken this batch over")
        else:
            self.done.add(item.name)

    def _store(self, lock: BatchLock, part: FinishedJobs) -> None:
        still_missing = self._missing(job.key for job in part.jobs)
        finished = sorted(zip(part.jobs, part.outcomes, strict=True), key=lambda pair: pair[0].cell.id)
        encoder = self.builder.prompts.encoder(self.work.model)
        for cell_id, pairs in itertools.groupby(finished, key=lambda pair: pair[0].cell.id):
            members = [pair for pair in pairs if pair[0].key in still_missing]
            rows = [row for job, found in members for row in result_rows(job, found, encoder)]
            how = {
                "batch_rows": part.batch_rows,
                "deterministic": self.settings.deterministic,
                "worker": lock.locks.worker,
            }
            spent = {
                **asdict(part.cost.share(len(members) / len(part.jobs))),
                **provenance.part_provenance(self.device),
                **how,
            }
            if rows and lock.held():
                self.store.append(cell_id, rows, spent)
                self.stored += len(members)


@dataclass(frozen=True)
class FinishedJobs:
    """Jobs of a batch that have ended, the outcomes of the rows of each, what they cost together, and how many rows
    the batch has in all."""

    jobs: Sequence[Job]
    outcomes: Sequence[list[RequestOutput]]
    cost: Usage
    batch_rows: int


HandOn = Callable[[FinishedJobs], None]


class BatchRun(Observer):
    """A batch that is computed: hands finished jobs on every `HANDED_ON_EVERY` seconds, and the rest at its end.

    What the batch has cost by then is shared alike among all jobs that were not handed on before; those that still run
    carry their share on.
    """

    def __init__(self, jobs: Sequence[Job], device: torch.device, progress: Progress, hand_on: HandOn) -> None:
        self.jobs, self.device, self.progress, self._hand_on = jobs, device, progress, hand_on
        self.rows = [row for job in jobs for row in job.rows]
        self._places = [(number, row) for number, job in enumerate(jobs) for row in range(len(job.rows))]
        self._outcomes: list[dict[int, RequestOutput]] = [{} for _ in jobs]
        self._running = set(range(len(jobs)))  # numbers of jobs with rows that have not ended
        self._waiting: list[int] = []  # numbers of jobs that have ended and are to be handed on
        self._begun = process.usage_now(device)
        self._next = time.monotonic() + HANDED_ON_EVERY

    @property
    def running(self) -> list[Job]:
        """Jobs that have not ended, in their order."""
        return [self.jobs[number] for number in sorted(self._running)]

    def fed(self, tokens: int) -> None:
        """The engine's hook, after each pass."""
        self.progress.fed(tokens)
        if self._waiting and time.monotonic() >= self._next:
            self.hand_on()

    def ended(self, index: int, outcome: RequestOutput) -> None:
        """The engine's hook, for each row."""
        number, row = self._places[index]
        self._outcomes[number][row] = outcome
        if len(self._outcomes[number]) == len(self.jobs[number].rows):
            self._running.remove(number)
            self._waiting.append(number)

    def hand_on(self) -> None:
        """Hand on what has ended."""
        self._next = time.monotonic() + HANDED_ON_EVERY
        if not self._waiting:
            return
        numbers, self._waiting = sorted(self._waiting), []
        now = process.usage_now(self.device)
        cost, share = now - self._begun, len(numbers) / (len(numbers) + len(self._running))
        self._begun = now - cost.share(1 - share)
        outcomes = [
            [self._outcomes[number].pop(row) for row in range(len(self.jobs[number].rows))] for number in numbers
        ]
        jobs = [self.jobs[number] for number in numbers]
        self._hand_on(FinishedJobs(jobs, outcomes, cost.share(share), len(self.rows)))
        self.progress.finished(jobs)


def compute_batch(
    engine: Engine, waves: Sequence[Sequence[Job]], progress: Progress, hand_on: HandOn, whole: bool = False
) -> None:
    """Compute jobs, and call ``hand_on`` with those that have ended, each once.

    Where memory does not suffice, each wave of those that have not ended is computed by itself, then each half of it,
    unless the batch must stay ``whole``. Raises `UserError` for a single job, or a whole batch, that does not fit.
    """
    run = BatchRun([job for wave in waves for job in wave], engine.model.device, progress, hand_on)
    cell = run.jobs[0].cell
    progress.say(f"{cell.task.label}: {len(run.rows)} rows")
    try:
        if cell.task.mode == "perplexity":
            engine.perplexity(run.rows, cell.prompting, run)
        else:
            call = {"generate": engine.generate, "continuations": engine.follow}[cell.task.mode]
            call(run.rows, cell.prompting, run, [sum(len(job.rows) for job in wave) for wave in waves])
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if whole and len(run.jobs) > 1:
            raise UserError(
                f"{len(run.jobs)} samples at once do not fit into memory, and deterministic=true does not halve "
                "batches: set batch_rows to fewer rows."
            ) from error
        if len(run.jobs) == 1:
            raise UserError(
                f"Policy '{cell.policy.name}' on a prompt of {len(run.jobs[0].row.tokens)} tokens does not fit into "
                "memory, even by itself: lower block_size or budget, use shorter prompts, or a device with more memory."
            ) from error
    run.hand_on()
    left = run.running
    if not left:
        progress.end_batch()
        return
    release_cached(engine.model.device)
    keys, middle = {job.key for job in left}, len(left) // 2
    by_wave = [[job for job in wave if job.key in keys] for wave in waves]
    for part in by_wave if len(waves) > 1 else (left[:middle], left[middle:]):
        if part:
            compute_batch(engine, [part], progress, hand_on, whole)
