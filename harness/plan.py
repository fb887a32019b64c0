"""From cells to cohorts: which samples are missing, and which rows can advance in lockstep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cells import Cell
from harness.engine import Row
from harness.engine.hook import refuse_unsupported
from harness.models import ModelSpec
from harness.prompts import Prompts
from harness.refusals import hindsight_bytes
from harness.store import Store
from policies.shape import ModelShape
from tasks.base import Sample

ROWS_AT_ONCE = 96
CACHE_BYTES_AT_ONCE = 2 * 2**30


@dataclass(frozen=True)
class Job:
    """One missing (cell, sample) pair, ready for the engine."""

    cell: Cell
    sample: Sample
    row: Row

    @property
    def lockstep(self) -> tuple[Any, ...]:
        """Jobs with the same key can share a cohort without one waiting long for another.

        Dense rows hold everything they read, so they never share with bounded ones; token-fed rows share only where
        they leave the dense start at the same token; ragged caches and positions inside the cache are run apart, and
        so is the oracle, whose cohort is read twice.
        """
        prompting = self.cell.prompting
        slots = 0 if self.row.policy.is_dense else self.row.budget
        passes = len(self.row.chunks(prompting))
        policy = self.row.policy
        return (self.cell.task.mode, prompting, slots, passes, policy.uniform, policy.rope, policy.hindsight)


@dataclass(frozen=True)
class Plan:
    """All work of one model. ``present`` counts samples that the store already had."""

    model: ModelSpec
    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]
    present: int
    shape: ModelShape
    bytes_per_slot: int  # K and V of one token over all layers

    @property
    def tokens(self) -> int:
        """Tokens to feed at most."""
        return sum(job.row.total_tokens for job in self.jobs)

    def cohorts(self) -> Iterator[list[Job]]:
        """Jobs in lockstep, in order of sample, as wide as the limits allow."""
        ordered = sorted(enumerate(self.jobs), key=lambda pair: (str(pair[1].lockstep), pair[0]))
        for _, members in itertools.groupby((job for _, job in ordered), key=lambda job: job.lockstep):
            waiting = list(members)
            while waiting:
                width = self._width(waiting)
                yield waiting[:width]
                waiting = waiting[width:]

    def _width(self, jobs: Sequence[Job]) -> int:
        longest = max(job.row.capacity + job.cell.prompting.widest(len(job.row.tokens), job.row.budget) for job in jobs)
        hindsight = max(hindsight_bytes(job.cell, job.row, self.shape) for job in jobs)
        return max(1, min(ROWS_AT_ONCE, CACHE_BYTES_AT_ONCE // (longest * self.bytes_per_slot + hindsight)))


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
    return Plan(model, tuple(cells), tuple(jobs), present, model.shape(), _bytes_per_slot(config, model.dtype))


def _bytes_per_slot(config: Any, dtype: str) -> int:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(config.num_hidden_layers * heads * width * 2 * (4 if dtype == "float32" else 2))
