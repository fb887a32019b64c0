"""Who is told about a sweep while it runs, beside the results folder. Nobody, unless the configuration says so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.cell import Cell
from harness.errors import UserError
from harness.integrations.wandb_logger import WandbLogger
from harness.runner.plan import Job
from harness.runner.sweep import Logger
from policies import nearest


class Silent:
    """The default: tells nobody."""

    def started(self, cells: Sequence[Cell]) -> None:
        """Nothing."""

    def progress(self, jobs: Sequence[Job]) -> None:
        """Nothing."""

    def finished(self, rows: pd.DataFrame) -> None:
        """Nothing."""


class Guarded:
    """A logger whose first mistake is said on stderr and is its last: the sweep goes on without it."""

    def __init__(self, inner: Logger) -> None:
        self.inner = inner

    def started(self, cells: Sequence[Cell]) -> None:
        """As the logger within."""
        self._try(self.inner.started, cells)

    def progress(self, jobs: Sequence[Job]) -> None:
        """As the logger within."""
        self._try(self.inner.progress, jobs)

    def finished(self, rows: pd.DataFrame) -> None:
        """As the logger within."""
        self._try(self.inner.finished, rows)

    def _try(self, tell: Callable[[Any], None], what: Any) -> None:
        try:
            tell(what)
        except Exception as error:  # whatever it is, rows matter more
            self.inner = Silent()
            print(f"The logger stopped ({type(error).__name__}: {error}); the sweep goes on.", file=sys.stderr)


def logger_of(config: Mapping[str, Any], results_dir: Path, report: str) -> Logger:
    """The logger that the settings ``logger`` describe. ``report``: the name of the sweep's report.

    Raises `UserError` for settings that do not exist and for a logger whose package is not installed.
    """
    kinds: dict[str, Callable[[], Logger]] = {
        "none": Silent,
        "wandb": lambda: Guarded(WandbLogger(config, results_dir, report)),
    }
    name = str(config["name"])
    if name not in kinds:
        raise UserError(f"There is no logger called '{name}'. {nearest(name, kinds)}")
    return Silent() if config.get("mode") == "disabled" else kinds[name]()
