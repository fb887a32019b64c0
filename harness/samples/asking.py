"""From samples to the rows of a cell: what the engine is asked, and when an answer is over."""

from __future__ import annotations

from harness.cells import Cell
from harness.engine.rows import Row
from harness.samples.continuations import split
from harness.samples.stopping import StopTexts
from harness.samples.wording import Wording
from tasks.base import Sample, Task


class Asked:
    """Rows of one model. Continuations are encoded once for all cells."""

    def __init__(self, wording: Wording) -> None:
        self.wording = wording
        self._split: dict[tuple[Task, str], tuple[list[int], list[list[int]]]] = {}

    def rows(self, cell: Cell, sample: Sample, tokens: list[int], slots: int) -> tuple[Row, ...]:
        """One row for a sample (``tokens``: its prompt), or one for each of its continuations."""
        if cell.task.mode == "continuations":
            prompt, continuations = self._continued(cell.task, sample)
            return tuple(Row(prompt, cell.policy, slots, len(given), continuation=given) for given in continuations)
        until = StopTexts(sample.until, self.wording.tokenizer) if sample.until else None
        row = Row(
            tokens,
            cell.policy,
            slots,
            sample.max_new_tokens,
            min_new_tokens=sample.min_new_tokens,
            stops=self.wording.stops(sample),
            until=until,
        )
        return (row,)

    def _continued(self, task: Task, sample: Sample) -> tuple[list[int], list[list[int]]]:
        key = task, sample.id
        if key not in self._split:
            self._split[key] = split(sample, self.wording)
        return self._split[key]
