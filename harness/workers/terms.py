"""On what terms a worker computes: its share, its lease, and whether its rows must be the same bit for bit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import UserError
from harness.workers.shard import Shard

ROWS_WHEN_DETERMINISTIC = 64


@dataclass(frozen=True)
class Terms:
    """``lease``: seconds of silence after which others take a worker's unit over. ``batch_rows``: rows that go through
    the model at once at most; None = as many as memory takes. ``compiling``: auto or off, of the model's layers.
    """

    shard: Shard = Shard()  # noqa: RUF009 (frozen)
    lease: float = 60.0
    deterministic: bool = False
    batch_rows: int | None = None
    compiling: str = "auto"

    @staticmethod
    def parse(config: Mapping[str, Any]) -> Terms:
        """From a run's configuration. Raises `UserError`."""
        lease, rows, deterministic = config["lease"], config["batch_rows"], config["deterministic"]
        if not isinstance(lease, int | float) or isinstance(lease, bool) or lease <= 0:
            raise UserError(f"lease={lease} is no time: give seconds, such as lease=60.")
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
            raise UserError(f"batch_rows={rows} leaves nothing to run: give a number of rows, at least 1.")
        if not isinstance(deterministic, bool):
            raise UserError(f"deterministic={deterministic} is neither true nor false.")
        if deterministic and rows is None:
            rows = ROWS_WHEN_DETERMINISTIC
        compiling = config["engine"]["compile"] or "off"  # YAML reads a bare off as false
        if compiling not in ("auto", "off"):
            raise UserError(f"engine.compile={compiling} is neither auto nor off.")
        return Terms(Shard.parse(config["shard"]), float(lease), deterministic, rows, compiling)

    def compile_on(self, device: torch.device) -> bool:
        """Whether the model's layers shall be compiled there: on a GPU, unless rows must be the same bit for bit."""
        return self.compiling == "auto" and device.type == "cuda" and not self.deterministic

    def pack_on(self, device: torch.device) -> bool:
        """Whether the weights of the model's layers shall be packed there: on a processor."""
        return self.compiling == "auto" and device.type == "cpu"

    def settle(self) -> None:
        """Ask torch for deterministic algorithms where the run must be deterministic; before anything is computed."""
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs for it
            torch.use_deterministic_algorithms(True)
