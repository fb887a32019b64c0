"""Scissorhands as HashEvict evaluates it: how often a slot's attention reached the uniform level (section
3.11).
"""

import numpy as np

from tests.reference.attention import column_sums, reduce_group
from tests.reference.policy import HeadView, LayerView, Policy, first_positions, last_positions
from tests.reference.selection import refuse_nan
from tests.reference.snapkv import snap16x5


def bits(attention: np.ndarray, filled: int) -> list[bool]:
    """(n,) group-mean attention -> is each slot at or above the uniform level 1 / filled?"""
    refuse_nan(attention)
    return [float(a) >= 1.0 / filled for a in attention]


class Scissorhands(Policy):
    """S = set bits / clamp(observations, 1, history). EAA in decode, one eviction per step.

    The ring index is a step counter shared by all slots: 0 is the prompt (one observation), then one per decode
    step. A new occupant starts with an empty ring. The released code protects by setting the score to 1, so
    that a perfect unprotected record ties with a sink; here protection is the mask of section 1.3.
    """

    def __init__(
        self, history: int = 400, recent: int = 10, sink: int = 4, prompt_step: str = "snap16x5", **common: str
    ) -> None:
        defaults = {"prefill_evict": "once_after_prompt", "order": "EAA"}
        super().__init__(**defaults | common)
        self.history, self.recent, self.sink, self.prompt_step = history, recent, sink, prompt_step
        self.step = 0

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        super().begin_layer(index, n_kv_heads, group, budget)
        self.step = 0

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.sink)

    def others(self, head: HeadView) -> set[int]:
        return last_positions(head, self.recent)

    def score(self, head: HeadView) -> np.ndarray:
        ring, count = self.tables[head.g]["ring"], self.tables[head.g]["count"]
        return np.array([sum(ring[p].values()) / min(max(count[p], 1), self.history) for p in head.pos])

    def observe(self, g: int, p: int, bit: bool) -> None:
        """Write one bit at the shared ring index."""
        self.tables[g]["ring"].setdefault(p, {})[self.step % self.history] = bit
        self.tables[g]["count"][p] = self.tables[g]["count"].get(p, 0) + 1

    def update(self, view: LayerView) -> None:
        for head in view.heads:
            received = reduce_group(column_sums(head.attention, len(view.q_pos)), self.gqa)
            if view.prompt:
                table = self.tables[head.g]["received"]
                for j, p in enumerate(head.pos):
                    table[p] = table.get(p, 0.0) + float(received[j])
            else:
                for p, bit in zip(head.pos, bits(received, len(head.pos)), strict=True):
                    self.observe(head.g, p, bit)
        if not view.prompt:
            self.step += 1

    def after_eviction(self, view: LayerView, kept: list[list[int]]) -> None:
        """The prompt's single observation, against the number of slots filled after the prompt step."""
        if not view.prompt_done:
            return
        for g, pos in enumerate(kept):
            table = self.tables[g].pop("received")
            mean = np.array([table[p] / (view.total - p) for p in pos])
            for p, bit in zip(pos, bits(mean, len(pos)), strict=True):
                self.observe(g, p, bit)
        self.step += 1

    def select_head(self, head: HeadView, budget: int | None) -> list[int]:
        if self.prompt_step == "snap16x5" and head.layer.prompt and budget is not None and len(head.pos) > budget:
            kept, score = snap16x5(head, budget, self.sink)
            self.scores[head.g] = dict(zip(head.pos, map(float, score), strict=True))
            return kept
        return super().select_head(head, budget)
