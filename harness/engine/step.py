"""One forward pass over a cohort: which tokens each row feeds, where they stand, and what they may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.sight import Sight


@dataclass(frozen=True)
class Feed:
    """The tokens of one pass, right-aligned: a row with fewer tokens than the widest is padded on the left.

    Right alignment makes "the last rows of the chunk" the same index for every row, and leaves the logits that
    follow a prompt at index -1. A row that feeds nothing (finished, or waiting) is all padding.
    """

    tokens: Tensor  # (R, m) int64, 0 at padding
    positions: Tensor  # (R, m) int32, -1 at padding
    widths: tuple[int, ...]  # tokens each row feeds

    @property
    def width(self) -> int:
        """m: tokens of the widest row."""
        return self.tokens.shape[1]

    @property
    def valid(self) -> Tensor:
        """(R, m) bool: tokens, not padding."""
        return self.positions >= 0

    @property
    def is_even(self) -> bool:
        """Whether every row feeds the full width."""
        return min(self.widths) == self.width

    @staticmethod
    def right_aligned(pieces: Sequence[Sequence[int]], starts: Sequence[int], device: torch.device) -> Feed:
        """From each row's tokens and the position of the first of them."""
        width = max(1, max(len(piece) for piece in pieces))
        tokens = [[0] * (width - len(piece)) + list(piece) for piece in pieces]
        positions = [
            [-1] * (width - len(piece)) + list(range(start, start + len(piece)))
            for piece, start in zip(pieces, starts, strict=True)
        ]
        return Feed(
            torch.tensor(tokens, device=device),
            torch.tensor(positions, dtype=torch.int32, device=device),
            tuple(len(piece) for piece in pieces),
        )

    def sight(self, filled: Tensor, no_slot_is_empty: bool = False) -> Sight:
        """Who sees what. ``filled``: (R, 1 or H, fill) bool, the slots in use."""
        return Sight(self.valid, filled, plain=no_slot_is_empty and self.is_even)

    def of(self, rows: Sequence[int]) -> Feed:
        """The same tokens for these rows, in this order; a row may be named again."""
        widths = tuple(self.widths[row] for row in rows)
        index = torch.tensor(rows, device=self.tokens.device)
        return Feed(self.tokens[index], self.positions[index], widths)
