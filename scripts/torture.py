"""Workers are killed at random during one sweep; its table must be that of a sweep that nobody has disturbed.

python -m scripts.torture --kills 60 --workers 3 --samples 300
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.cells import Cell
from harness.launchers.order import Order
from harness.listing import CONF
from harness.prompts import Prompts
from harness.store import Store, load_rows
from harness.terminal import Progress
from harness.workers.shard import Shard
from harness.workers.terms import Terms

WORDS = ["task=niah", "task.lengths=[192]", "task.depths=[50]", "block_size=32", "budget=48"]
POLICIES = ("sink", "h2o")
NOT_REPEATABLE = ("seconds", "created")


def main(arguments: list[str] | None = None) -> int:
    """0 where both tables are the same, every sample stands in one part, and none is missing; else 1."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        calm, rough = Path(folder) / "calm", Path(folder) / "rough"
        _work(_order(options, calm))
        wasted, killed = _disturbed(_order(options, rough), options)
        same = _table(calm).equals(_table(rough))
        stored = _times_stored(rough)
    twice = sum(count > 1 for count in stored.values())
    missing = len(POLICIES) * options.samples - len(stored)
    print(
        f"{killed} workers killed, {len(stored)} samples: {missing} missing, {twice} twice, tables "
        f"{'equal' if same else 'DIFFER'}; {wasted} batches of at most {options.batch_rows} rows were lost with them."
    )
    return 0 if same and not twice and not missing else 1


def _disturbed(order: Order, options: argparse.Namespace) -> tuple[int, int]:
    """Batches that were under way when their workers were killed, and kills."""
    draw = random.Random(options.seed)
    workers = [_started(order) for _ in range(options.workers)]
    wasted = killed = 0
    while killed < options.kills and any(worker.is_alive() for worker in workers):
        time.sleep(draw.uniform(0.1, options.pause))
        place = draw.randrange(len(workers))
        pid = workers[place].pid
        if pid is None or not workers[place].is_alive():
            continue
        os.kill(pid, signal.SIGKILL)
        workers[place].join()
        killed += workers[place].exitcode == -signal.SIGKILL
        wasted += _held_by(order.results_dir, pid)
        workers[place] = _started(order)
    for worker in workers:
        worker.join()
    return wasted, killed


def _held_by(results: Path, pid: int) -> int:
    held = 0
    for file in (results / "runs" / ".work").glob("*/[0-9]*.json"):
        with contextlib.suppress(OSError):  # a living worker has released it just now
            held += f'"pid": {pid},' in file.read_text()
    return held


def _started(order: Order) -> BaseProcess:
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(order,), daemon=True)
    worker.start()
    return worker


def _work(order: Order) -> None:
    torch.set_num_threads(1)
    order.work(Prompts(order.limit), Progress(shown=False, told=lambda _: None))


def _order(options: argparse.Namespace, results: Path) -> Order:
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        words = [*WORDS, f"task.repeats={options.samples}"]
        configs = [compose("config", overrides=[*words, f"policy={policy}"]) for policy in POLICIES]
    plain = [OmegaConf.to_container(config, resolve=True) for config in configs]
    cells = tuple(Cell.parse({str(key): value for key, value in dict(config).items()}) for config in plain)
    return Order(cells, results, "cpu", None, Terms(Shard(), 30.0, True, options.batch_rows))


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
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two kills at most")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
