"""Who follows a sweep beside the results folder: nobody, or the logger that the configuration names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.cell import Cell
from harness.runner.plan import Job
from harness.runner.sweep import Logger


def logger_of(config: Mapping[str, Any], results_dir: Path, report: str) -> Logger:
    """The logger that the settings ``logger`` describe. ``report``: the name of the sweep's report.

    Raises `UserError` for settings that do not exist and for a logger whose package is not installed.
    """
    kinds: dict[str, Callable[[], Logger]] = {
        "none": NoLogger,
        "wandb": lambda: GuardedLogger(_wandb(config, results_dir, report)),
    }
    return kinds[str(config["name"])]()


def _wandb(config: Mapping[str, Any], results_dir: Path, report: str) -> Logger:
    from harness.integrations.wandb_logger import WandbLogger  # with what it draws it takes seconds to import

    return WandbLogger(config, results_dir, report)


class NoLogger:
    """The default: every call is ignored."""

    def started(self, cells: Sequence[Cell]) -> None: ...

    def progress(self, jobs: Sequence[Job]) -> None: ...

    def finished(self, rows: pd.DataFrame) -> None: ...


class GuardedLogger:
    """Passes every call on to ``inner`` until one raises an exception. That is reported on stderr, once; later calls
    are ignored and the sweep continues.
    """

    def __init__(self, inner: Logger) -> None:
        self.inner = inner

    def started(self, cells: Sequence[Cell]) -> None:
        self._try(lambda: self.inner.started(cells))

    def progress(self, jobs: Sequence[Job]) -> None:
        self._try(lambda: self.inner.progress(jobs))

    def finished(self, rows: pd.DataFrame) -> None:
        self._try(lambda: self.inner.finished(rows))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # any: the rows matter more than the logger
            self.inner = NoLogger()
            print(f"The logger stopped ({type(error).__name__}: {error}); the sweep goes on.", file=sys.stderr)
