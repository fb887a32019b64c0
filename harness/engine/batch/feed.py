"""What goes into one forward pass (`Feed`), who may look at it (`Watcher`), and what a recorded pass may not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch
from torch import Tensor

from harness.engine.attention.mask import AttentionMask

if TYPE_CHECKING:
    from harness.engine.batch.batch import Batch
    from harness.engine.batch.layer_pass import LayerPass


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

    def mask(self, filled: Tensor, no_slot_is_empty: bool = False) -> AttentionMask:
        """The attention mask. ``filled``: (R, 1 or H, fill) bool, the slots in use."""
        return AttentionMask(self.valid, filled, plain=no_slot_is_empty and self.is_even)

    def of(self, rows: Sequence[int]) -> Feed:
        """The same tokens for these rows, in this order; a row may be given twice."""
        widths = tuple(self.widths[row] for row in rows)
        index = torch.tensor(rows, device=self.tokens.device)
        return Feed(self.tokens[index], self.positions[index], widths)


class Watcher(Protocol):
    """What a diagnostic implements: it is called in every layer of every pass, reads, and changes nothing."""

    def attended(self, work: LayerPass) -> None:
        """After attention and before eviction: slots and chunk, ``work.attention_of(rows)`` for statistics."""
        ...

    def evicted(self, work: LayerPass) -> None:
        """After eviction: ``work.layer.slot_positions`` says what is held now."""
        ...

    def predicted(self, batch: Batch, logits: Tensor) -> None:
        """After all layers: (R, 1 or m, vocabulary), right-aligned with ``batch.feed``."""
        ...


class CannotRecordError(Exception):
    """A pass depends on host numbers, which a replay would not read again. Such a pass is computed and not recorded."""


class HiddenLengths(tuple[int, ...]):
    """Host numbers that differ from pass to pass, while a pass is recorded. Reading them raises `CannotRecordError`."""

    __slots__ = ()

    def _refuse(self) -> NoReturn:
        raise CannotRecordError("a policy reads view.lengths, numbers of the host, where view.seen is on the device")

    def __iter__(self) -> Iterator[int]:
        self._refuse()

    def __getitem__(self, index: Any) -> Any:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()
