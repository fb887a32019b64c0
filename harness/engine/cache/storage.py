"""The memory of a batch's slots: one tensor each for K, V, positions and every policy state, over all layers at once.

Each `SlotLayer` works on its own part. The layers of a row lie side by side, so that a policy can be shown all layers
of its rows in one view, as more rows (`harness.engine.batch.layer_batch`), without gathering anything.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.engine.requests import EngineError
from policies.scorer import SlotState


class KVStorage:
    """Slots of ``layers`` layers. Allocated when the first layer knows its shapes; never grows."""

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.keys: Tensor  # (R, L, H, slots, D)
        self.values: Tensor
        self.positions: Tensor  # (R, L, H, slots) int32, -1 = empty
        self.first: Tensor  # (R, L, H, 1) int64: index of a head's first slot among all slots of the storage
        self.states: dict[tuple[str, int], Tensor] = {}  # by name and group: (r, L, H, slots, …)
        self.carried: dict[tuple[str, int], Tensor] = {}  # what policies carry per row, likewise: (r, L, …)
        self.is_allocated = False

    def allocate(self, keys: Tensor, values: Tensor, rows: int, slots: int) -> None:
        """Allocate ``rows`` rows, with the heads, widths, types and device of ``keys`` and ``values`` (·, H, ·, D).

        Raises `EngineError` where a layer differs from the first.
        """
        shape = (rows, self.layers, keys.shape[1], slots)
        if not self.is_allocated:
            self.keys = keys.new_zeros(*shape, keys.shape[-1])
            self.values = values.new_zeros(*shape, values.shape[-1])
            self.positions = torch.full(shape, -1, dtype=torch.int32, device=keys.device)
            heads = torch.arange(self.positions[..., 0].numel(), device=keys.device)
            self.first = heads.view(*shape[:-1], 1) * slots
            self.is_allocated = True
        elif self.keys.shape != (*shape, keys.shape[-1]) or self.values.shape != (*shape, values.shape[-1]):
            raise EngineError(
                "This model's layers differ in their number of KV heads or in head dimension, which the engine does "
                "not hold: choose a model whose layers are alike."
            )

    def state(self, name: str, group: int, rows: int, kind: SlotState) -> Tensor:
        """(r, L, H, slots, …), zeros at first use."""
        if (name, group) not in self.states:
            self.states[name, group] = self.keys.new_zeros(rows, *self.keys.shape[1:-1], *kind.shape, dtype=kind.dtype)
        return self.states[name, group]

    def room_to_carry(self, key: tuple[str, int], rows: int, like: Tensor) -> Tensor:
        """(r, L, …) for tensors shaped as ``like`` (·, …); zeros at first use, and where the shape has changed."""
        known = self.carried.get(key)
        if known is None or known.shape[2:] != like.shape[1:] or len(known) != rows:
            self.carried[key] = like.new_zeros(rows, self.layers, *like.shape[1:])
        return self.carried[key]
