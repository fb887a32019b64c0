"""Sends a sweep to Weights & Biases: one run for each group of cells whose scores may be compared.

wandb's own service process writes the files and talks with the server, so that calls return at once. Two places can
wait, and both have a limit: opening a run (`OPENING`), and the end of the sweep (``logger.wait``).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.cell import Cell
from harness.errors import UserError
from harness.integrations.wandb_contents import LinesPanel, RunContents, TablePanel, WandbGroup, groups, run_contents
from harness.runner.plan import Job
from harness.runner.process import used_bytes

OPENING = 5.0  # seconds that a server has to answer when a run is opened


class WandbLogger:
    """Configuration and progress of every group of cells, and at the end curves, heatmaps and the result table.

    Its settings are those of ``conf/logger/wandb.yaml``; files go to ``<results_dir>/wandb``. Raises `UserError` for
    settings that do not exist, and where wandb is not installed.
    """

    def __init__(self, settings: Mapping[str, Any], results_dir: Path, report: str) -> None:
        self.mode, self.wait = settings["mode"], settings["wait"]
        if not _installed():
            raise UserError("logger=wandb needs the package wandb: pip install -e '.[wandb]', or logger=none.")
        self.settings = {**settings, "group": settings["group"] or report}
        self.folder = results_dir.absolute()
        self.groups: list[WandbGroup] = []
        self.runs: list[Any] = []  # wandb.Run, one for each group
        self.of_cell: dict[str, int] = {}  # number of the group by cell id
        self.samples: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.since = 0.0

    def started(self, cells: Sequence[Cell]) -> None:
        """Open the runs; all offline from the first whose server does not answer."""
        self.since = time.perf_counter()
        self.groups = groups(cells)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # offline is offline
        os.environ.setdefault("WANDB_DATA_DIR", str(self.folder / "wandb"))
        for number, group in enumerate(self.groups):
            self.of_cell |= dict.fromkeys((cell.id for cell in group.cells), number)
            self.runs.append(self._open(group))
            os.environ.pop("WANDB_RUN_ID", None)  # the first run takes the place that a W&B sweep gave to this process

    def progress(self, jobs: Sequence[Job]) -> None:
        """Samples and tokens so far, in every run that these jobs belong to."""
        for job in jobs:
            number = self.of_cell[job.cell.id]
            self.samples[number] += 1
            self.tokens[number] += sum(row.total_tokens for row in job.rows)
        seconds = time.perf_counter() - self.since
        for number in {self.of_cell[job.cell.id] for job in jobs}:
            self.runs[number].log(
                {
                    "progress/samples": self.samples[number],
                    "progress/tokens": self.tokens[number],
                    "progress/seconds": seconds,
                    "progress/tokens_per_second": self.tokens[number] / max(seconds, 1e-9),
                    "progress/memory_gib": used_bytes() / 2**30,
                }
            )

    def finished(self, rows: pd.DataFrame) -> None:
        """The pages of all runs, then their end. Returns after ``logger.wait`` seconds, whatever W&B does by then."""
        contents = [run_contents(group.rows_of(rows)) for group in self.groups]
        failures: list[Exception] = []

        def send() -> None:
            try:
                for run, content in zip(self.runs, contents, strict=True):
                    if content:
                        self._log(run, content)
                with ThreadPoolExecutor(max(1, len(self.runs))) as pool:  # a server that is silent is waited for once
                    list(pool.map(lambda run: run.finish(exit_code=0), self.runs))
            except Exception as error:
                failures.append(error)

        sender = threading.Thread(target=send, name="wandb", daemon=True)
        sender.start()
        sender.join(self.wait)
        if sender.is_alive() or (failures and self.mode == "online"):
            reason = f": {_first_line(failures[0])}" if failures else f" within {self.wait:g} s"
            print(
                f"W&B did not take everything{reason}. Nothing is lost: run the same command with logger.mode=offline; "
                "it computes nothing again and writes the pages for wandb sync.",
                file=sys.stderr,
            )
        elif failures:
            raise failures[0]
        self._say_where()

    def _open(self, group: WandbGroup) -> Any:
        if self.mode == "online":
            try:
                return self._init(group)
            except Exception as error:  # no key, no network, no answer: offline needs none of them
                self.mode = "offline"
                print(f"W&B cannot be reached ({_first_line(error)}): runs are kept offline.", file=sys.stderr)
        return self._init(group)

    def _init(self, group: WandbGroup) -> Any:
        wandb = importlib.import_module("wandb")
        return wandb.init(
            mode=self.mode,
            name=group.name,
            config=group.config(),
            project=self.settings["project"],
            entity=self.settings["entity"],
            group=self.settings["group"],
            tags=self.settings["tags"],
            dir=str(self.folder),
            settings=wandb.Settings(
                silent=True,
                console="off",
                init_timeout=OPENING,
                login_timeout=OPENING,
                finish_timeout=self.wait,
                disable_git=True,  # the cells hold their provenance
                disable_code=True,
                x_disable_stats=True,
                reinit="create_new",  # several runs are open at once
            ),
        )

    def _log(self, run: Any, contents: RunContents) -> None:
        wandb = importlib.import_module("wandb")
        run.summary.update(contents.summary)
        run.log({"results": _table(wandb, contents.results)})
        for name, panel in contents.panels.items():
            if isinstance(panel, TablePanel):
                run.log({name: _table(wandb, panel)})
            elif isinstance(panel, LinesPanel):
                chart = wandb.plot.line_series(panel.xs, panel.ys, panel.keys, title=panel.title, xname=panel.xname)
                run.log({name: chart})
            else:
                run.log({name: wandb.Html(panel)})
        artifact = wandb.Artifact(f"results-{run.id}", "results")
        artifact.add(_table(wandb, contents.results), "results")
        run.log_artifact(artifact)

    def _say_where(self) -> None:
        """Where the runs are, and the command that uploads those that were kept offline."""
        offline = [Path(run.settings.sync_dir) for run in self.runs if run.settings.mode != "online"]
        for run in self.runs:
            if run.settings.mode == "online":
                print(f"W&B:    {run.url}", file=sys.stderr)
        if offline:
            folders = " ".join(map(str, offline)) if len(offline) < 3 else f"{offline[0].parent}/offline-run-*"
            print(f"W&B:    kept offline, {len(offline)} in all; to upload: wandb sync {folders}", file=sys.stderr)


def _table(wandb: Any, panel: TablePanel) -> Any:
    return wandb.Table(columns=list(panel.columns), data=panel.data)


def _installed() -> bool:
    """Whether there is a package wandb. W&B's own folder of runs has the same name and is none."""
    spec = importlib.util.find_spec("wandb")
    return spec is not None and spec.origin is not None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
