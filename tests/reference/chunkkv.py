"""ChunkKV: the mean score of a chunk of the text for all its members (policies.md section 3.22)."""

import numpy as np

from tests.reference.policy import HeadView, LayerView, Policy


class ChunkKV(Policy):
    """Wraps a base policy; the schedule and what is protected are the base's."""

    def __init__(self, base: Policy, size: int) -> None:
        super().__init__(
            gqa=base.gqa, prefill_evict=base.prefill_evict, decode_evict=base.decode_evict, order=base.order
        )
        self.base, self.size = base, size

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        super().begin_layer(index, n_kv_heads, group, budget)
        self.base.begin_layer(index, n_kv_heads, group, budget)

    def update(self, view: LayerView) -> None:
        self.base.update(view)

    def forget(self, g: int, gone: set[int]) -> None:
        self.base.forget(g, gone)

    def score(self, head: HeadView) -> np.ndarray:
        own = self.base.score(head)
        members: dict[int, list[float]] = {}
        for p, score in zip(head.pos, own, strict=True):
            members.setdefault(p // self.size, []).append(float(score))
        return np.array([sum(members[p // self.size]) / len(members[p // self.size]) for p in head.pos])

    def sinks(self, head: HeadView) -> set[int]:
        return self.base.sinks(head)

    def others(self, head: HeadView) -> set[int]:
        return self.base.others(head)
