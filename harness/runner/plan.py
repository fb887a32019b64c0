"""From cells to batches: which samples are missing, and which of them go into the engine together.

Batches hold whole samples under all their cells, as many as fit into memory. `RunResult` is what a run returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from harness.config import identity
from harness.config.cell import Cell
from harness.config.model import ModelSpec
from harness.engine.requests import Request, refuse_unsupported
from harness.runner.checks import hindsight_bytes
from harness.runner.memory import Footprint, MemoryLoad
from harness.runner.run_settings import Shard
from harness.runner.samples import Prompts, RequestBuilder
from harness.store.store import Store
from policies.view import ModelShape
from tasks.base import Sample

ROWS_AT_ONCE = 512
SIMILAR_LENGTH = 128  # tokens by which prompts may differ that are read at once
WAVES_AT_ONCE = 8  # more would be lost with a killed worker, and keep fewer workers busy
TOKENS_AT_ONCE = 16384  # in one pass: more are not faster, and an interrupted run would lose more


@dataclass(frozen=True)
class Job:
    """One missing (cell, sample) pair, ready for the engine: one row, or one for each continuation of the sample."""

    cell: Cell
    sample: Sample
    rows: tuple[Request, ...]

    @property
    def row(self) -> Request:
        """The row with the most tokens: its ledger is the job's (docs/design/rows.md)."""
        return max(self.rows, key=lambda row: row.total_tokens)

    def loaded_on(self, load: MemoryLoad, shape: ModelShape) -> MemoryLoad:
        """``load`` with all rows of this job."""
        for row in self.rows:
            load = load.with_row(row, self.cell.prompting, hindsight_bytes(self.cell, row, shape))
        return load

    @property
    def passes(self) -> int:
        """Forward passes that its longest row takes at most."""
        return max(len(row.chunks(self.cell.prompting)) + row.max_new_tokens for row in self.rows)

    @property
    def may_decode_long(self) -> bool:
        """Whether some row may take more passes after its prompt than in it: its length is not known before it ends."""
        longest = self.row
        return self.cell.task.mode == "generate" and longest.max_new_tokens > len(longest.chunks(self.cell.prompting))

    @property
    def batch_key(self) -> tuple[Any, ...]:
        """Jobs with the same key can go into the engine together: prompts of similar length, fed in the same way."""
        prompting = self.cell.prompting
        similar = len(self.row.tokens) // (prompting.block_size if prompting.has_blocks else SIMILAR_LENGTH)
        return (self.cell.task.mode, prompting, similar)


@dataclass(frozen=True)
class Plan:
    """All work of one model. ``present`` counts samples that the store already had; ``samples`` is a hash of the ids of
    all requested samples."""

    model: ModelSpec
    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]
    present: int
    shape: ModelShape
    footprint: Footprint
    samples: str = ""

    def with_jobs(self, jobs: Sequence[Job]) -> Plan:
        """The same plan with these jobs."""
        return replace(self, jobs=tuple(jobs))

    @property
    def tokens(self) -> int:
        """Tokens to feed at most."""
        return sum(row.total_tokens for job in self.jobs for row in job.rows)

    def batches(self, memory: int, rows: int = ROWS_AT_ONCE) -> Iterator[list[Job]]:
        """Jobs for one engine call each: whole samples under all their cells, as many as fit.

        ``memory``: bytes beside the weights. ``rows``: at most. A single job is a batch even where it does not fit.
        Jobs that may decode for longer than they read come several waves at once (continuous batching): rows of a later
        wave take the slots of rows that finish early.
        """
        alike: dict[tuple[Any, ...], list[Job]] = defaultdict(list)
        for job in self.jobs:
            alike[job.batch_key].append(job)
        # What takes the most passes comes first, so that several workers end at about the same time.
        for _, members in sorted(alike.items(), key=lambda pair: (-max(job.passes for job in pair[1]), str(pair[0]))):
            similar = self.with_jobs(members)
            if not any(job.may_decode_long for job in members):
                yield from similar._fill(memory, rows)
                continue
            waves = similar.waves(memory, rows)
            for start in range(0, len(waves), WAVES_AT_ONCE):
                yield [job for wave in waves[start : start + WAVES_AT_ONCE] for job in wave]

    def waves(self, memory: int, rows: int = ROWS_AT_ONCE) -> list[list[Job]]:
        """The jobs of one batch of `batches` in waves that read their prompts together: one wave if all of them fit,
        else waves of which two fit."""
        whole = self._fill(memory, rows)
        return whole if len(whole) < 2 else self._fill(memory // 2, rows // 2)

    def _fill(self, memory: int, rows: int) -> list[list[Job]]:
        """The jobs in their order, as many at a time as fit."""
        filled: list[list[Job]] = []
        load = MemoryLoad(self.footprint)
        for job in self.jobs:
            grown = job.loaded_on(load, self.shape)
            if not filled or not (grown.rows <= rows and grown.reading <= TOKENS_AT_ONCE and grown.bytes <= memory):
                filled.append([])
                grown = job.loaded_on(MemoryLoad(self.footprint), self.shape)
            filled[-1].append(job)
            load = grown
        return filled


def plan(
    model: ModelSpec,
    cells: Sequence[Cell],
    store: Store,
    prompts: Prompts,
    shard: Shard | None = None,
    whole: bool = False,
) -> Plan:
    """Find what is missing in a shard of the sweep.

    ``whole``: where anything is missing, plan what is present too, so that batches are the same as the first time. Raises
    the errors of `harness.config.cell.USER_ERRORS` for prompts that the model cannot take.
    """
    config = model.config().get_text_config()
    builder = RequestBuilder(prompts.encoder(model))
    share = shard or Shard()
    jobs: list[Job] = []
    present = missing = 0
    ids: dict[str, list[str]] = {}
    for cell in cells:
        samples = [each for rank, each in enumerate(prompts.samples_of(cell)) if share.holds(rank)]
        ids[cell.id] = [sample.id for sample, _, _ in samples]
        finished = store.finished(cell.id)
        here = sum(sample.id in finished for sample, _, _ in samples)
        present, missing = present + here, missing + len(samples) - here
        jobs += [
            Job(cell, sample, builder.requests(cell, sample, tokens, slots))
            for sample, tokens, slots in samples
            if whole or sample.id not in finished
        ]
    jobs = jobs if missing else []
    refuse_unsupported(config, max((row.total_tokens for job in jobs for row in job.rows), default=0))
    # Jobs of one sample under all its cells lie together, so that an interrupted run leaves whole comparisons. The order
    # of cells must not depend on the order in which they were requested.
    jobs.sort(key=lambda job: (job.sample.id, job.cell.id))
    footprint = Footprint.of(config, model.dtype)
    return Plan(model, tuple(cells), tuple(jobs), present, model.shape(), footprint, identity.hash_data(ids))


@dataclass(frozen=True)
class RunResult:
    """The cells of a run and what it did. ``computed`` and ``present`` count samples over all cells."""

    cells: tuple[Cell, ...]
    store: Store
    computed: int
    present: int

    def rows(self) -> pd.DataFrame:
        """All rows of these cells, of this run and earlier ones, in the order in which cells were requested."""
        return self.store.load(cell.id for cell in self.cells)
