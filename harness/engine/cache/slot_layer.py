"""The slot cache: K and V are allocated once per layer, and survivors of a chunk overwrite the slots of evicted tokens.

A layer holds ``keys, values: (R, H, N + B, D)`` and ``positions: (R, H, N + B)``: N slots that persist and a tail in
which the current chunk lies while it is attended. Nothing is concatenated and nothing compacted; the order of the
text is in ``positions``. `SlotLayer.evict` is the step that drops tokens. The first chunk finds the cache empty, so it
is attended where the model left it and only its survivors are ever written: a one-shot prompt of T tokens needs no T
slots per layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from harness.engine.cache.storage import KVStorage
from policies.scorer import SlotState


@dataclass(frozen=True)
class StateKey:
    """A state tensor of one group of rows. ``group``: its number in the batch."""

    name: str
    rows: slice
    kind: SlotState
    group: int

    def __hash__(self) -> int:
        return hash((self.name, self.group))


@dataclass(frozen=True)
class MovedGroup:
    """Rows of one group that move into a merged batch together, with their policy's state."""

    number: int  # of their group in the merged batch
    rows: slice  # of that group
    old_number: int  # of their group in the old batch
    old_rows: Tensor  # (r,) int64: the rows that move, counted within the old group
    new_rows: Tensor  # (r,) int64: the same rows within the new group

    def states(self, known: Iterable[StateKey]) -> list[tuple[StateKey, StateKey]]:
        """The keys of the old group's states, each with its key in the merged batch."""
        old = [key for key in known if key.group == self.old_number]
        return [(key, StateKey(key.name, self.rows, key.kind, self.number)) for key in old]

    def carried(self, known: Iterable[tuple[str, int]]) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """The same for what is carried per row."""
        return [((name, group), (name, self.number)) for name, group in known if group == self.old_number]


@dataclass(frozen=True)
class MovedRows:
    """What a layer of a merged batch receives from the same layer of an old batch."""

    layer: Any  # of the same class
    old: Tensor  # (r,) int64: rows there
    new: Tensor  # (r,) int64: the same rows here
    groups: Sequence[MovedGroup]
    runs: Sequence[tuple[slice, slice]]  # the same rows there and here, where neighbours stay neighbours

    def move_carried(self, layer: Any) -> None:
        """Copy what policies carry per row into the merged ``layer``."""
        for group in self.groups:
            for old, new in group.carried(self.layer.carried):
                source = self.layer.carried[old]
                target = layer.room_to_carry(new, group.rows.stop - group.rows.start, source)
                target[group.new_rows] = source[group.old_rows]


States = Mapping[StateKey, Tensor]  # (r, H, fill + m, …) each: slots, then the chunk


