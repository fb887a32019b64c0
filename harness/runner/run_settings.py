"""How a worker runs: its share of the sweep, its lease, and whether rows must be the same bit for bit."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import UserError

ROWS_WHEN_DETERMINISTIC = 64


@dataclass(frozen=True)
class Shard:
    """Every ``of``-th sample, beginning with the ``number``-th (from 1), of each task under all its cells.

    A share of a sweep that needs no contact with the other shares, for schedulers without a shared folder.
    """

    number: int = 1
    of: int = 1

    @staticmethod
    def parse(text: str | None) -> Shard:
        """``3/16``; None is everything. Raises `UserError`."""
        if text is None:
            return Shard()
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"shard={text} is not a share of a sweep: write shard=3/16 for the third of sixteen.")
        return Shard(int(match[1]), int(match[2]))

    def holds(self, rank: int) -> bool:
        """Whether the sample with this rank (from 0) in its task belongs to the share."""
        return rank % self.of == self.number - 1


@dataclass(frozen=True)
class RunSettings:
    """``lease``: seconds without a heartbeat after which other workers take a worker's batch over. ``batch_rows``: rows
    that go through the model at once at most; None = as many as memory takes. ``compiling``: auto or off, of the
    model's layers. ``workers``: how many share the sweep, where a launcher starts them.
    """

    shard: Shard = Shard()
    lease: float = 60.0
    deterministic: bool = False
    batch_rows: int | None = None
    compiling: str = "auto"
    workers: int = 1

    @staticmethod
    def parse(config: Mapping[str, Any]) -> RunSettings:
        """From a run's configuration, whose types were checked. Raises `UserError` for a share that is none."""
        rows, deterministic = config["batch_rows"], config["deterministic"]
        if deterministic and rows is None:
            rows = ROWS_WHEN_DETERMINISTIC
        compiling = config["engine"]["compile"] or "off"  # YAML reads a bare off as false
        return RunSettings(Shard.parse(config["shard"]), float(config["lease"]), deterministic, rows, compiling)

    def compile_on(self, device: torch.device) -> bool:
        """Whether the model's layers are compiled there: on a GPU, unless rows must be the same bit for bit."""
        return self.compiling == "auto" and device.type == "cuda" and not self.deterministic

    def pack_on(self, device: torch.device) -> bool:
        """Whether the weights of the model's layers are packed there: on a processor."""
        return self.compiling == "auto" and device.type == "cpu"

    def enable_determinism(self) -> None:
        """Ask torch for deterministic algorithms in deterministic runs. Call it before anything is computed."""
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs for it
            torch.use_deterministic_algorithms(True)
