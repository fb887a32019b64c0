"""How far a run is: what is in the store, and what the batch on the way has been fed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.planning.memory_used import used_bytes
from harness.planning.plan import Job


class Count:
    """Tokens, samples and cells of one run. ``planned``: the tokens of all its rows, each prompt counted by every row
    that asks for it.

    A batch that does not fit into memory is begun again in halves. What it was fed until then is forgotten, so that
    every token counts once.
    """

    def __init__(self, planned: int = 0) -> None:
        self.planned = planned
        self.samples = 0
        self.cells: set[str] = set()
        self.stored = 0  # tokens of the rows in the store
        self.through = 0  # tokens that went through the model for them: fewer, where prompts were shared
        self.underway = 0  # tokens that the present batch has been fed
        self.since = time.perf_counter()

    def begin(self) -> None:
        """A batch begins, and the one before, if it was not settled, has failed."""
        self.underway = 0

    def feed(self, tokens: int) -> None:
        """The present batch was fed so many tokens."""
        self.underway += tokens

    def settle(self, jobs: Sequence[Job]) -> None:
        """The present batch was these jobs, and their rows are in the store."""
        self.samples += len(jobs)
        self.cells |= {job.cell.id for job in jobs}
        self.stored += sum(row.total_tokens for job in jobs for row in job.rows)
        self.through += self.underway
        self.underway = 0

    @property
    def done(self) -> int:
        """Tokens of the plan that are behind us."""
        return self.stored + self.underway

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / max(1, self.planned)

    def facts(self) -> str:
        """``3 cells · 40 samples · 1,234 tokens/s · 1.9 GiB``; the speed is the mean since the start."""
        speed = (self.through + self.underway) / max(1e-9, time.perf_counter() - self.since)
        return (
            f"{_counted(len(self.cells), 'cell')} · {_counted(self.samples, 'sample')} · {speed:,.0f} tokens/s · "
            f"{used_bytes() / 2**30:.1f} GiB"
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
