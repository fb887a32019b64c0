"""The process that talks with W&B: letters on stdin, one JSON object a line; sentences for a person on stdout.

It is run as a file and imports nothing of ours, so that it starts fast and holds no model. Opened online, a run whose
server does not answer within `ANSWER` seconds is opened offline, and so are those after it.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ANSWER = 5.0  # seconds


class Desk:
    """The runs of one sweep, by the keys of the letters."""

    def __init__(self, settings: dict[str, Any], say: Callable[[str], None]) -> None:
        self.wandb: Any = importlib.import_module("wandb")
        self.settings, self.say = settings, say
        self.mode = settings["mode"]
        self.runs: dict[str, Any] = {}

    def open(self, run: str, name: str, config: dict[str, Any]) -> None:
        """A new run; the first one takes the place that a W&B sweep has given to this process."""
        if self.mode == "online":
            try:
                self.runs[run] = self._init("online", name, config)
            except Exception as error:  # no key, no network, no answer: offline needs none of them
                self.mode = "offline"
                self.say(f"W&B cannot be reached ({_first_line(error)}): runs are kept offline.")
        if run not in self.runs:
            self.runs[run] = self._init("offline", name, config)
        os.environ.pop("WANDB_RUN_ID", None)

    def log(self, run: str, values: dict[str, Any]) -> None:
        """Numbers of one moment."""
        self.runs[run].log(values)

    def summary(self, run: str, values: dict[str, Any]) -> None:
        """Numbers that W&B shows in its list of runs."""
        self.runs[run].summary.update(values)

    def lines(self, run: str, name: str, **plot: Any) -> None:
        """An interactive chart: ``xs``, ``ys`` and ``keys`` by line, ``title``, ``xname``."""
        self.runs[run].log({name: self.wandb.plot.line_series(**plot)})

    def html(self, run: str, name: str, page: str) -> None:
        """A drawn figure."""
        self.runs[run].log({name: self.wandb.Html(page)})

    def table(self, run: str, name: str, columns: list[str], data: list[list[Any]]) -> None:
        """A table, as a panel."""
        self.runs[run].log({name: self.wandb.Table(columns=columns, data=data)})

    def artifact(self, run: str, name: str, columns: list[str], data: list[list[Any]]) -> None:
        """A table as a versioned artifact of type ``results``. Online this asks the server, and waits for it."""
        kept = self.wandb.Artifact(f"{name}-{self.runs[run].id}", "results")
        kept.add(self.wandb.Table(columns=columns, data=data), name)
        self.runs[run].log_artifact(kept)

    def close(self, failed: bool) -> None:
        """End all runs, and say where they are."""
        for run in self.runs.values():
            run.finish(exit_code=int(failed))
        self.tell()

    def tell(self) -> None:
        """Where the runs are, and what brings those that are not there yet to the server."""
        waiting = [Path(run.settings.sync_dir) for run in self.runs.values() if run.settings.mode != "online"]
        for run in self.runs.values():
            if run.settings.mode == "online":
                self.say(f"W&B:    {run.url}")
        if waiting:
            self.say(f"W&B:    kept offline, {len(waiting)} in all; to upload: wandb sync {_shortest(waiting)}")

    def give_up(self) -> None:
        """The server has fallen silent: end at once. The rows are kept, and the pages come from them."""
        self.say(
            f"W&B did not take everything within {self.settings['wait']:g} s. Nothing is lost: run the same command "
            "with logger.mode=offline; it computes nothing again and writes the pages for wandb sync."
        )
        os._exit(0)

    def _init(self, mode: str, name: str, config: dict[str, Any]) -> Any:
        asked = self.settings
        return self.wandb.init(
            mode=mode,
            name=name,
            config=config,
            project=asked["project"],
            entity=asked["entity"],
            group=asked["group"],
            tags=asked["tags"],
            dir=asked["folder"],
            settings=self.wandb.Settings(
                silent=True,
                console="off",
                init_timeout=ANSWER,
                login_timeout=ANSWER,
                disable_git=True,  # provenance is in the cells
                disable_code=True,
                x_disable_stats=True,
                reinit="create_new",
            ),
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _shortest(folders: list[Path]) -> str:
    return " ".join(str(folder) for folder in folders) if len(folders) < 3 else f"{folders[0].parent}/offline-run-*"


class Letters:
    """What the sweep sends, read in a thread: so its end is noticed even while W&B keeps us waiting.

    ``failed``: the sweep ended without a last letter. At its end ``late`` is called in ``wait`` seconds.
    """

    def __init__(self, wait: float, late: Callable[[], None]) -> None:
        self.failed = True
        self.timer = threading.Timer(wait, late)
        self.timer.daemon = True
        self.waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.waiting.get, None)  # type: ignore[arg-type]

    def _read(self) -> None:
        for line in sys.stdin:
            letter = json.loads(line)
            if letter["what"] == "close":
                self.failed = False
                break
            self.waiting.put(letter)
        self.timer.start()
        self.waiting.put(None)


def main() -> None:
    """Read letters until the last; without a last one the sweep has died, and its runs count as failed."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # wandb's own words go nowhere

    def say(sentence: str) -> None:
        print(sentence, file=out, flush=True)

    settings = json.loads(sys.argv[1])
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # offline is offline
    os.environ.setdefault("WANDB_DATA_DIR", f"{settings['folder']}/wandb")
    desk = Desk(settings, say)
    letters = Letters(float(settings["wait"]), desk.give_up)
    try:
        for letter in letters:
            getattr(desk, letter.pop("what"))(**letter)
        desk.close(letters.failed)
    except Exception as error:  # whatever W&B does, its runs end here and the rows are elsewhere
        say(f"W&B stopped ({type(error).__name__}: {_first_line(error)}); the sweep goes on without it.")
