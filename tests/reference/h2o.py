"""H2O: accumulated attention (policies.md section 3.4; KeyDiff appendix A.1).

acc_new[j] = (acc_old[j] if j is an old slot else 0) + sum of the chunk's attention column j.
"""

import numpy as np

from tests.reference.attention import column_sums
from tests.reference.policy import HeadView, LayerView, Policy, first_positions, last_slots
from tests.reference.selection import floor_of
from tests.reference.snapkv import snap16x5


class H2O(Policy):
    """accumulate: 'sum' of attention received, or its 'mean' per observation (cold-compress).

    For the mean, the whole prompt is one observation (attention received divided by the number of queries that
    could see the token) and every decode step is one more. recent: protected most recent slots, a count or a
    fraction of the budget. prompt_step: 'snap16x5' compresses a long prompt by that rule instead of by
    accumulators.
    """

    def __init__(
        self,
        accumulate: str = "sum",
        recent: int | float = 0,
        sink: int = 0,
        prompt_step: str = "none",
        **common: str,
    ) -> None:
        super().__init__(**common)
        self.accumulate, self.recent, self.sink, self.prompt_step = accumulate, recent, sink, prompt_step

    def update(self, view: LayerView) -> None:
        rows = len(view.q_pos)
        for head in view.heads:
            gained = self.reduced(head, lambda x: column_sums(x.attention, rows))
            per_head = column_sums(head.attention, rows)
            acc, seen, count = (self.tables[head.g][name] for name in ("acc", "seen", "count"))
            each = self.tables[head.g]["acc_heads"]
            for j, p in enumerate(head.pos):
                acc[p] = acc.get(p, 0.0) + float(gained[j])
                each[p] = each.get(p, 0.0) + per_head[:, j]
                seen[p] = seen.get(p, 0) + sum(1 for i in view.q_pos if i >= p)
                count[p] = count.get(p, 0) + (0 if view.prompt else 1)
                if self.accumulate == "mean" and view.prompt_done:
                    acc[p], each[p], count[p] = acc[p] / seen[p], each[p] / seen[p], 1

    def divisor(self, head: HeadView, p: int) -> int:
        if self.accumulate == "sum":
            return 1
        # Inside the prompt the running mean is over the queries that saw the token so far.
        count = self.tables[head.g]["count"][p]
        return count if count else self.tables[head.g]["seen"][p]

    def score_heads(self, head: HeadView) -> np.ndarray:
        """(G, n): accumulators of each query head."""
        each = self.tables[head.g]["acc_heads"]
        return np.array([each[p] / self.divisor(head, p) for p in head.pos]).T

    def score(self, head: HeadView) -> np.ndarray:
        return np.array([self.tables[head.g]["acc"][p] / self.divisor(head, p) for p in head.pos])

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.sink)

    def others(self, head: HeadView) -> set[int]:
        if isinstance(self.recent, float):
            return last_slots(head, floor_of(self.recent, self.budget or 0))
        return last_slots(head, self.recent)

    def select_head(self, head: HeadView, budget: int | None) -> list[int]:
        if budget is None:
            return list(head.pos)
        if self.prompt_step == "snap16x5" and head.layer.prompt and len(head.pos) > budget:
            kept, score = snap16x5(head, budget, self.sink)
            self.scores[head.g] = dict(zip(head.pos, map(float, score), strict=True))
            return kept
        return super().select_head(head, budget)
