"""``launcher=local``: processes on this machine, one per GPU, or ``launcher.workers`` where there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from harness.errors import UserError
from harness.launchers.counts import count_of
from harness.launchers.order import Order
from harness.terminal import say
from harness.workers.interruption import stoppable

LOOKS = 0.2  # seconds between looks at the workers
PATIENCE = 60.0  # seconds that workers have to end after they were asked to


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    log: Path


def start(order: Order, settings: Mapping[str, Any]) -> None:
    """Start the workers and wait for their ends. One that was killed is started anew, ``retries`` times in all.

    Raises KeyboardInterrupt for SIGINT and SIGTERM, after the workers have ended too.
    """
    gpus = _gpus() if order.device != "cpu" else []
    count = count_of(settings, "workers", default=max(1, len(gpus)))
    retries = count_of(settings, "retries", least=0)
    file = order.write()
    logs = order.results_dir / "logs" / file.stem
    logs.mkdir(parents=True, exist_ok=True)
    say(f"{count} workers; what they say is in {logs}")
    environments = [_environment(number, count, gpus) for number in range(count)]
    workers = [_started(number, file, logs, each) for number, each in enumerate(environments)]
    try:
        with stoppable():
            _watch(workers, file, environments, retries)
    except KeyboardInterrupt:
        _stop(workers)
        raise
    finally:
        file.unlink(missing_ok=True)


def _watch(workers: list[_Worker], file: Path, environments: Sequence[Mapping[str, str]], retries: int) -> None:
    """Until all have ended. Raises `UserError` with the words of a worker where all were refused their work.

    Raises RuntimeError where all ended in a mistake of ours: a sweep that stopped half-way must not look finished.
    """
    while True:
        for place, worker in enumerate(workers):
            code = worker.process.poll()
            if code is not None and code < 0 and retries > 0:
                retries -= 1
                say(f"Worker {worker.number} was killed by signal {-code}: another takes its place.")
                workers[place] = _started(worker.number, file, worker.log.parent, environments[worker.number])
        if all(worker.process.poll() is not None for worker in workers):
            break
        time.sleep(LOOKS)
    if all(worker.process.returncode > 0 for worker in workers):
        first = min(workers, key=lambda worker: worker.process.returncode)  # 1 is a traceback, 2 a refusal
        said = first.log.read_text().strip().splitlines()
        if first.process.returncode == 1:
            raise RuntimeError(f"All workers have failed, see {first.log}: {said[-1] if said else 'it is empty'}")
        raise UserError(said[-1] if said else f"All workers have failed: see {first.log.parent}.")


def _environment(number: int, count: int, gpus: Sequence[str]) -> dict[str, str]:
    """Of a worker: its GPU, or its share of the cores, for which threads of several workers would only compete."""
    environment = dict(os.environ)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    else:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // count)))
    return environment


def _started(number: int, file: Path, logs: Path, environment: Mapping[str, str]) -> _Worker:
    log = logs / f"worker-{number}.txt"
    with log.open("ab") as stream:
        return _Worker(number, _process(file, environment, stream), log)


def _process(file: Path, environment: Mapping[str, str], stream: IO[bytes]) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C reaches this process first, which then asks the workers to end."""
    command = [sys.executable, "-m", "harness.workers", str(file)]
    return subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, start_new_session=True)


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    for worker in workers:
        try:
            worker.process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()


def _gpus() -> list[str]:
    """The accelerators that this process may use, as CUDA_VISIBLE_DEVICES calls them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    return names[: torch.cuda.device_count()]
