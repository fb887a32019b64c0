"""A worker: computes the missing samples of cells and stores their rows, one model at a time.

Any number of workers may run the same cells at once. Finished work is never repeated.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from rich.markup import escape

from harness.config import provenance
from harness.config.cell import Cell
from harness.config.model import DTYPES, ModelSpec, dtype_advice, eos_token_ids
from harness.console import say
from harness.engine.cuda_graphs import CudaGraphRunner, on_gpu
from harness.engine.engine import Engine
from harness.engine.fast_layers import compile_layers, pack_layers
from harness.engine.requests import RequestOutput
from harness.errors import UserError
from harness.runner import usage
from harness.runner.locks import BatchLock, BatchLocks
from harness.runner.memory import allowed_bytes, out_of_memory, release_cached
from harness.runner.plan import ROWS_AT_ONCE, Job, Plan, RunResult, plan
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts, result_rows
from harness.runner.signals import stoppable, uninterrupted
from harness.runner.usage import Usage
from harness.runner.work_queue import WorkItem, WorkQueue, held_items
from harness.store.store import Store


def run(
    cells: Sequence[Cell],
    results_dir: Path,
    device: str,
    prompts: Prompts,
    progress: Progress,
    settings: RunSettings = RunSettings(),  # noqa: B008 (frozen)
) -> RunResult:
    """Compute every missing sample of these cells, together with all other workers on the same cells.

    All checks come before the first model is loaded. SIGINT and SIGTERM drop the current batch and raise
    KeyboardInterrupt; what was finished is in the store.
    """
    unique = tuple({cell.id: cell for cell in cells}.values())
    store = Store(results_dir / "runs")
    by_model: dict[ModelSpec, list[Cell]] = defaultdict(list)
    for cell in unique:
        by_model[cell.model].append(cell)
    plans = [
        plan(model, members, store, prompts, settings.shard, settings.deterministic)
        for model, members in by_model.items()
    ]
    store.check_writable()
    store.remember()
    settings.enable_determinism()
    stored = 0
    with stoppable(), progress.over(sum(p.tokens for p in plans)):
        for work in plans:
            if work.jobs:
                stored += Worker(work, store, device, prompts, progress, settings).compute()
    if stored:
        store.remember()  # for the next reader; this worker has read most of the parts anyway
    return RunResult(unique, store, stored, sum(p.present for p in plans))


class Worker:
    """Computes the work of one model, batch by batch, beside others that do the same."""

    def __init__(
        self, work: Plan, store: Store, device: str, prompts: Prompts, progress: Progress, settings: RunSettings
    ) -> None:
        self.work, self.store, self.device, self.progress, self.settings = work, store, device, progress, settings
        self.requested = {cell.id: len(prompts.samples_of(cell)) for cell in work.cells}
        self.stored = 0  # samples, by this worker
        self.done: set[str] = set()  # names of the items that this worker has computed

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
        self.tokenizer = spec.tokenizer()
        self.engine = Engine(model, eos_token_ids(model), graphs=graphs)
        for cell in self.work.cells:
            described = {**cell.description(), **provenance.cell_provenance(self.device)}
            self.store.describe(cell.id, described, self.requested[cell.id])
        queue = WorkQueue(self.store.root, self.work, self.settings)
        with BatchLocks(queue.folder, self.settings.lease) as locks:
            for lock, item in held_items(queue.items(self._batches), locks, self.store.root, self._is_finished):
                with lock:
                    self._compute_item(lock, item)
        return self.stored

    @cached_property
    def _limits(self) -> tuple[int, int]:
        """Bytes and rows of a batch at most. Read once, because the allocator keeps the memory that a batch has used."""
        memory = 2**62 if self.settings.deterministic else allowed_bytes(self.engine.model.device)
        return memory, self.settings.batch_rows or ROWS_AT_ONCE

    def _batches(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        return self.work.with_jobs(jobs).batches(*self._limits)

    def _is_finished(self, item: WorkItem) -> bool:
        return item.name in self.done or not self._missing(item.jobs)

    def _missing(self, jobs: Sequence[Job]) -> list[Job]:
        finished = {cell: self.store.finished(cell) for cell in {job.cell.id for job in jobs}}
        return [job for job in jobs if job.sample.id not in finished[job.cell.id]]

    def _compute_item(self, lock: BatchLock, item: WorkItem) -> None:
        """Compute what is missing of the item. In deterministic runs the whole item, so that rows are the same as without
        an interruption."""
        missing = self._missing(item.jobs)
        if not missing:
            return
        waves = self.work.with_jobs(item.jobs if self.settings.deterministic else missing).waves(*self._limits)
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
        still_missing = set(map(id, self._missing(part)))
        finished = sorted(zip(part, outcomes, strict=True), key=lambda pair: pair[0].cell.id)
        width = sum(len(job.rows) for job in part)
        for cell_id, pairs in itertools.groupby(finished, key=lambda pair: pair[0].cell.id):
            members = [pair for pair in pairs if id(pair[0]) in still_missing]
            seconds = cost.wall_seconds / len(part)
            rows = [row for job, outcomes in members for row in result_rows(job, outcomes, self.tokenizer, seconds)]
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
    before = usage.usage_now(engine.model.device)
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
        yield batch, [[next(found) for _ in job.rows] for job in batch], usage.usage_now(engine.model.device) - before
        return
    release_cached(engine.model.device)
    middle = len(batch) // 2
    for part in waves if len(waves) > 1 else (batch[:middle], batch[middle:]):
        yield from compute_batch(engine, [part], progress, whole)
