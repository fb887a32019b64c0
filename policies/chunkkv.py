"""ChunkKV: chunks of the text stay or go together (Liu et al. 2025, arXiv 2502.00299; policies.md, 3.22)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from policies.scorer import OverScorer, tiles
from policies.snapkv import SnapKV
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class ChunkKV(OverScorer):
    """Score = mean of the scores that ``base``, any other scorer, gives to the slots of a token's chunk.

    Tokens ``0 … size - 1`` of the text are the first chunk, the next ``size`` the second, and so on, whatever prompt
    blocks there are: all slots of a chunk share one score, so that the selection rule ranks whole chunks. Of the chunk
    at the border of the budget the oldest tokens go first, as always on equal scores; those that stay are a smaller
    chunk, whose mean is over what is left of it. All that ``base`` carries is carried.

    Deviations: the paper and kvpress keep a whole number of chunks, we fill the budget; kvpress adds up the scores of
    all heads, so that they keep the same chunks, here each KV head chooses; the paper's chunks hold sums of plain
    attention, of which ``base=snapkv`` is the pooled mean. Layers do not reuse each other's choice.
    """

    base: Any = field(default_factory=SnapKV)  # a scorer; `build` makes it from its name or {name, …}
    size: int = 10  # tokens

    def __post_init__(self) -> None:
        self.check_base("chunkkv")
        if self.size < 1:
            raise PolicyError(f"chunkkv needs chunks of at least 1 token, not size={self.size}.")

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        scores: Tensor = self.base.score(view)
        table = scores.unsqueeze(-1).expand(*scores.shape, self.size)  # of the size of what a tile needs
        return torch.cat([_chunk_means(scores[rows], view.positions[rows], self.size) for rows in tiles(table)])


def _chunk_means(scores: Tensor, positions: Tensor, size: int) -> Tensor:
    """(R, H, N) fp32, of chunks by position.

    Each slot has a place of its own in a table of chunks, so that nothing is added in an order that a device chooses;
    in fp64 the mean of equal scores is that score, and chunks of different lengths tie where they should.
    """
    order = positions.argsort(-1)  # empty slots come first, as a chunk of their own
    places = positions.gather(-1, order).long()
    chunks = places.div(size, rounding_mode="floor")
    number = (chunks.diff(dim=-1, prepend=chunks[..., :1]) != 0).cumsum(-1)  # 0, 1, … without gaps
    line = scores.gather(-1, order).double()
    table = line.new_zeros(*line.shape[:2], line.shape[-1] * size)
    sums = table.scatter_(-1, number * size + places % size, line).view(*line.shape, size).sum(-1)
    members = torch.zeros_like(number).scatter_add_(-1, number, torch.ones_like(number))
    means = (sums / members.clamp(min=1)).float().gather(-1, number)
    return torch.empty_like(means).scatter_(-1, order, means)
