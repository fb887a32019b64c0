"""From the events of a sweep to letters for W&B. Everything slow happens in the courier's process."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.cells import Cell
from harness.errors import UserError
from harness.planning.memory_used import used_bytes
from harness.planning.plan import Job
from harness.wandb_logger.contents import letters
from harness.wandb_logger.courier import Courier
from harness.wandb_logger.groups import Group, groups
from policies import nearest

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
        self.groups: dict[str, Group] = {}
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
