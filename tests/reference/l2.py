"""L2 norm of keys: low norm is kept, high norm is evicted (policies.md section 3.13)."""

from collections.abc import Collection

import numpy as np

from tests.reference.policy import HeadView, LayerView, Policy, first_positions, last_positions


class L2(Policy):
    """S[g, j] = -|k_gj|. Layers in `skip_layers` stay full. order 'EAA' for the HashEvict suite's decode."""

    def __init__(self, sink: int = 0, recent: int = 0, skip_layers: Collection[int] = (), **common: str) -> None:
        super().__init__(**common)
        self.sink, self.recent, self.skip_layers = sink, recent, set(skip_layers)

    def score(self, head: HeadView) -> np.ndarray:
        return np.array([-float(np.sqrt(np.dot(key, key))) for key in head.k])

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.sink)

    def others(self, head: HeadView) -> set[int]:
        return last_positions(head, self.recent)

    def select(self, view: LayerView, budget: int | None) -> list[list[int]]:
        return super().select(view, None if view.index in self.skip_layers else budget)
