"""KVzip: what the model attends to while it repeats its context (Kim et al. 2025, arXiv 2505.23416; policies.md,
3.28)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class KVzip(Stateless):
    """Score = the largest probability that a slot gets from any query head and token while the prompt is repeated.

    The engine lets the model repeat the prompt in pieces of ``chunk`` tokens after it has been read, and the softmax is
    over the policy's protected sinks, the piece, and what has been repeated of it. This costs about as much as reading
    the prompt twice more, and knows nothing of the question: the same selection serves any.

    Source: NVIDIA/kvpress (KVzipPress), the released method's definition.
    """

    chunk: int = 2048  # tokens
    reads_repetition: ClassVar[bool] = True
    nonnegative: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise PolicyError(f"kvzip repeats at least 1 token at a time, not chunk={self.chunk}.")

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        return repetition(view)[:, view.layer].gather(-1, view.positions.clamp(min=0).long())


@dataclass(frozen=True)
class ModelWide:
    """Head budgets from comparing the repetition's scores over all layers and heads: KVzip's non-uniform compression.

    As many slots as all heads have together go to the best scores of the whole model, protected ones first.
    """

    exact: ClassVar[bool] = True

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1)."""
        found = repetition(view)  # (R, L, H, T)
        own: list[Tensor] = []
        for row, (budget, count) in enumerate(zip(view.budgets, view.counts, strict=True)):
            of_row = found[row, :, :, :count].clone()
            kept_anyway = view.positions[row, 0][protected[row, 0]].long()
            of_row[..., kept_anyway] = torch.inf
            winners = min(budget * of_row[..., 0].numel(), of_row.numel())
            won = torch.zeros(of_row.numel(), dtype=torch.bool, device=of_row.device)
            # Of equal scores the later win, in the order of layers, heads and tokens: the same in every layer's turn.
            won[of_row.flatten().flip(0).sort(descending=True, stable=True).indices[:winners]] = True
            own.append(won.flip(0).view_as(of_row)[view.layer].sum(-1))
        return torch.stack(own).unsqueeze(-1)


def repetition(view: CacheView) -> Tensor:
    """(R, L, H, T); `PolicyError` where the prompt was not repeated."""
    if view.repetition is None:
        raise PolicyError(
            "Scores of a repeated prompt exist once it has been read whole, under the scorer kvzip: set "
            "policy.scorer=kvzip, policy.schedule.prompt=after_prompt and policy.schedule.decode=never."
        )
    return view.repetition
