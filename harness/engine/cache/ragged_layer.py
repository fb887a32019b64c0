"""A layer whose rows and heads hold different numbers of slots, and no more memory than that.

K, V, positions and policy state lie packed, one row and head behind the other: ``keys: (slots in use, D)``. For
attention they are unpacked into a padded workspace of this one layer, (R, H, fullest + m, D), which is released when
the layer has evicted. What persists is what the policy kept; ``tensor.nbytes`` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from harness.engine.cache.slot_layer import MovedRows, SlotLayer, StateKey, States


class RaggedLayer(CacheLayerMixin):
    """One layer's packed slots. ``fill`` is the number of slots of the fullest row and head."""

    is_compileable = False
    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.fill = 0
        self.states: dict[StateKey, Tensor] = {}  # packed like keys
        self.carried: dict[tuple[str, int], Tensor] = {}  # by name and number of the group: (r, …) each
        self.chunk_keys: Tensor  # (R, H, m, D), what the model just handed over
        self.wide_keys: Tensor  # (R, H, fill + m, D) workspace
        self.wide_values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate nothing: the first slots are made when the first chunk has been evicted from."""
        rows, heads, _, width = key_states.shape
        self.counts = torch.zeros(rows, heads, dtype=torch.long, device=key_states.device)
        self.keys = key_states.new_zeros(0, width)
        self.values = value_states.new_zeros(0, value_states.shape[-1])
        self.positions = torch.zeros(0, dtype=torch.int32, device=key_states.device)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Called by the model: (R, H, m, D) of the chunk in, (R, H, fill + m, D) to attend over out."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.chunk_keys = key_states
        self.wide_keys = self._with_chunk(self.keys, key_states)
        self.wide_values = self._with_chunk(self.values, value_states)
        return self.wide_keys, self.wide_values

    @property
    def slot_positions(self) -> Tensor:
        """(R, H, fill) int32, -1 = empty."""
        return self._unpacked(self.positions, empty=-1)

    def state(self, key: StateKey) -> Tensor:
        """(r, H, fill, …): a group's state for the slots, without the chunk; zeros before the first chunk."""
        if key not in self.states:
            rows = self.counts[key.rows]
            return self.keys.new_zeros(*rows.shape, self.fill, *key.kind.shape, dtype=key.kind.dtype)
        return self._unpacked(self.states[key], rows=key.rows)

    def room_to_carry(self, key: tuple[str, int], rows: int, like: Tensor) -> Tensor:
        """(r, …), shaped as ``like``, for what a group's policy carries per row. To be written to."""
        known = self.carried.get(key)
        if known is None or known.shape != (rows, *like.shape[1:]):
            self.carried[key] = like.new_zeros(rows, *like.shape[1:])
        return self.carried[key]

    def evict(self, kept: Tensor, targets: Tensor, widest_target: int, chunk_positions: Tensor, states: States) -> None:
        """Evict: store exactly what is ``kept``, (R, H, fill + m) bool. Targets matter to uniform layers only."""
        chunk = chunk_positions.unsqueeze(1).expand(-1, kept.shape[1], -1)
        positions = torch.cat([self.slot_positions, chunk], -1)
        self.states = {key: _picked(state, kept[key.rows]) for key, state in states.items()}
        wide = (self.wide_keys, self.wide_values, positions)
        self.keys, self.values, self.positions = (_picked(each, kept) for each in wide)
        self.counts = kept.sum(-1)
        self.fill = int(self.counts.max())

    def copy_survivors(
        self, other: SlotLayer, source: Tensor, kept: Tensor, widest_target: int, positions: Tensor, states: States
    ) -> None:
        """Begin with the survivors of a chunk in another layer: see `SlotLayer.copy_survivors`."""
        keys, values = other.attended()
        row, head, slot = kept.nonzero(as_tuple=True)
        self.keys, self.values = keys[source[row], head, slot], values[source[row], head, slot]
        self.positions = positions[kept]
        self.states = {key: state[kept[key.rows]] for key, state in states.items()}
        self.counts = kept.sum(-1)
        self.fill = int(self.counts.max())
        self.is_initialized = True

    def merge_from(self, moved: Sequence[MovedRows], rows: int, fill: int) -> None:
        """Begin with ``rows`` rows of other layers, with the slots that they hold."""
        self.is_initialized = True
        whole = [(each.layer.counts, each.old, each.new) for each in moved]
        self.keys, self.values, self.positions = (
            _packed([(getattr(each.layer, name), *counts) for each, counts in zip(moved, whole, strict=True)], rows)
            for name in ("keys", "values", "positions")
        )
        self.counts = torch.stack(_in_new_order(whole, rows))
        self.fill = int(self.counts.max())
        parts: dict[StateKey, list[Packed]] = {}
        for each in moved:
            for group in each.groups:
                for old, new in group.states(each.layer.states):
                    counts = each.layer.counts[old.rows]
                    parts.setdefault(new, []).append((each.layer.states[old], counts, group.old_rows, group.new_rows))
            each.move_carried(self)
        self.states = {key: _packed(packed, key.rows.stop - key.rows.start) for key, packed in parts.items()}

    def append(self, chunk_positions: Tensor, states: States) -> None:
        """Keep everything but padding."""
        chunk = chunk_positions.unsqueeze(1).expand(-1, self.counts.shape[1], -1)
        kept = torch.cat([self.slot_positions, chunk], -1) >= 0
        self.evict(kept, self.counts, 0, chunk_positions, states)

    def release(self) -> None:
        """Release the workspace and the model's own tensors."""
        del self.chunk_keys, self.wide_keys, self.wide_values

    def held(self) -> Tensor:
        """(R, H) int64: slots in use."""
        return self.counts

    @property
    def slot_bytes(self) -> int:
        """Bytes of K and V of one slot of one head."""
        return (self.keys.shape[-1] + self.values.shape[-1]) * self.keys.element_size()

    def get_seq_length(self) -> int:
        """Slots of the fullest row and head; never a position."""
        return self.fill

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots visible to the next chunk, and the offset 0."""
        return self.fill + query_length, 0

    def get_max_length(self) -> int:
        """No maximum: what persists is what the policy keeps."""
        return -1

    def _unpacked(self, packed: Tensor, empty: int = 0, rows: slice = slice(None)) -> Tensor:
        """(slots, …) to (r, H, fill, …), padded with ``empty``."""
        counts = self.counts[rows]
        source = torch.cat([packed, packed.new_full((1, *packed.shape[1:]), empty)])
        return source.index_select(0, _places(counts, self.fill).flatten()).view(
            *counts.shape, self.fill, *packed.shape[1:]
        )

    def _with_chunk(self, packed: Tensor, chunk: Tensor) -> Tensor:
        """(slots, D) and a chunk (R, H, m, D) as (R, H, fill + m, D), with zeros where a slot is empty."""
        rows, heads, tokens, width = chunk.shape
        source = torch.cat([packed, packed.new_zeros(1, width), chunk.reshape(-1, width)])
        of_chunk = torch.arange(rows * heads * tokens, device=chunk.device).view(rows, heads, tokens)
        places = torch.cat([_places(self.counts, self.fill), len(packed) + 1 + of_chunk], -1)
        return source.index_select(0, places.flatten()).view(rows, heads, -1, width)


def _places(counts: Tensor, fill: int) -> Tensor:
    """(R, H, fill) int64: which packed slot each padded one is, and for an empty one the number of packed slots."""
    ends = counts.flatten().cumsum(0).view(counts.shape)
    slot = torch.arange(fill, device=counts.device)
    return torch.where(slot < counts.unsqueeze(-1), (ends - counts).unsqueeze(-1) + slot, ends.flatten()[-1])


def _picked(wide: Tensor, kept: Tensor) -> Tensor:
    """(R, H, N, …) to (slots, …): those that are kept, (R, H, N) bool, row by row and head by head."""
    return wide.flatten(0, 2).index_select(0, kept.flatten().nonzero().squeeze(-1))


Packed = tuple[Tensor, Tensor, Tensor, Tensor]  # slots, counts (R, H), the rows that move, their new numbers


def _packed(parts: Sequence[Packed], rows: int) -> Tensor:
    """(slots, …) of ``rows`` rows, packed in their new order."""
    by_row = [(torch.split(packed, counts.sum(-1).tolist()), old, new) for packed, counts, old, new in parts]
    return torch.cat(_in_new_order(by_row, rows))


def _in_new_order(parts: Sequence[tuple[Sequence[Tensor] | Tensor, Tensor, Tensor]], rows: int) -> list[Tensor]:
    """What the parts hold of each row, in the new order of rows."""
    placed = {
        target: by_row[row]
        for by_row, old, new in parts
        for row, target in zip(old.tolist(), new.tolist(), strict=True)
    }
    return [placed[row] for row in range(rows)]
