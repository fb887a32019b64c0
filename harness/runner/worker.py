"""The runner: cells in, rows in the store out. One model at a time; any number of processes may run the same cells.

Finished work is never repeated.
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
from harness.engine.requests.request import RequestOutput
from harness.errors import UserError
from harness.runner import usage
from harness.runner.locks import BatchLock, BatchLocks
from harness.runner.memory import allowed_bytes, out_of_memory, release_cached
from harness.runner.plan import ROWS_AT_ONCE, Job, Plan, RunResult, plan
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts, rows_of
from harness.runner.signals import stoppable, uninterrupted
from harness.runner.usage import Usage
from harness.runner.work_queue import WorkItem, WorkQueue, claimed_items
from harness.store.store import Store


def run(
    cells: Sequence[Cell],
    results_dir: Path,
    device: str,
    prompts: Prompts,
    progress: Progress,
    terms: RunSettings = RunSettings(),  # noqa: B008 (frozen)
) -> RunResult:
    """Compute every missing sample of these cells, together with any other worker that is asked for the same.

    All checks come before the first model is loaded. SIGINT and SIGTERM drop the batch under way and raise
    KeyboardInterrupt; what was finished is in the store.
    """
    unique = tuple({cell.id: cell for cell in cells}.values())
    store = Store(results_dir / "runs")
    by_model: dict[ModelSpec, list[Cell]] = defaultdict(list)
    for cell in unique:
        by_model[cell.model].append(cell)
    plans = [
        plan(model, members, store, prompts, terms.shard, terms.deterministic) for model, members in by_model.items()
    ]
    store.check_writable()
    store.remember()
    terms.settle()
    stored = 0
    with stoppable(), progress.over(sum(p.tokens for p in plans)):
        for work in plans:
            if work.jobs:
                stored += Worker(work, store, device, prompts, progress, terms).compute()
    if stored:
        store.remember()  # for whoever asks next; this worker has read most of it anyway
    return RunResult(unique, store, stored, sum(p.present for p in plans))


class Worker:
    """Computes the work of one model, batch by batch, beside others that do the same."""

    def __init__(
        self, work: Plan, store: Store, device: str, prompts: Prompts, progress: Progress, terms: RunSettings
    ) -> None:
        self.work, self.store, self.device, self.progress, self.terms = work, store, device, progress, terms
        self.wanted = {cell.id: len(prompts.under(cell)) for cell in work.cells}
        self.stored = 0  # samples, by this worker
        self.settled: set[str] = set()  # units that this worker has seen to the end

    def compute(self) -> int:
        """Go on until every sample is in the store, by whomever; how many this worker has stored."""
        spec = self.work.model
        if slow := dtype_advice(spec.name, DTYPES[spec.dtype], self.device):
            say(escape(slow))
        model = spec.load(self.device)
        repeats = None
        if self.terms.compile_on(model.device):
            if reason := compile_layers(model):
                say(escape(reason))
            repeats = CudaGraphRunner(on_gpu(), lambda sentence: say(escape(sentence)))
        if self.terms.pack_on(model.device):
            pack_layers(model)
        self.tokenizer = spec.tokenizer()
        self.engine = Engine(model, eos_token_ids(model), repeats=repeats)
        for cell in self.work.cells:
            described = {**cell.description(), **provenance.cell_provenance(self.device)}
            self.store.describe(cell.id, described, self.wanted[cell.id])
        agenda = WorkQueue(self.store.root, self.work, self.terms)
        with BatchLocks(agenda.folder, self.terms.lease) as claims:
            for claim, unit in claimed_items(agenda.units(self._batches), claims, self.store.root, self._is_finished):
                with claim:
                    self._settle(claim, unit)
        return self.stored

    @cached_property
    def _room(self) -> tuple[int, int]:
        """Bytes and rows that may be in work at one time: asked once, as the allocator keeps what a batch has used."""
        memory = 2**62 if self.terms.deterministic else allowed_bytes(self.engine.model.device)
        return memory, self.terms.batch_rows or ROWS_AT_ONCE

    def _batches(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        return self.work.of(jobs).batches(*self._room)

    def _is_finished(self, unit: WorkItem) -> bool:
        return unit.name in self.settled or not self._missing(unit.jobs)

    def _missing(self, jobs: Sequence[Job]) -> list[Job]:
        finished = {cell: self.store.finished(cell) for cell in {job.cell.id for job in jobs}}
        return [job for job in jobs if job.sample.id not in finished[job.cell.id]]

    def _settle(self, claim: BatchLock, unit: WorkItem) -> None:
        """Compute what the unit lacks, all of it where rows must be what they would be without an interruption."""
        missing = self._missing(unit.jobs)
        if not missing:
            return
        waves = self.work.of(unit.jobs if self.terms.deterministic else missing).waves(*self._room)
        for part, outcomes, cost in compute_batch(self.engine, waves, self.progress, self.terms.deterministic):
            with uninterrupted():
                if not claim.renew():
                    self.progress.say("given up: another worker has taken this batch over")
                    return
                self._store(claim, part, outcomes, cost)
            self.progress.finished(part)
        self.settled.add(unit.name)

    def _store(
        self, claim: BatchLock, part: Sequence[Job], outcomes: Sequence[list[RequestOutput]], cost: Usage
    ) -> None:
        still_missing = set(map(id, self._missing(part)))
        finished = sorted(zip(part, outcomes, strict=True), key=lambda pair: pair[0].cell.id)
        width = sum(len(job.rows) for job in part)
        for cell_id, pairs in itertools.groupby(finished, key=lambda pair: pair[0].cell.id):
            members = [pair for pair in pairs if id(pair[0]) in still_missing]
            seconds = cost.wall_seconds / len(part)
            rows = [row for job, said in members for row in rows_of(job, said, self.tokenizer, seconds)]
            how = {"batch_rows": width, "deterministic": self.terms.deterministic, "worker": claim.claims.worker}
            beside = {**asdict(cost.share(len(members) / len(part))), **provenance.part_provenance(self.device), **how}
            if rows and claim.held():
                self.store.append(cell_id, rows, beside)
                self.stored += len(members)


def compute_batch(
    engine: Engine, waves: Sequence[Sequence[Job]], progress: Progress, whole: bool = False
) -> Iterator[tuple[Sequence[Job], list[list[RequestOutput]], Usage]]:
    """Jobs, the outcomes of the rows of each, and what they cost together. Where memory does not suffice, each wave by
    itself, then each half of it, unless the batch must stay ``whole``.

    Raises `UserError` for a single job, or a whole batch, that does not fit.
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
            speak = {"generate": engine.generate, "continuations": engine.follow}[task.mode]
            found = iter(speak(rows, prompting, progress.fed, widths))
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
