"""Carries letters to the process that talks with W&B, and never makes the sweep wait for it.

`send` puts a letter into a bounded queue and returns; a thread carries it to the process. What finds the queue full
is dropped: that is progress, while W&B hangs. The process has a session of its own and its own deadline, so that it
outlives neither a killed sweep nor a dead network for long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.cell import Cell
from harness.errors import UserError
from harness.integrations.wandb_contents import WandbGroup, groups, letters
from harness.runner.plan import Job
from harness.runner.usage import used_bytes
from policies import nearest

WAITING_LETTERS = 1000
GRACE = 2.0  # seconds beside its own deadline before the process is ended


class Courier:
    """The parent's side. ``settings``: those of the logger and ``folder``, where files go."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.wait = float(settings["wait"])
        self.letters: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING_LETTERS)
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("wandb_desk.py")), json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for the sweep
        )
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._carry, self._listen)]
        for thread in self.threads:
            thread.start()

    def send(self, letter: dict[str, Any]) -> None:
        """Returns at once."""
        with contextlib.suppress(queue.Full):
            self.letters.put_nowait(letter)

    def close(self) -> None:
        """The last letter. Returns when the process has ended, after ``wait`` seconds and a few at the latest."""
        end = time.monotonic() + self.wait + GRACE
        with contextlib.suppress(queue.Full):
            self.letters.put({"what": "close"}, timeout=self.wait)
            self.letters.put(None, timeout=max(0.0, end - time.monotonic()))
        try:
            self.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a killed process is there until it is taken down
                self.process.wait(GRACE)
            print(f"W&B did not end within {self.wait:g} s and was stopped; the rows are not touched.", file=sys.stderr)
        for thread in self.threads:
            thread.join(GRACE)

    def _carry(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError), self.process.stdin as pipe:  # it has ended, and said why
            while (letter := self.letters.get()) is not None:
                pipe.write(json.dumps(letter) + "\n")
                pipe.flush()

    def _listen(self) -> None:
        """What the process has to say to the person, each sentence once."""
        assert self.process.stdout is not None
        said: set[str] = set()
        for line in self.process.stdout:
            if line not in said:
                print(line.rstrip("\n"), file=sys.stderr)
            said.add(line)


# From the events of a sweep to letters for W&B. Everything slow happens in the courier's process.


MODES = ("offline", "online", "disabled")


class WandbLogger:
    """One W&B run per group of cells: configuration, progress, and at the end curves, heatmaps and the result table.

    Its settings are those of ``conf/logger/wandb.yaml``; files go to ``<results_dir>/wandb``. Raises `UserError` for
    settings that do not exist, and where wandb is not installed.
    """

    def __init__(self, settings: Mapping[str, Any], results_dir: Path, report: str) -> None:
        mode, wait = settings["mode"], settings["wait"]
        if mode not in MODES:
            raise UserError(f"logger.mode={mode} is no mode of W&B. {nearest(str(mode), MODES)}")
        if not isinstance(wait, int | float) or wait <= 0:
            raise UserError(f"logger.wait={wait} is no time: give the seconds that the end of a sweep may wait.")
        if not _installed():
            raise UserError("logger=wandb needs the package wandb: pip install -e '.[wandb]', or logger=none.")
        self.settings = {**settings, "group": settings["group"] or report, "folder": str(results_dir.absolute())}
        self.groups: dict[str, WandbGroup] = {}
        self.of_cell: dict[str, str] = {}
        self.samples: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.courier: Courier | None = None
        self.since = 0.0

    def started(self, cells: Sequence[Cell]) -> None:
        """Open the runs, in a process of their own."""
        self.since = time.perf_counter()
        self.courier = Courier(self.settings)
        for number, group in enumerate(groups(cells)):
            key = str(number)
            self.groups[key] = group
            self.of_cell |= dict.fromkeys((cell.id for cell in group.cells), key)
            self.courier.send({"what": "open", "run": key, "name": group.name, "config": group.config()})

    def progress(self, jobs: Sequence[Job]) -> None:
        """Samples and tokens so far, in every run that these jobs belong to."""
        touched = {self.of_cell[job.cell.id] for job in jobs}
        for job in jobs:
            key = self.of_cell[job.cell.id]
            self.samples[key] += 1
            self.tokens[key] += sum(row.total_tokens for row in job.rows)
        seconds = time.perf_counter() - self.since
        for key in sorted(touched):
            values = {
                "progress/samples": self.samples[key],
                "progress/tokens": self.tokens[key],
                "progress/seconds": seconds,
                "progress/tokens_per_second": self.tokens[key] / max(seconds, 1e-9),
                "progress/memory_gib": used_bytes() / 2**30,
            }
            self._send({"what": "log", "run": key, "values": values})

    def finished(self, rows: pd.DataFrame) -> None:
        """The pages of all runs; returns when W&B has them, and after ``wait`` seconds whatever happens."""
        for key, group in self.groups.items():
            for letter in letters(group.rows_of(rows)):
                self._send({**letter, "run": key})
        if self.courier:
            self.courier.close()

    def _send(self, letter: dict[str, Any]) -> None:
        if self.courier:
            self.courier.send(letter)


def _installed() -> bool:
    """Whether there is a package wandb; a folder of that name, as W&B itself makes them, is none."""
    spec = importlib.util.find_spec("wandb")
    return spec is not None and spec.origin is not None
