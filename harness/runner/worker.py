"""A worker: computes the missing samples of cells and stores their rows, one model at a time.

Any number of workers may run the same cells at once. Finished work is never repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from rich.markup import escape

from harness.config import provenance
from harness.config.cell import Cell
from harness.config.model import DTYPES, dtype_advice, eos_token_ids
from harness.console import say
from harness.engine.cuda_graphs import CudaGraphRunner, on_gpu
from harness.engine.engine import Engine
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
        tokens = allowed_tokens(self.work.footprint, self.engine.model.device)
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
        for part, outcomes, cost in compute_batch(self.engine, waves, self.progress, self.settings.deterministic):
            with uninterrupted():
                if not lock.renew():
                    self.progress.say("given up: another worker has taken this batch over")
                    return
                self._store(lock, part, outcomes, cost)
            self.progress.finished(part)
        self.done.add(item.name)

    def _store(
        self, lock: BatchLock, part: Sequence[Job], outcomes: Sequence[list[RequestOutput]], cost: Usage
    ) -> None:
        still_missing = self._missing(job.key for job in part)
        finished = sorted(zip(part, outcomes, strict=True), key=lambda pair: pair[0].cell.id)
        width = sum(len(job.rows) for job in part)
        encoder = self.builder.prompts.encoder(self.work.model)
        for cell_id, pairs in itertools.groupby(finished, key=lambda pair: pair[0].cell.id):
            members = [pair for pair in pairs if pair[0].key in still_missing]
            rows = [row for job, found in members for row in result_rows(job, found, encoder)]
            how = {"batch_rows": width, "deterministic": self.settings.deterministic, "worker": lock.locks.worker}
            spent = {**asdict(cost.share(len(members) / len(part))), **provenance.part_provenance(self.device), **how}
            if rows and lock.held():
                self.store.append(cell_id, rows, spent)
                self.stored += len(members)


def compute_batch(
    engine: Engine, waves: Sequence[Sequence[Job]], progress: Progress, whole: bool = False
) -> Iterator[tuple[Sequence[Job], list[list[RequestOutput]], Usage]]:
    """Jobs, the outcomes of the rows of each, and what they cost together.

    Where memory does not suffice, each wave is computed by itself, then each half of it, unless the batch must stay
    ``whole``. Raises `UserError` for a single job, or a whole batch, that does not fit.
    """
    batch = [job for wave in waves for job in wave]
    widths = [sum(len(job.rows) for job in wave) for wave in waves]
    task, prompting = batch[0].cell.task, batch[0].cell.prompting
    progress.say(f"{task.label}: {sum(widths)} rows")
    before = process.usage_now(engine.model.device)
    rows = [row for job in batch for row in job.rows]
    try:
        if task.mode == "perplexity":
            found = iter(engine.perplexity(rows, prompting, progress.fed))
        else:
            call = {"generate": engine.generate, "continuations": engine.follow}[task.mode]
            found = iter(call(rows, prompting, progress.fed, widths))
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if whole and len(batch) > 1:
            raise UserError(
                f"{len(batch)} samples at once do not fit into memory, and deterministic=true does not halve batches: "
                "set batch_rows to fewer rows."
            ) from error
        if len(batch) == 1:
            job = batch[0]
            raise UserError(
                f"Policy '{job.cell.policy.name}' on a prompt of {len(job.row.tokens)} tokens does not fit into "
                "memory, even by itself: lower block_size or budget, use shorter prompts, or a device with more memory."
            ) from error
    else:
        yield batch, [[next(found) for _ in job.rows] for job in batch], process.usage_now(engine.model.device) - before
        return
    release_cached(engine.model.device)
    middle = len(batch) // 2
    for part in waves if len(waves) > 1 else (batch[:middle], batch[middle:]):
        yield from compute_batch(engine, [part], progress, whole)
