"""What a run listens for while prompts are read: what comes next, or the loss of every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.batch.batch import Batch


class LogitsCollector(Protocol):
    """Hears the logits of every pass over the prompts of one cohort."""

    logits_to_keep: int  # of each pass that it asks for; 0 = all

    def asks(self, cohort: Batch, number: int) -> bool:
        """Whether pass ``number`` says anything of interest: where not, the output head is spared."""
        ...

    def hear(self, cohort: Batch, number: int, logits: Tensor) -> None:
        """After a pass that it asks for: (R, 1 or m, vocabulary), right-aligned with ``cohort.feed``."""
        ...

    def handed_on(self, rows: Sequence[int]) -> Self:
        """What rows that leave a shared run have heard so far: ``rows`` names the shared row of each."""
        ...


class NextLogits:
    """The logits that follow each row's last chunk: (vocabulary,) tensors, one for each row."""

    logits_to_keep = 1

    def __init__(self, following: list[Tensor | None]) -> None:
        self._following = following

    @classmethod
    def of(cls, rows: int) -> NextLogits:
        """Nothing heard yet."""
        return cls([None] * rows)

    def asks(self, cohort: Batch, number: int) -> bool:
        """Only the passes that end a prompt matter."""
        return any(number == passes - 1 for passes in cohort.prompt_passes)

    def hear(self, cohort: Batch, number: int, logits: Tensor) -> None:
        """Of the rows whose prompts end."""
        for row, passes in enumerate(cohort.prompt_passes):
            if number == passes - 1:
                self._following[row] = logits[row, -1].clone()

    def handed_on(self, rows: Sequence[int]) -> NextLogits:
        """The same logits."""
        return NextLogits([self._following[row] for row in rows])

    @property
    def following(self) -> Tensor:
        """(R, vocabulary), once every prompt has been read."""
        return torch.stack([logits for logits in self._following if logits is not None])


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
        """Nothing heard yet."""
        return cls([[] for _ in range(rows)])

    def asks(self, cohort: Batch, number: int) -> bool:
        """All passes."""
        return True

    def hear(self, cohort: Batch, number: int, logits: Tensor) -> None:
        """All logits of the chunk against the tokens that follow."""
        for row, width in enumerate(cohort.feed.widths):
            stop = cohort.lengths[row]
            truth = cohort.rows[row].tokens[stop - width + 1 : stop + 1]
            if truth:
                begin = cohort.feed.width - width
                predicted = logits[row, begin : begin + len(truth)].float()
                target = torch.tensor(truth, device=logits.device)
                self.parts[row].append(F.cross_entropy(predicted, target, reduction="none"))

    def handed_on(self, rows: Sequence[int]) -> TokenLosses:
        """The same losses; what is heard later is each row's own."""
        return TokenLosses([list(self.parts[row]) for row in rows])

    def nll(self) -> list[list[float]]:
        """Per row."""
        return [torch.cat(parts).tolist() if parts else [] for parts in self.parts]