class SlotLayer(CacheLayerMixin):
    """One layer's slots. ``fill`` is a host number: no slot at or beyond it is in use by any row."""

    is_compileable = False
    is_sliding = False

    def __init__(self, capacity: int, tail: int, storage: KVStorage, index: int) -> None:
        super().__init__()
        self.capacity = capacity  # N, slots that may persist
        self.tail = max(1, tail)  # B, widest chunk after the first; its last slot takes writes that must vanish
        self.storage, self.index = storage, index
        self.fill = 0
        self.states: dict[StateKey, Tensor] = {}  # (r, H, N + B, …) each
        self.carried: dict[tuple[str, int], Tensor] = {}  # by name and number of the group: (r, …) each
        self.chunk_keys: Tensor  # (R, H, m, D), what the model just handed over
        self.chunk_values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate once, at the first chunk, when shapes, dtype and device are known."""
        self._allocate(key_states, value_states, len(key_states))

    def _allocate(self, keys: Tensor, values: Tensor, rows: int) -> None:
        self.storage.allocate(keys, values, rows, self.capacity + self.tail)
        self.keys, self.values = self.storage.keys[:, self.index], self.storage.values[:, self.index]
        self.positions, self.first = self.storage.positions[:, self.index], self.storage.first[:, self.index]
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Called by the model: (R, H, m, D) of the chunk in, (R, H, fill + m, D) to attend over out."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.chunk_keys, self.chunk_values = key_states, value_states
        if self.fill:
            stop = self.fill + key_states.shape[2]
            self.keys[:, :, self.fill : stop] = key_states
            self.values[:, :, self.fill : stop] = value_states
        return self.attended()

    @property
    def slot_positions(self) -> Tensor:
        """(R, H, fill) int32, -1 = empty."""
        return self.positions[..., : self.fill]

    def state(self, key: StateKey) -> Tensor:
        """(r, H, fill, …): a group's state for the slots, without the chunk; zeros before the first chunk."""
        if key not in self.states:
            rows = key.rows.stop - key.rows.start
            self.states[key] = self.storage.state(key.name, key.group, rows, key.kind)[:, self.index]
        return self.states[key][:, :, : self.fill]

    def room_to_carry(self, key: tuple[str, int], rows: int, like: Tensor) -> Tensor:
        """(r, …), shaped as ``like``, for what a group's policy carries per row. To be written to."""
        self.carried[key] = self.storage.room_to_carry(key, rows, like)[:, self.index]
        return self.carried[key]

    def attended(self) -> tuple[Tensor, Tensor]:
        """Keys and values (R, H, fill + m, D) as `update` returned them for the current chunk."""
        if self.fill == 0:
            return self.chunk_keys, self.chunk_values
        stop = self.fill + self.chunk_keys.shape[2]
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def copy_survivors(
        self, other: SlotLayer, source: Tensor, kept: Tensor, widest_target: int, positions: Tensor, states: States
    ) -> None:
        """Begin with the survivors of a chunk in another layer, whose rows ``source`` (R,) become the rows of this one.

        ``kept``: (R, H, n) bool over the other layer's slots and chunk, ``positions`` (R, H, n) theirs, ``states``
        of these rows over the same slots; ``widest_target`` as in `evict`. Survivors are written in order of slot.
        """
        keys, values = other.attended()
        rows, heads, slots = kept.shape
        self._allocate(keys, values, rows)
        self.fill = widest_target
        rank = torch.where(kept, kept.cumsum(-1) - 1, self.fill).clamp(max=self.fill)
        index = torch.zeros(rows, heads, self.fill + 1, dtype=torch.long, device=kept.device)
        index.scatter_(-1, rank, torch.arange(slots, device=kept.device).expand_as(rank))
        index = index[..., : self.fill]
        head = source.view(-1, 1, 1) * heads + torch.arange(heads, device=kept.device).view(1, -1, 1)
        vectors = (head * slots + index).flatten()  # among all of the other layer
        empty = torch.arange(self.fill, device=kept.device) >= kept.sum(-1, keepdim=True)
        self.keys[:, :, : self.fill] = keys.flatten(0, 2).index_select(0, vectors).view(*index.shape, -1)
        self.values[:, :, : self.fill] = values.flatten(0, 2).index_select(0, vectors).view(*index.shape, -1)
        self.positions[..., : self.fill] = positions.gather(-1, index).masked_fill(empty, -1)
        self.positions[..., self.fill :] = -1
        for key, state in states.items():
            self.state(key)
            here = index[key.rows].view(*index[key.rows].shape, *(1 for _ in key.kind.shape))
            self.states[key][:, :, : self.fill] = state.gather(2, here.expand(*here.shape[:3], *key.kind.shape))

    def arrived(self, chunk_positions: Tensor) -> None:
        """Take over a chunk that `update` put in the tail of another view of these slots. Positions are (R, m)."""
        tail = slice(self.fill, self.fill + chunk_positions.shape[-1])
        self.chunk_keys, self.chunk_values = self.keys[:, :, tail].clone(), self.values[:, :, tail].clone()
        self.positions[..., tail] = chunk_positions.unsqueeze(1)

    def append(self, chunk_positions: Tensor, states: States) -> None:
        """Every row keeps the whole chunk right behind its slots: the case without eviction and without padding.

        ``chunk_positions``: (R, m) int32.
        """
        here = slice(self.fill, self.fill + chunk_positions.shape[-1])
        if self.fill == 0:
            self.keys[:, :, here] = self.chunk_keys
            self.values[:, :, here] = self.chunk_values
        self.positions[:, :, here] = chunk_positions.unsqueeze(1)
        for key, state in states.items():
            self.states[key][:, :, : here.stop] = state
        self.fill = here.stop

    def evict(self, kept: Tensor, targets: Tensor, widest_target: int, chunk_positions: Tensor, states: States) -> None:
        """Evict: drop what is not ``kept`` and move the chunk's survivors into free slots below each row's target.

        ``kept``: (R, H, fill + m) bool. ``targets``: (R, 1, 1), slots that a row persists from now on, and
        ``widest_target`` their maximum. At most m copies per head. A survivor for which no slot is free is lost:
        storage cannot overflow, and the ledger, which counts ``kept``, reports it.
        """
        destination = self._destinations(kept, targets, widest_target, chunk_positions.shape[-1])  # (R, H, m)
        self._place(destination)
        self.slot_positions.masked_fill_(~kept[..., : self.fill], -1)
        self.positions.scatter_(2, destination, chunk_positions.unsqueeze(1).expand_as(destination).contiguous())
        self.positions[..., widest_target:].fill_(-1)
        for key, state in states.items():
            self.states[key][:, :, : self.fill] = state[:, :, : self.fill]
            chunk = state[:, :, self.fill :]
            index = destination[key.rows].view(*chunk.shape[:3], *(1 for _ in key.kind.shape)).expand_as(chunk)
            self.states[key].scatter_(2, index, chunk)
        self.fill = widest_target

    def _place(self, destination: Tensor) -> None:
        """Copy the chunk's keys and values, whole vectors, to these (R, H, m) slots."""
        flat = (destination + self.first).flatten()
        for slots, chunk in ((self.storage.keys, self.chunk_keys), (self.storage.values, self.chunk_values)):
            slots.view(-1, slots.shape[-1]).index_copy_(0, flat, chunk.reshape(-1, slots.shape[-1]))

    def _destinations(self, kept: Tensor, targets: Tensor, widest_target: int, width: int) -> Tensor:
        """(R, H, m): the k-th survivor of a head goes to its k-th free slot; everything else to the trash slot."""
        trash = self.capacity + self.tail - 1
        old, new = kept[..., : self.fill], kept[..., self.fill :]
        index = torch.arange(widest_target, device=kept.device)
        free = (index < targets).expand(*kept.shape[:2], -1).clone()
        known = min(self.fill, widest_target)
        free[..., :known] &= ~old[..., :known]
        if width == 1:  # a decode step: the first free slot, if the token stays and there is one
            first = free.view(torch.uint8).argmax(-1, keepdim=True)
            return torch.where(new & free.gather(-1, first), first, trash)
        table = torch.full((*kept.shape[:2], width + 1), trash, device=kept.device)
        free_rank = torch.where(free, free.cumsum(-1) - 1, width).clamp(max=width)
        table.scatter_(-1, free_rank, index.expand_as(free))
        table[..., width].fill_(trash)
        return table.gather(-1, torch.where(new, new.cumsum(-1) - 1, width))

    def merge_from(self, moved: Sequence[MovedRows], rows: int, fill: int) -> None:
        """Begin with ``rows`` rows of other layers, in the slots in which they are."""
        first = moved[0].layer
        self._allocate(first.keys, first.values, rows)
        self.fill = fill
        for each in moved:
            old_layer = each.layer
            used = slice(0, min(old_layer.fill, self.capacity + self.tail))
            for name in ("keys", "values", "positions"):
                for old_rows, new_rows in each.runs:
                    getattr(self, name)[new_rows, :, used] = getattr(old_layer, name)[old_rows, :, used]
            for group in each.groups:
                for old, new in group.states(old_layer.states):
                    self.state(new)
                    self.states[new][group.new_rows, :, used] = old_layer.states[old][group.old_rows, :, used]
            each.move_carried(self)

    def release(self) -> None:
        """Release the model's own tensors, which in a one-shot prompt are the whole prompt."""
        del self.chunk_keys, self.chunk_values

    def held(self) -> Tensor:
        """(R, H) int64: slots in use, counted on the tensor."""
        return (self.positions >= 0).sum(-1)

    @property
    def slot_bytes(self) -> int:
        """Bytes of K and V of one slot of one head."""
        return self.keys[0, 0, 0].nbytes + self.values[0, 0, 0].nbytes

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
    """One layer object per layer of the model, uniform (`SlotLayer`) or ragged."""

    def carried_bytes(self, groups: Sequence[slice]) -> list[int]:
        """Bytes of the tensors that policies carry per row, for each row, over all layers. ``groups``: rows of each."""
        total = [0] * groups[-1].stop
        for layer in self.layers:
            for (_, group), tensor in layer.carried.items():
                for row in range(groups[group].start, groups[group].stop):
                    total[row] += tensor[0].nbytes
        return total
