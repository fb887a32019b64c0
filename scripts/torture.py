"""Workers are killed at random during one sweep; its table must be that of a sweep without any kills.

python -m scripts.torture --kills 60 --workers 3 --samples 300 [--holders]

With ``--holders`` only workers are killed that hold a batch, so that every kill may cost one. What was computed and not
stored (samples that went into the model, less those in the store) may not exceed what the killed ones held.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import torch

from harness.config.cell import Cell
from harness.config.compose import checked_config, compose_config
from harness.engine.engine import Engine
from harness.engine.requests import Request, RequestOutput
from harness.runner.job_spec import JobSpec
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings, Shard
from harness.runner.samples import Prompts
from harness.store import cell_folders, work_files
from harness.store.loading import load_rows
from harness.store.store import Store

WORDS = ["task=niah", "task.lengths=[192]", "task.depths=[50]", "block_size=32", "budget=48"]
POLICIES = ("sink", "h2o")
NOT_REPEATABLE = ("created",)
BEGUN = "begun.txt"  # in the results folder: the number of samples of every batch that went into the model


@dataclass
class Losses:
    """``holders``: killed workers that held a batch. ``held``: samples in these batches."""

    killed: int = 0
    holders: int = 0
    held: int = 0


def main(arguments: list[str] | None = None) -> int:
    """0 where both tables are the same, every sample stands in one part, none is missing, and nothing was computed
    again but what killed workers held; else 1."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        calm, rough = Path(folder) / "calm", Path(folder) / "rough"
        _work(_job_spec(options, calm))
        losses = _disturbed(_job_spec(options, rough), options)
        same = _table(calm).equals(_table(rough))
        stored = _times_stored(rough)
        begun = sum(int(line) for line in (rough / BEGUN).read_text().split())
    twice = sum(count > 1 for count in stored.values())
    missing = len(POLICIES) * options.samples - len(stored)
    wasted = begun - len(stored)
    print(
        f"{losses.killed} workers killed, {losses.holders} of them with a batch, {losses.held} samples in these; "
        f"{len(stored)} samples stored: {missing} missing, {twice} twice, tables {'equal' if same else 'DIFFER'}; "
        f"{begun} samples went into the model, {wasted} of them in vain."
    )
    return 0 if same and not twice and not missing and wasted <= losses.held else 1


def _disturbed(spec: JobSpec, options: argparse.Namespace) -> Losses:
    draw = random.Random(options.seed)
    workers = [_start(spec) for _ in range(options.workers)]
    losses = Losses()
    while losses.killed < options.kills and any(worker.is_alive() for worker in workers):
        time.sleep(draw.uniform(0.1, options.pause))
        victims = _holders(spec.results_dir, workers) if options.holders else [w for w in workers if w.is_alive()]
        if not victims:
            continue
        victim = draw.choice(victims)
        victim.kill()
        victim.join()
        losses.killed += victim.exitcode == -signal.SIGKILL
        batches = _held_by(spec.results_dir, victim)
        losses.holders += bool(batches)
        losses.held += sum(batches)
        workers[workers.index(victim)] = _start(spec)
    for worker in workers:
        worker.join()
    return losses


def _holders(results: Path, workers: list[BaseProcess]) -> list[BaseProcess]:
    return [worker for worker in workers if worker.is_alive() and _held_by(results, worker)]


def _held_by(results: Path, worker: BaseProcess) -> list[int]:
    """The number of samples in each batch that a worker holds."""
    locks = (results / "runs" / work_files.FOLDER).glob("*/[0-9]*.json")
    # A batch has one lock for each epoch.
    batches = {lock.parent / lock.name.partition(".")[0] for lock in locks if _is_of(lock, worker)}
    return [_samples_in(batch) for batch in batches]


def _is_of(lock: Path, worker: BaseProcess) -> bool:
    lease = cell_folders.read_lease(lock)
    return lease is not None and lease.pid == worker.pid


def _samples_in(batch: Path) -> int:
    queue, place = batch.name.split("-")
    return len(work_files.read_batches(batch.parent / f"queue-{queue}.json.gz")[int(place)])


def _start(spec: JobSpec) -> BaseProcess:
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(spec,), daemon=True)
    worker.start()
    return worker


def _work(spec: JobSpec) -> None:
    """Be a worker that notes every batch before it goes into the model; here one row is one sample."""
    torch.set_num_threads(1)
    spec.results_dir.mkdir(exist_ok=True)
    generate = Engine.generate
    with (spec.results_dir / BEGUN).open("a", buffering=1) as begun:

        def noted(engine: Engine, rows: Sequence[Request], *others: Any) -> list[RequestOutput]:
            begun.write(f"{len(rows)}\n")
            return generate(engine, rows, *others)

        with mock.patch.object(Engine, "generate", noted):
            spec.compute(Prompts(), Progress(shown=False, on_stored=lambda _: None))


def _job_spec(options: argparse.Namespace, results: Path) -> JobSpec:
    words = [*WORDS, f"task.repeats={options.samples}"]
    cells = tuple(Cell.parse(checked_config(compose_config([*words, f"policy={policy}"]))) for policy in POLICIES)
    return JobSpec(cells, results, "cpu", RunSettings(Shard(), 30.0, True, options.batch_rows))


def _table(results: Path) -> pd.DataFrame:
    rows = load_rows(results)
    columns = [name for name in rows.columns if name not in NOT_REPEATABLE]
    return rows[columns].sort_values(["cell_id", "sample_id", "metric"], ignore_index=True)


def _times_stored(results: Path) -> Counter[tuple[str, str]]:
    store = Store(results / "runs")
    return Counter((cell, sample) for cell in store.cells() for part in store.parts(cell) for sample in part.samples)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--samples", type=int, default=300, help="per cell, of which there are two")
    parser.add_argument("--batch-rows", type=int, default=8)
    parser.add_argument("--holders", action="store_true", help="kill only workers that hold a batch")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two kills at most")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
