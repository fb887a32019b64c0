"""The job spec of a sweep: a file in the results folder, with cells and run settings, from which any worker starts."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.atomic_files import not_written, write_atomically
from harness.config.cell import Cell
from harness.config.model import pick_device
from harness.errors import UserError
from harness.runner.plan import RunResult
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings, Shard
from harness.runner.samples import Prompts
from harness.store.work_files import FOLDER


@dataclass(frozen=True)
class JobSpec:
    """Work for any number of workers. ``device``: as requested, each worker picks its own. ``limit``: samples per cell."""

    cells: tuple[Cell, ...]
    results_dir: Path
    device: str
    limit: int | None
    settings: RunSettings

    @property
    def unique_cells(self) -> tuple[Cell, ...]:
        """Every cell once."""
        return tuple({cell.id: cell for cell in self.cells}.values())

    def write(self) -> Path:
        """Write the job spec to a file for workers, and return it. Raises `UserError` where it cannot be written."""
        folder = self.results_dir.resolve() / "runs" / FOLDER
        content = {
            "ids": [cell.id for cell in self.unique_cells],
            "cells": [_plain(cell) for cell in self.unique_cells],
            "results_dir": str(self.results_dir.resolve()),
            "device": self.device,
            "limit": self.limit,
            "settings": asdict(self.settings),
        }
        file = folder / f"job-{uuid.uuid4().hex[:12]}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(content).encode())
        except OSError as error:
            raise not_written(folder, error) from error
        return file

    @staticmethod
    def read(file: Path) -> JobSpec:
        """Raises `UserError` where the file is no job spec, and where code, data or model have changed since it was
        written: its cells would be others, which were not requested."""
        try:
            content: dict[str, Any] = json.loads(file.read_bytes())
            settings, ids = content["settings"], content["ids"]
            spec = JobSpec(
                cells=tuple(Cell.parse(config) for config in content["cells"]),
                results_dir=Path(content["results_dir"]),
                device=content["device"],
                limit=content["limit"],
                settings=RunSettings(**{**settings, "shard": Shard(**settings["shard"])}),
            )
        except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise UserError(
                f"{file} is no job spec for a worker ({error}): start the sweep again with the command that began it."
            ) from error
        if [cell.id for cell in spec.cells] != ids:
            raise UserError(
                "Code, data or model have changed since this sweep was started, and its cells are no longer the same: "
                "start it again with the command that began it."
            )
        return spec

    def work(self, prompts: Prompts, progress: Progress) -> RunResult:
        """Be one of the workers until the sweep is finished."""
        from harness.runner.worker import run  # here, because planning and refusing need not import transformers

        return run(self.cells, self.results_dir, pick_device(self.device), prompts, progress, self.settings)


def run_job(file: str) -> int:
    """Be a worker of the job spec in this file, and return the number of samples that it stored. Slurm and Ray call it."""
    spec = JobSpec.read(Path(file))
    return spec.work(Prompts(spec.limit), Progress(shown=False)).computed


def _plain(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in cell.configuration.items() if name not in ("hydra", "logger", "launcher")}
