"""From cells to batches: which samples are missing, and which of them the engine is given at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cells import Cell
from harness.engine import Row
from harness.engine.hook import refuse_unsupported
from harness.memory import Footprint, Load
from harness.models import ModelSpec
from harness.prompts import Prompts
from harness.refusals import hindsight_bytes
from harness.store import Store
from policies.shape import ModelShape
from tasks.base import Sample

ROWS_AT_ONCE = 512
SIMILAR_LENGTH = 128  # tokens by which prompts may differ that are read at once
TOKENS_AT_ONCE = 16384  # in one pass: more are not faster, and an interrupted run would lose more


@dataclass(frozen=True)
class Job:
    """One missing (cell, sample) pair, ready for the engine."""

    cell: Cell
    sample: Sample
    row: Row

    @property
    def together(self) -> tuple[Any, ...]:
        """Jobs with the same key can be given to the engine at once: prompts of similar length, fed alike."""
        prompting = self.cell.prompting
        similar = len(self.row.tokens) // (prompting.block_size if prompting.regime == "blocked" else SIMILAR_LENGTH)
        return (self.cell.task.mode, prompting, similar)


@dataclass(frozen=True)
class Plan:
    """All work of one model. ``present`` counts samples that the store already had."""

    model: ModelSpec
    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]
    present: int
    shape: ModelShape
    footprint: Footprint

    @property
    def tokens(self) -> int:
        """Tokens to feed at most."""
        return sum(job.row.total_tokens for job in self.jobs)

    def batches(self, memory: int) -> Iterator[list[Job]]:
        """Jobs for one engine call each: whole samples under all their cells, as many as fit.

        ``memory``: bytes beside the weights. A single job is always given out, fitting or not.
        """
        ordered = sorted(enumerate(self.jobs), key=lambda pair: (str(pair[1].together), pair[0]))
        for _, members in itertools.groupby((job for _, job in ordered), key=lambda job: job.together):
            batch: list[Job] = []
            load = Load(self.footprint)
            for job in members:
                grown = load.with_row(job.row, job.cell.prompting, hindsight_bytes(job.cell, job.row, self.shape))
                if batch and not (
                    len(batch) < ROWS_AT_ONCE and grown.reading <= TOKENS_AT_ONCE and grown.bytes <= memory
                ):
                    yield batch
                    batch, load = [], Load(self.footprint)
                    grown = load.with_row(job.row, job.cell.prompting, hindsight_bytes(job.cell, job.row, self.shape))
                batch.append(job)
                load = grown
            yield batch


def plan(model: ModelSpec, cells: Sequence[Cell], store: Store, prompts: Prompts) -> Plan:
    """Find what is missing. Raises the errors of `harness.errors.MENDABLE` for prompts that the model cannot take."""
    config = model.config().get_text_config()
    jobs: list[Job] = []
    present = 0
    for cell in cells:
        samples = prompts.under(cell)
        finished = store.finished(cell.id)
        present += sum(sample.id in finished for sample, _, _ in samples)
        jobs += [
            Job(cell, sample, Row(tokens, cell.policy, slots, sample.max_new_tokens))
            for sample, tokens, slots in samples
            if sample.id not in finished
        ]
    refuse_unsupported(config, max((job.row.total_tokens for job in jobs), default=0))
    # Rows of one sample under all its cells lie together, so that an interrupted run leaves whole comparisons.
    jobs.sort(key=lambda job: job.sample.id)
    return Plan(model, tuple(cells), tuple(jobs), present, model.shape(), Footprint.of(config, model.dtype))
