"""A layer whose rows and heads hold different numbers of slots, and no more memory than that.

K, V, positions and policy state lie packed, one row and head behind the other: ``keys: (slots in use, D)``. For
attention they are unpacked into a padded workspace of this one layer, (R, H, fullest + m, D), which goes when the
layer has settled. What persists is what the policy kept; ``tensor.nbytes`` shows it.
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
        """Nothing is held before the first chunk has settled."""
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
        self.wide_keys = torch.cat([self._unpacked(self.keys), key_states], 2)
        self.wide_values = torch.cat([self._unpacked(self.values), value_states], 2)
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

    def absorb(
        self, kept: Tensor, targets: Tensor, widest_target: int, chunk_positions: Tensor, states: States
    ) -> None:
        """Keep exactly what is ``kept``: (R, H, fill + m) bool. Targets are the uniform layer's business."""
        chunk = chunk_positions.unsqueeze(1).expand(-1, kept.shape[1], -1)
        positions = torch.cat([self.slot_positions, chunk], -1)
        self.states = {key: state[kept[key.rows]] for key, state in states.items()}
        self.keys, self.values, self.positions = self.wide_keys[kept], self.wide_values[kept], positions[kept]
        self.counts = kept.sum(-1)
        self.fill = int(self.counts.max())

    def adopt(
        self, shared: SlotLayer, source: Tensor, kept: Tensor, widest_target: int, positions: Tensor, states: States
    ) -> None:
        """Begin with what the rows ``source`` (R,) of a shared layer hand over: see `SlotLayer.adopt`."""
        keys, values = shared.attended()
        row, head, slot = kept.nonzero(as_tuple=True)
        self.keys, self.values = keys[source[row], head, slot], values[source[row], head, slot]
        self.positions = positions[kept]
        self.states = {key: state[kept[key.rows]] for key, state in states.items()}
        self.counts = kept.sum(-1)
        self.fill = int(self.counts.max())
        self.is_initialized = True

    def take_over(self, legacies: Sequence[MovedRows], rows: int, fill: int) -> None:
        """Begin with ``rows`` rows that were in other layers, each where it stands."""
        self.is_initialized = True
        whole = [(each.layer.counts, each.old, each.new) for each in legacies]
        self.keys, self.values, self.positions = (
            _packed([(getattr(each.layer, name), *where) for each, where in zip(legacies, whole, strict=True)], rows)
            for name in ("keys", "values", "positions")
        )
        self.counts = torch.stack(_by_place(whole, rows))
        self.fill = int(self.counts.max())
        parts: dict[StateKey, list[Packed]] = {}
        for legacy in legacies:
            for heir in legacy.heirs:
                for old, new in heir.states(legacy.layer.states):
                    counts = legacy.layer.counts[old.rows]
                    parts.setdefault(new, []).append((legacy.layer.states[old], counts, heir.local, heir.places))
            legacy.carry_on(self.carried)
        self.states = {key: _packed(each, key.rows.stop - key.rows.start) for key, each in parts.items()}

    def append(self, chunk_positions: Tensor, states: States) -> None:
        """Keep everything, padding aside."""
        chunk = chunk_positions.unsqueeze(1).expand(-1, self.counts.shape[1], -1)
        kept = torch.cat([self.slot_positions, chunk], -1) >= 0
        self.absorb(kept, self.counts, 0, chunk_positions, states)

    def release(self) -> None:
        """Let go of the workspace and of the model's own tensors."""
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
        here = torch.arange(self.fill, device=packed.device) < counts.unsqueeze(-1)
        wide = packed.new_full((*counts.shape, self.fill, *packed.shape[1:]), empty)
        wide[here] = packed
        return wide


Packed = tuple[Tensor, Tensor, Tensor, Tensor]  # slots, counts (R, H), the rows that go on, their new places


def _packed(parts: Sequence[Packed], rows: int) -> Tensor:
    """(slots, …) of ``rows`` rows, packed in their new order."""
    apart = [(torch.split(packed, counts.sum(-1).tolist()), old, new) for packed, counts, old, new in parts]
    return torch.cat(_by_place(apart, rows))


def _by_place(parts: Sequence[tuple[Sequence[Tensor] | Tensor, Tensor, Tensor]], rows: int) -> list[Tensor]:
    """What each part has for its rows, by new place."""
    placed = {
        place: by_row[row] for by_row, old, new in parts for row, place in zip(old.tolist(), new.tolist(), strict=True)
    }
    return [placed[place] for place in range(rows)]
