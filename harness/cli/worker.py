"""``python -m harness worker <job file>``: one worker of a sweep; launchers start it. Exit code 0 = all is finished."""

from __future__ import annotations

from collections.abc import Sequence

from harness.console import say
from harness.errors import UserError
from harness.runner.job_spec import run_job


def main(words: Sequence[str]) -> None:
    """Work until the sweep is finished, and say how many samples were this worker's."""
    if len(words) != 1:
        raise UserError(
            "A worker needs one job file: launchers write it and start workers, launcher=local for example."
        )
    say(f"{run_job(words[0])} samples stored by this worker.")
