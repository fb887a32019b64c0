"""``python -m harness worker <job file> [<process>]``: one worker of a sweep; launchers start it.

It ends with the process of that number, its parent. Exit code 0 = all is finished.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.console import say
from harness.errors import UserError
from harness.runner.job_spec import run_job
from harness.runner.process import stop_without


def main(words: Sequence[str]) -> None:
    """Work until the sweep is finished, and say how many samples were this worker's."""
    match list(words):
        case [file]:
            pass
        case [file, parent] if parent.isdecimal():
            stop_without(int(parent))
        case _:
            raise UserError(
                "A worker needs one job file: launchers write it and start workers, launcher=local for example."
            )
    say(f"{run_job(file)} samples stored by this worker.")
