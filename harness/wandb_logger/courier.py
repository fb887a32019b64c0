"""Carries letters to the process that talks with W&B, and never makes the sweep wait for it.

`send` puts a letter into a bounded queue and returns; a thread carries it to the process. What finds the queue full
is dropped: that is progress, while W&B hangs. The process has a session of its own and its own deadline, so that it
outlives neither a killed sweep nor a dead network for long.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WAITING_LETTERS = 1000
GRACE = 2.0  # seconds beside its own deadline before the process is ended


class Courier:
    """The parent's side. ``settings``: those of the logger and ``folder``, where files go."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.wait = float(settings["wait"])
        self.letters: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING_LETTERS)
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("desk.py")), json.dumps(dict(settings))],
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
