"""What is collected of the logits while prompts are read: those that follow the prompt, or the loss of every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.batch.batch import Batch


class LogitsCollector(Protocol):
    """Receives the logits of the passes over the prompts of one batch."""

    logits_to_keep: int  # of each pass that it wants; 0 = all

    def wants(self, batch: Batch, number: int) -> bool:
        """Whether it needs the logits of pass ``number``; the output head is skipped where it does not."""
        ...

    def collect(self, batch: Batch, number: int, logits: Tensor) -> None:
        """After a pass that it wants: (R, 1 or m, vocabulary), right-aligned with ``batch.feed``."""
        ...

    def forked(self, rows: Sequence[int]) -> Self:
        """A copy for rows that leave a shared run: ``rows`` names the shared row of each."""
        ...


class NextLogits:
    """The logits that follow each row's last chunk: (vocabulary,) tensors, one for each row."""

    logits_to_keep = 1

    def __init__(self, by_row: list[Tensor | None]) -> None:
        self._by_row = by_row

    @classmethod
    def of(cls, rows: int) -> NextLogits:
        """An empty collector for so many rows."""
        return cls([None] * rows)

    def wants(self, batch: Batch, number: int) -> bool:
        """Only the passes that end a prompt."""
        return any(number == passes - 1 for passes in batch.prompt_passes)

    def collect(self, batch: Batch, number: int, logits: Tensor) -> None:
        """Keep the last logits of the rows whose prompts end."""
        for row, passes in enumerate(batch.prompt_passes):
            if number == passes - 1:
                self._by_row[row] = logits[row, -1].clone()

    def forked(self, rows: Sequence[int]) -> NextLogits:
        """The same logits."""
        return NextLogits([self._by_row[row] for row in rows])

    @property
    def logits(self) -> Tensor:
        """(R, vocabulary), once every prompt has been read."""
        return torch.stack([logits for logits in self._by_row if logits is not None])


class TokenLosses:
    """Negative log likelihood, nats, of every prompt token but the first, (n,) tensors in order.

    The token after a chunk is predicted before the chunk's eviction (A-21), with everything that survived the earlier
    ones.
    """

    logits_to_keep = 0

    def __init__(self, parts: list[list[Tensor]]) -> None:
        self.parts = parts

    @classmethod
    def of(cls, rows: int) -> TokenLosses:
        """An empty collector for so many rows."""
        return cls([[] for _ in range(rows)])

    def wants(self, batch: Batch, number: int) -> bool:
        """All passes."""
        return True

    def collect(self, batch: Batch, number: int, logits: Tensor) -> None:
        """All logits of the chunk against the tokens that follow."""
        for row, width in enumerate(batch.feed.widths):
            stop = batch.lengths[row]
            truth = batch.rows[row].tokens[stop - width + 1 : stop + 1]
            if truth:
                begin = batch.feed.width - width
                predicted = logits[row, begin : begin + len(truth)].float()
                target = torch.tensor(truth, device=logits.device)
                self.parts[row].append(F.cross_entropy(predicted, target, reduction="none"))

    def forked(self, rows: Sequence[int]) -> TokenLosses:
        """The same losses so far; what is collected later is each row's own."""
        return TokenLosses([list(self.parts[row]) for row in rows])

    def nll(self) -> list[list[float]]:
        """Per row."""
        return [torch.cat(parts).tolist() if parts else [] for parts in self.parts]
