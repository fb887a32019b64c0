"""The samples of every task in a model's own tokens, made once however often they are asked for."""

from __future__ import annotations

from harness.cells import Cell
from harness.models import ModelSpec
from harness.samples.wording import Wording
from tasks.base import Sample, Task


class Prompts:
    """Samples of the cells of one sweep, ``limit`` of each task at most."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._wordings: dict[ModelSpec, Wording] = {}
        self._encoded: dict[tuple[ModelSpec, Task], list[tuple[Sample, list[int]]]] = {}

    def under(self, cell: Cell) -> list[tuple[Sample, list[int], int]]:
        """Every sample of a cell, its prompt's tokens, and the slots that the budget grants (0 for dense)."""
        encoded = self._of(cell.model, cell.task)
        if cell.policy.is_dense:
            return [(sample, tokens, 0) for sample, tokens in encoded]
        lengths = [len(tokens) for _, tokens in encoded]
        return [(s, tokens, cell.budget.of(len(tokens), s.max_new_tokens, lengths)) for s, tokens in encoded]

    def wording(self, model: ModelSpec) -> Wording:
        """How a model is spoken to; its tokenizer is loaded once."""
        if model not in self._wordings:
            self._wordings[model] = model.wording()
        return self._wordings[model]

    def _of(self, model: ModelSpec, task: Task) -> list[tuple[Sample, list[int]]]:
        if (model, task) not in self._encoded:
            wording = self.wording(model)
            samples = task.first(wording.tokenizer, self.limit)
            self._encoded[model, task] = [(sample, wording.encoded(sample)) for sample in samples]
        return self._encoded[model, task]
