"""The runner: cells in, rows in the store out. One process, one model at a time, finished work is never repeated."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness import provenance
from harness.cells import Cell
from harness.engine import Engine, Outcome
from harness.errors import UserError
from harness.memory import allowed, out_of_memory, release_cached
from harness.models import ModelSpec, eos_token_ids
from harness.plan import Job, Plan, plan
from harness.prompts import Prompts
from harness.store import Store
from harness.terminal import Progress


@dataclass(frozen=True)
class Finished:
    """What a run was asked for and what it did. ``computed`` and ``present`` count samples over all cells."""

    cells: tuple[Cell, ...]
    store: Store
    computed: int
    present: int

    def rows(self) -> pd.DataFrame:
        """All rows of these cells, of this run and earlier ones, in the order in which cells were asked for."""
        return self.store.load(cell.id for cell in self.cells)


def run(cells: Sequence[Cell], results_dir: Path, device: str, prompts: Prompts, progress: Progress) -> Finished:
    """Compute every missing sample of these cells. All checks come before the first model is loaded."""
    unique = tuple({cell.id: cell for cell in cells}.values())
    store = Store(results_dir / "runs")
    by_model: dict[ModelSpec, list[Cell]] = defaultdict(list)
    for cell in unique:
        by_model[cell.model].append(cell)
    plans = [plan(model, members, store, prompts) for model, members in by_model.items()]
    store.check_writable()
    with progress.over(sum(p.tokens for p in plans)):
        for work in plans:
            if work.jobs:
                _compute(work, store, device, progress)
    return Finished(unique, store, sum(len(p.jobs) for p in plans), sum(p.present for p in plans))


def _compute(work: Plan, store: Store, device: str, progress: Progress) -> None:
    model = work.model.load(device)
    tokenizer = work.model.tokenizer()
    engine = Engine(model, eos_token_ids(model))
    for cell in work.cells:
        store.describe(cell.id, {**cell.labels(), "config": cell.identity, **provenance.record(device)})
    for batch in work.batches(allowed(model.device)):
        for part, outcomes, seconds in _outcomes(engine, batch, progress):
            finished = sorted(zip(part, outcomes, strict=True), key=lambda pair: pair[0].cell.id)
            for cell_id, pairs in itertools.groupby(finished, key=lambda pair: pair[0].cell.id):
                store.append(
                    cell_id, [r for job, out in pairs for r in _rows(job, out, tokenizer, seconds / len(part))]
                )
            progress.finished(part)


def _outcomes(
    engine: Engine, batch: Sequence[Job], progress: Progress
) -> Iterator[tuple[Sequence[Job], list[Outcome], float]]:
    """Jobs with their outcomes and the seconds they took together. Where memory does not suffice, each half by itself.

    Raises `UserError` for a single row that does not fit.
    """
    progress.say(f"{batch[0].cell.task.name}: {len(batch)} rows")
    run_rows = engine.perplexity if batch[0].cell.task.mode == "perplexity" else engine.generate
    started = time.perf_counter()
    try:
        outcomes = run_rows([job.row for job in batch], batch[0].cell.prompting, progress.fed)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if len(batch) == 1:
            job = batch[0]
            raise UserError(
                f"Policy '{job.cell.policy.name}' on a prompt of {len(job.row.tokens)} tokens does not fit into "
                "memory, even by itself: lower block_size or budget, use shorter prompts, or a device with more memory."
            ) from error
    else:
        yield batch, outcomes, time.perf_counter() - started
        return
    release_cached(engine.model.device)
    middle = len(batch) // 2
    for half in (batch[:middle], batch[middle:]):
        yield from _outcomes(engine, half, progress)


def _rows(job: Job, outcome: Outcome, tokenizer: Any, seconds: float) -> list[dict[str, Any]]:
    """The ``samples`` rows of one (cell, sample), one per metric (docs/design/rows.md)."""
    task, sample = job.cell.task, job.sample
    prediction = tokenizer.decode(outcome.tokens, skip_special_tokens=True)
    if task.mode == "perplexity":
        weight = float(len(outcome.nll))
        scores = {"nll": sum(outcome.nll) / max(1.0, weight)}
    else:
        weight, scores = 1.0, task.score(sample, prediction)
    common = {
        "sample_id": sample.id,
        "weight": weight,
        "prediction": prediction,
        "reference": sample.references[0] if sample.references else "",
        "document": sample.document,
        **{f"axis_{name}": value for name, value in sample.axes.items()},
        "prompt_tokens": len(job.row.tokens),
        "new_tokens": len(outcome.tokens),
        **asdict(outcome.ledger),
        "seconds": seconds,
    }
    return [{"metric": metric, "value": value, **common} for metric, value in scores.items()]
