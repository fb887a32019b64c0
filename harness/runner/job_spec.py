"""The job spec of a sweep: what a launcher gives its workers, as a file from which any machine can start.

The launcher plans once. The file holds what it has found: which samples are missing, and what decides their batches. A
worker reads it, and parses cells and encodes prompts only for the batches that it takes (`harness.runner.model_work`).
"""

from __future__ import annotations

import gzip
import json
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.atomic_files import not_written, write_atomically
from harness.config.cell import Cell
from harness.config.model import pick_device
from harness.errors import UserError
from harness.runner.model_work import JobBuilder, ModelWork
from harness.runner.plan import Plan, RunResult, plan_models, unique_cells
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings, Shard
from harness.runner.samples import Prompts
from harness.store.store import Store
from harness.store.work_files import FOLDER, job_spec_file


@dataclass(frozen=True)
class JobSpec:
    """Cells for any number of workers. ``device``: as requested, each worker picks its own. ``work``: what is missing
    of the cells, set before the file is written."""

    cells: tuple[Cell, ...]
    results_dir: Path
    device: str
    settings: RunSettings
    work: tuple[ModelWork, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def unique_cells(self) -> tuple[Cell, ...]:
        """Every cell once, with the greatest number of samples that is wanted of it."""
        return unique_cells(self.cells)

    def plans(self, prompts: Prompts) -> list[Plan]:
        """What is in the store and what is missing, by model. Makes every check that needs no weights."""
        return plan_models(self.unique_cells, Store(self.results_dir / "runs"), prompts, self.settings)

    def write(self, workers: int = 1) -> Path:
        """Write ``work`` to a file for so many workers, and return it. Raises `UserError` where that cannot be done."""
        folder = self.results_dir.resolve() / "runs" / FOLDER
        content = {
            "ids": [cell.id for cell in self.unique_cells],
            "work": [work.to_json() for work in self.work or ()],
            "results_dir": str(self.results_dir.resolve()),
            "device": self.device,
            "settings": asdict(replace(self.settings, workers=workers)),
        }
        file = job_spec_file(folder, uuid.uuid4().hex[:12])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(file, gzip.compress(json.dumps(content).encode(), mtime=0))
        except OSError as error:
            raise not_written(folder, error) from error
        return file

    def compute(self, prompts: Prompts, progress: Progress) -> RunResult:
        """Be a worker in this process, which plans for itself."""
        from harness.runner.worker import run  # here, because planning and refusing need not import transformers

        return run(self.cells, self.results_dir, pick_device(self.device), prompts, progress, self.settings)


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker reads from a job spec's file."""

    work: tuple[ModelWork, ...]
    results_dir: Path
    device: str
    settings: RunSettings

    @staticmethod
    def read(file: Path) -> WorkerSpec:
        """Raises `UserError` where the file is no job spec."""
        try:
            content: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
            settings = content["settings"]
            return WorkerSpec(
                work=tuple(map(ModelWork.from_json, content["work"])),
                results_dir=Path(content["results_dir"]),
                device=content["device"],
                settings=RunSettings(**{**settings, "shard": Shard(**settings["shard"])}),
            )
        except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{file} is no job spec for a worker ({error}): start the sweep again with the command that began it."
            ) from error

    def compute(self, progress: Progress) -> int:
        """Be one of the workers until the sweep is finished; how many samples this one has stored.

        Raises `UserError` where code, data or model have changed since the file was written.
        """
        from harness.runner.worker import compute_work

        store = Store(self.results_dir / "runs")
        work = [each for each in self.work if each.is_missing_in(store)]
        builder = JobBuilder(work, Prompts())
        for each in work:
            builder.cell(each.jobs[0].cell)  # one cell before any model is loaded; others when a batch needs them
        store.check_writable()
        return compute_work(work, builder, store, pick_device(self.device), progress, self.settings)


def run_job(file: str) -> int:
    """Be a worker of the job spec in this file; how many samples it has stored. All launchers start it."""
    return WorkerSpec.read(Path(file)).compute(Progress(shown=False))
