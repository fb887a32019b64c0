"""The slot cache: K and V allocated once per layer, survivors of a chunk moved into the slots of the evicted.

A layer holds ``keys, values: (R, H, N + B, D)`` and ``positions: (R, H, N + B)``: N slots that persist and a tail in
which the current chunk lies while it is attended. Nothing is concatenated and nothing compacted; the order of the
text is in ``positions``. The first chunk finds the cache empty, so it is attended where the model left it and only
its survivors are ever written: a one-shot prompt of T tokens needs no T slots per layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """One layer's slots. ``fill`` is a host number: no slot at or beyond it is in use by any row."""

    is_compileable = False
    is_sliding = False

    def __init__(self, rows: int, capacity: int, tail: int) -> None:
        super().__init__()
        self.rows = rows
        self.capacity = capacity  # N, slots that may persist
        self.tail = max(1, tail)  # B, widest chunk after the first; its last slot takes writes that must vanish
        self.fill = 0
        self.states: dict[int, Tensor] = {}  # a group's (r, H, N + B) fp32 policy state, by group index
        self.chunk_keys: Tensor  # (R, H, m, D), what the model just handed over
        self.chunk_values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate once, at the first chunk, when shapes, dtype and device are known."""
        rows, heads, _, width = key_states.shape
        slots = self.capacity + self.tail
        self.keys = key_states.new_zeros(rows, heads, slots, width)
        self.values = value_states.new_zeros(rows, heads, slots, value_states.shape[-1])
        self.positions = torch.full((rows, heads, slots), -1, dtype=torch.int32, device=key_states.device)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Called by the model: (R, H, m, D) of the chunk in, (R, H, fill + m, D) to attend over out."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.chunk_keys, self.chunk_values = key_states, value_states
        if self.fill == 0:
            return key_states, value_states
        stop = self.fill + key_states.shape[2]
        self.keys[:, :, self.fill : stop] = key_states
        self.values[:, :, self.fill : stop] = value_states
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def append(self, chunk_positions: Tensor, states: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Every row keeps the whole chunk right behind its slots: the case without eviction and without padding.

        ``chunk_positions``: (R, m) int32. ``states``: (storage (r, H, N + B), chunk part (r, H, m)) pairs.
        """
        here = slice(self.fill, self.fill + chunk_positions.shape[-1])
        if self.fill == 0:
            self.keys[:, :, here] = self.chunk_keys
            self.values[:, :, here] = self.chunk_values
        self.positions[:, :, here] = chunk_positions.unsqueeze(1)
        for storage, chunk in states:
            storage[:, :, here] = chunk
        self.fill = here.stop

    def absorb(
        self,
        kept: Tensor,
        targets: Tensor,
        widest_target: int,
        chunk_positions: Tensor,
        states: Sequence[tuple[slice, Tensor, Tensor]],
    ) -> None:
        """Drop what is not ``kept`` and move the chunk's survivors into free slots below each row's target.

        ``kept``: (R, H, fill + m) bool. ``targets``: (R, 1, 1), slots that a row persists from now on, and
        ``widest_target`` their maximum. ``states``: (rows, storage (r, H, N + B), chunk part (r, H, m)).
        At most m copies per head. A survivor for which no slot is free is lost: storage cannot overflow, and the
        ledger, which counts ``kept``, reports it.
        """
        chunk_width = chunk_positions.shape[-1]
        trash = self.capacity + self.tail - 1
        old, new = kept[..., : self.fill], kept[..., self.fill :]

        index = torch.arange(widest_target, device=kept.device)
        free = (index < targets).expand(*kept.shape[:2], -1).clone()
        known = min(self.fill, widest_target)
        free[..., :known] &= ~old[..., :known]

        # The k-th survivor of a head goes to the k-th free slot of that head.
        table = torch.full((*kept.shape[:2], chunk_width + 1), trash, device=kept.device)
        free_rank = torch.where(free, free.cumsum(-1) - 1, chunk_width).clamp(max=chunk_width)
        table.scatter_(-1, free_rank, index.expand_as(free))
        table[..., chunk_width] = trash
        survivor_rank = torch.where(new, new.cumsum(-1) - 1, chunk_width)
        destination = table.gather(-1, survivor_rank)  # (R, H, m)

        wide = destination.unsqueeze(-1)
        self.keys.scatter_(2, wide.expand_as(self.chunk_keys), self.chunk_keys)
        self.values.scatter_(2, wide.expand_as(self.chunk_values), self.chunk_values)
        self.positions[..., : self.fill].masked_fill_(~old, -1)
        self.positions.scatter_(2, destination, chunk_positions.unsqueeze(1).expand_as(destination).contiguous())
        self.positions[..., widest_target:] = -1
        for rows, storage, chunk in states:
            storage.scatter_(2, destination[rows], chunk)
        self.fill = widest_target

    def held(self) -> Tensor:
        """(R, H) int64: slots in use, counted on the tensor."""
        return (self.positions >= 0).sum(-1)

    def get_seq_length(self) -> int:
        """Slots in use; never a position: positions are passed explicitly everywhere."""
        return self.fill

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots visible to the next chunk, and the offset 0."""
        return self.fill + query_length, 0

    def get_max_length(self) -> int:
        """All slots, tail included."""
        return self.capacity + self.tail


class SlotCache(Cache):
    """One `SlotLayer` per layer of the model."""

    def __init__(self, layers: int, rows: int, capacity: int, tail: int) -> None:
        super().__init__(layers=[SlotLayer(rows, capacity, tail) for _ in range(layers)])

    def allocated_bytes(self) -> int:
        """Bytes of K and V storage over all layers, tail included."""
        return sum(t.nbytes for layer in self.layers if layer.is_initialized for t in (layer.keys, layer.values))
