"""Who may see what in one pass: every filled slot, and the chunk causally. Masks are made by the tile, never whole for
long prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """A pass's visibility over slots and chunk, (R, 1 or H, m, fill + m) when written out.

    A row that is padding sees only itself, for a softmax over nothing is not a number. ``explicit`` replaces the rule
    where more is hidden than it says.
    """

    valid: Tensor  # (R, m) bool: tokens, not padding
    filled: Tensor  # (R, 1 or H, fill) bool: slots in use
    plain: bool = False  # whether no row is padded and no slot empty, so that one mask serves all rows and heads
    explicit: Tensor | None = None  # (R, 1 or H, m, fill + m) bool

    @property
    def chunk(self) -> int:
        """m."""
        return self.valid.shape[1]

    @property
    def fill(self) -> int:
        """Slots before the chunk."""
        return self.filled.shape[-1]

    @property
    def slots(self) -> int:
        """fill + m."""
        return self.fill + self.chunk if self.explicit is None else self.explicit.shape[-1]

    def rows(self, tile: slice) -> Tensor:
        """(R or 1, 1 or H, tile, fill + m) bool, for these query rows."""
        if self.explicit is not None:
            return self.explicit[:, :, tile]
        asking, arriving = self._places(tile)
        causal = arriving <= asking
        if self.plain:
            return torch.cat([causal.new_ones(len(asking), self.fill), causal], -1)[None, None]
        chunk = self.valid[:, None, :] & causal | (arriving == asking)
        slots = self.filled.unsqueeze(2) & self.valid[:, None, tile, None]
        return torch.cat([slots, chunk.unsqueeze(1).expand(-1, slots.shape[1], -1, -1)], -1)

    def _places(self, tile: slice) -> tuple[Tensor, Tensor]:
        """Within the chunk: of these query rows (t, 1), and of what arrives (m,)."""
        start, stop, _ = tile.indices(self.chunk)
        arriving = torch.arange(self.chunk, device=self.valid.device)
        return arriving[start:stop].unsqueeze(-1), arriving

    def hide(self, logits: Tensor, rows: slice, tile: slice) -> None:
        """Set what these query rows may not see to -inf, in place. ``logits``: (r, H, G, t, n), the first n slots."""
        if not self.plain:
            seen = self.rows(tile)
            seen = seen if len(seen) == 1 else seen[rows]
            logits.masked_fill_(~seen[..., : logits.shape[-1]].unsqueeze(2), -torch.inf)
        elif tile.stop - tile.start > 1 or tile.stop < self.chunk:  # the newest token sees everything
            asking, arriving = self._places(tile)
            later = arriving[: logits.shape[-1] - self.fill] > asking
            logits[..., self.fill :].masked_fill_(later, -torch.inf)

    def reach(self, tile: slice) -> int:
        """Slots from the first to the last that these query rows may see."""
        return self.slots if self.explicit is not None else self.fill + tile.stop

    @cached_property
    def newest(self) -> Tensor:
        """(R, 1 or H, fill + m) bool: what the last query row sees."""
        seen = self.rows(slice(self.chunk - 1, self.chunk))[:, :, 0]
        return seen.expand(len(self.valid), -1, -1)

    def added_to_logits(self, group: int, dtype: torch.dtype) -> Tensor | None:
        """(R or 1, 1 or H, G·m, fill + m), added to the logits of a folded query group; None where all is visible."""
        if self.plain and self.chunk == 1:
            return None
        return self._added(group, dtype)

    def _added(self, group: int, dtype: torch.dtype) -> Tensor:
        known: dict[tuple[int, torch.dtype], Tensor] = self._masks
        if (group, dtype) not in known:
            seen = self.rows(slice(None)).repeat(1, 1, group, 1)
            known[group, dtype] = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
                ~seen, -torch.inf
            )
        return known[group, dtype]

    @cached_property
    def counts(self) -> Tensor:
        """(R, 1 or H) int64: slots that the last query row sees."""
        return self.newest.sum(-1)

    def in_layers(self, layers: int) -> AttentionMask:
        """The same in each of so many layers, taken for rows: (R · L, …)."""
        known: dict[int, AttentionMask] = self._in_layers
        if layers not in known:
            known[layers] = AttentionMask(in_layers(self.valid, layers), in_layers(self.filled, layers), self.plain)
        return known[layers]

    @cached_property
    def _in_layers(self) -> dict[int, AttentionMask]:
        return {}

    @cached_property
    def _masks(self) -> dict[tuple[int, torch.dtype], Tensor]:
        return {}  # all layers of a pass add the same mask

    def hiding(self, hidden: Tensor) -> AttentionMask:
        """The same without what is hidden, (R, H, 1 or m, fill + m) bool."""
        return replace(self, plain=False, explicit=self.rows(slice(None)) & ~hidden)

    def of(self, rows: slice | Tensor) -> AttentionMask:
        """For these rows."""
        explicit = None if self.explicit is None else self.explicit.expand(len(self.valid), -1, -1, -1)[rows]
        return AttentionMask(self.valid[rows], self.filled[rows], self.plain, explicit)


def in_layers(by_row: Tensor, layers: int) -> Tensor:
    """(R, …) to (R · L, …): the same in all layers."""
    return by_row.unsqueeze(1).expand(-1, layers, *by_row.shape[1:]).flatten(0, 1)
