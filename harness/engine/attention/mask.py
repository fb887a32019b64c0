"""The attention mask of one pass: every filled slot is visible, and the chunk causally.

Masks are made tile by tile, never whole for long prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """What each query row of a pass may attend to, over slots and chunk: (R, 1 or H, m, fill + m) when written out.

    A query row that is padding sees only itself, because a softmax over nothing is not a number. ``explicit`` replaces
    the rule where more is hidden than it says.
    """

    valid: Tensor  # (R, m) bool: tokens, not padding
    filled: Tensor  # (R, 1 or H, fill) bool: slots in use
    plain: bool = False  # whether no row is padded and no slot empty, so that one mask serves all rows and heads
    explicit: Tensor | None = None  # (R, 1 or H, m, fill + m) bool

    @property
    def chunk(self) -> int:
        """m: tokens of the chunk."""
        return self.valid.shape[1]

    @property
    def fill(self) -> int:
        """Slots before the chunk."""
        return self.filled.shape[-1]

    @property
    def slots(self) -> int:
        """fill + m: slots and chunk together."""
        return self.fill + self.chunk if self.explicit is None else self.explicit.shape[-1]

    def rows(self, tile: slice) -> Tensor:
        """(R or 1, 1 or H, tile, fill + m) bool, for these query rows."""
        if self.explicit is not None:
            return self.explicit[:, :, tile]
        query_index, key_index = self._indices(tile)
        causal = key_index <= query_index
        if self.plain:
            return torch.cat([causal.new_ones(len(query_index), self.fill), causal], -1)[None, None]
        chunk = self.valid[:, None, :] & causal | (key_index == query_index)
        slots = self.filled.unsqueeze(2) & self.valid[:, None, tile, None]
        return torch.cat([slots, chunk.unsqueeze(1).expand(-1, slots.shape[1], -1, -1)], -1)

    def _indices(self, tile: slice) -> tuple[Tensor, Tensor]:
        """Indices within the chunk: of these query rows (t, 1), and of all tokens of the chunk (m,)."""
        start, stop, _ = tile.indices(self.chunk)
        key_index = torch.arange(self.chunk, device=self.valid.device)
        return key_index[start:stop].unsqueeze(-1), key_index

    def hide(self, logits: Tensor, rows: slice, tile: slice, added: Tensor | None = None) -> None:
        """Set logits that these query rows may not see to -inf, in place: (r, H, G, t, n), the first n slots.

        ``added``: what `added_to_logits` makes for a group of one, where several layers use it; else it is made here,
        for these rows alone. Adding -inf is several times as fast as filling with it.
        """
        if not self.plain:
            if added is None:
                seen = self.of(rows).added(tile, logits.dtype)
            else:
                seen = added[rows if len(added) > 1 else slice(None), :, tile]
            logits.add_(seen[..., : logits.shape[-1]].unsqueeze(2))
        elif tile.stop - tile.start > 1 or tile.stop < self.chunk:  # the newest token sees everything
            here = logits[..., self.fill + tile.start :]  # all query rows of the tile see what lies before
            here.add_(self._later(here.shape[-2], here.shape[-1], here.dtype))

    def added(self, tile: slice, dtype: torch.dtype) -> Tensor:
        """(R or 1, 1 or H, tile, fill + m): 0 where these query rows see a slot, -inf where not."""
        seen = self.rows(tile)
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)

    def _later(self, queries: int, keys: int, dtype: torch.dtype) -> Tensor:
        """(queries, keys): -inf where a key is later than the query row, both counted from the tile's first token."""
        known: dict[tuple[int, int, torch.dtype], Tensor] = self._triangles
        if (queries, keys, dtype) not in known:
            whole = torch.full((queries, keys), -torch.inf, dtype=dtype, device=self.valid.device)
            known[queries, keys, dtype] = whole.triu_(1)
        return known[queries, keys, dtype]

    @cached_property
    def _triangles(self) -> dict[tuple[int, int, torch.dtype], Tensor]:
        return {}

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
            known[group, dtype] = self.added(slice(None), dtype).repeat(1, 1, group, 1)
        return known[group, dtype]

    @cached_property
    def counts(self) -> Tensor:
        """(R, 1 or H) int64: slots that the last query row sees."""
        return self.newest.sum(-1)

    def in_layers(self, layers: int) -> AttentionMask:
        """The mask of a batch whose rows are repeated for each of so many layers: (R · L, …)."""
        known: dict[int, AttentionMask] = self._in_layers
        if layers not in known:
            known[layers] = AttentionMask(in_layers(self.valid, layers), in_layers(self.filled, layers), self.plain)
        return known[layers]

    @cached_property
    def _in_layers(self) -> dict[int, AttentionMask]:
        return {}

    @cached_property
    def _masks(self) -> dict[tuple[int, torch.dtype], Tensor]:
        return {}  # by group size and type: all layers of a pass add the same mask

    def hiding(self, hidden: Tensor) -> AttentionMask:
        """This mask with more slots hidden: ``hidden`` (R, H, 1 or m, fill + m) bool."""
        return replace(self, plain=False, explicit=self.rows(slice(None)) & ~hidden)

    def of(self, rows: slice | Tensor) -> AttentionMask:
        """The mask of these rows of the batch."""
        explicit = None if self.explicit is None else self.explicit.expand(len(self.valid), -1, -1, -1)[rows]
        return AttentionMask(self.valid[rows], self.filled[rows], self.plain, explicit)


def in_layers(by_row: Tensor, layers: int) -> Tensor:
    """(R, …) to (R · L, …): each row repeated for so many layers."""
    return by_row.unsqueeze(1).expand(-1, layers, *by_row.shape[1:]).flatten(0, 1)
