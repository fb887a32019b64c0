"""The work on one model as a worker needs it: plain data first, jobs only for the batches that it holds.

`ModelWork` lists the missing samples and what decides their batches. The process that plans makes it once, and can
write it to a file. `JobBuilder` makes the jobs of one batch: only then are the cells of these jobs parsed and their
prompts encoded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from harness.config.cell import Cell
from harness.config.identity import hash_data
from harness.config.model import ModelSpec
from harness.errors import UserError
from harness.runner.memory import Footprint, RowLoad
from harness.runner.plan import Job, JobLoad, Plan
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.store.store import Store
from harness.store.work_files import Key


@dataclass(frozen=True)
class QueuedJob:
    """A missing (cell, sample) pair by the ids of both. ``slots``: what the cell's budget grants the sample."""

    cell: str
    sample: str
    slots: int
    load: JobLoad

    @property
    def key(self) -> Key:
        """What queue files list."""
        return self.cell, self.sample


@dataclass(frozen=True)
class CellWork:
    """What the store keeps of a cell, provenance excepted, and how many of its samples are requested."""

    description: Mapping[str, Any]
    requested: int


@dataclass(frozen=True)
class ModelWork:
    """All work on one model. ``sweep``: the name of its work queue, the same in every process with the same cells,
    samples and settings."""

    model: ModelSpec
    cells: Mapping[str, CellWork]  # by id
    jobs: tuple[QueuedJob, ...]
    footprint: Footprint
    sweep: str

    @staticmethod
    def of(plan: Plan, prompts: Prompts, settings: RunSettings) -> ModelWork:
        """The work that a plan has found. ``prompts``: those that it was planned with."""
        return ModelWork(
            plan.model,
            {cell.id: CellWork(cell.description(), len(prompts.samples_of(cell))) for cell in plan.cells},
            tuple(QueuedJob(job.cell.id, job.sample.id, job.row.budget, job.load(plan.shape)) for job in plan.jobs),
            plan.footprint,
            _sweep_name(plan, settings),
        )

    @property
    def tokens(self) -> int:
        """Tokens to feed at most."""
        return sum(job.load.tokens for job in self.jobs)

    def is_missing_in(self, store: Store) -> bool:
        """Whether the store lacks any of its samples now."""
        finished = {cell: store.finished(cell) for cell in {job.cell for job in self.jobs}}
        return any(job.sample not in finished[job.cell] for job in self.jobs)

    def to_json(self) -> dict[str, Any]:
        """As plain data, for `from_json`. What only the starting process uses of a configuration is left out."""
        return {
            "model": asdict(self.model),
            "cells": {name: [_without_launcher(cell.description), cell.requested] for name, cell in self.cells.items()},
            "jobs": [_job_to_list(job) for job in self.jobs],
            "footprint": asdict(self.footprint),
            "sweep": self.sweep,
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> ModelWork:
        """Raises KeyError, TypeError and ValueError for other data."""
        return ModelWork(
            ModelSpec(**content["model"]),
            {name: CellWork(description, requested) for name, (description, requested) in content["cells"].items()},
            tuple(map(_job_from_list, content["jobs"])),
            Footprint(**content["footprint"]),
            content["sweep"],
        )


def _sweep_name(plan: Plan, settings: RunSettings) -> str:
    cells = sorted((cell.id, settings.shard.number, settings.shard.of) for cell in plan.cells)
    how = [hash_data(plan.samples), settings.deterministic, settings.batch_rows]
    return hashlib.sha256(json.dumps([cells, how]).encode()).hexdigest()[:12]


def _without_launcher(description: Mapping[str, Any]) -> dict[str, Any]:
    resolved = {name: value for name, value in description["resolved"].items() if name not in ("logger", "launcher")}
    return {**description, "resolved": resolved}


def _job_to_list(job: QueuedJob) -> list[Any]:
    load = job.load
    rows = [astuple(row) for row in load.rows]
    return [job.cell, job.sample, job.slots, load.batch_key, load.passes, load.tokens, load.may_decode_long, rows]


def _job_from_list(content: list[Any]) -> QueuedJob:
    cell, sample, slots, batch_key, passes, tokens, may_decode_long, rows = content
    load = JobLoad(batch_key, passes, tokens, may_decode_long, tuple(RowLoad(*row) for row in rows))
    return QueuedJob(cell, sample, slots, load)


class JobBuilder:
    """Builds the jobs of a batch. ``cells``: those that this process has parsed already; others are parsed from the
    configurations in ``work`` when a batch needs them."""

    def __init__(self, work: Iterable[ModelWork], prompts: Prompts, cells: Iterable[Cell] = ()) -> None:
        self.prompts = prompts
        self._cells = {cell.id: cell for cell in cells}
        self._configurations = {
            name: cell.description["resolved"] for each in work for name, cell in each.cells.items()
        }
        self._requested = {name: cell.requested for each in work for name, cell in each.cells.items()}

    def cell(self, cell_id: str) -> Cell:
        """Raises `UserError` where code, data or model have changed since the work was planned: the cell would be
        another one, which was not requested."""
        if cell_id not in self._cells:
            cell = replace(Cell.parse(self._configurations[cell_id]), limit=self._requested[cell_id])
            if cell.id != cell_id:
                raise UserError(
                    "Code, data or model have changed since this sweep was started, and its cells are no longer the "
                    "same: start it again with the command that began it."
                )
            self._cells[cell_id] = cell
        return self._cells[cell_id]

    def build(self, jobs: Iterable[QueuedJob]) -> list[Job]:
        """The same jobs, ready for the engine."""
        asked = tuple(jobs)
        self.prompts.expect(self.cell(name) for name in {job.cell for job in asked})
        return [self._build(job) for job in asked]

    def _build(self, job: QueuedJob) -> Job:
        cell = self.cell(job.cell)
        sample, tokens = self.prompts.sample(cell, job.sample)
        builder = self.prompts.request_builder(cell.model)
        return Job(cell, sample, builder.requests(cell, sample, tokens, job.slots))
