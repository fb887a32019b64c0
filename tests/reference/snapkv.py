"""SnapKV: smoothed attention of an observation window (policies.md section 3.6; KeyDiff appendix A.1)."""

import numpy as np

from tests.reference.attention import attend, column_sums, group_mean, reduce_group
from tests.reference.policy import HeadView, LayerView, Policy, first_positions, last_slots
from tests.reference.selection import keep, largest


def pool(values: np.ndarray, kernel: int, kind: str) -> np.ndarray:
    """(n,) -> (n,): pooling with stride 1 and an odd kernel centred on each slot.

    'avg': zero padding, divisor always `kernel` (edges are damped); 'avg_nopad': divisor counts only real
    slots; 'max': padding never wins; 'none': unchanged. The three conventions differ on purpose (section 3.6).
    """
    if kind not in {"avg", "avg_nopad", "max", "none"}:
        raise ValueError(f"unknown pooling {kind!r}")
    if kernel % 2 != 1:
        raise ValueError("the pooling kernel must be odd")
    if kind == "none":
        return np.array(values, dtype=np.float64)
    n, half = len(values), kernel // 2
    out = np.zeros(n)
    for j in range(n):
        near = [float(values[i]) for i in range(j - half, j + half + 1) if 0 <= i < n]
        if kind == "max":
            out[j] = largest(near)
        else:
            out[j] = sum(near) / (kernel if kind == "avg" else len(near))
    return out


class SnapKV(Policy):
    """S = pool(column sums of the last w rows); the w most recent slots are protected and count in N.

    window_source: 'chunk' takes the last min(w, m) rows of the current chunk (A-06); 'carry' keeps the last w
    queries of the text and recomputes their attention over the slots present. pool_order: group mean before
    pooling ('after_mean') or after it ('before_mean'). pool_over: 'all' pools over every slot (block mode,
    where CAOTE also needs a score for the window), 'prefix' over the slots before the window (the original).
    policies.md gives both readings but no switch, so None follows the schedule: 'prefix' when the prompt is
    compressed once.
    """

    def __init__(
        self,
        window: int = 32,
        kernel: int = 7,
        pool: str = "avg",
        window_source: str = "chunk",
        pool_order: str = "after_mean",
        pool_over: str | None = None,
        **common: str,
    ) -> None:
        super().__init__(**common)
        self.window, self.kernel, self.pool = window, kernel, pool
        self.window_source, self.pool_order = window_source, pool_order
        if pool_over is None:
            pool_over = "prefix" if self.prefill_evict == "once_after_prompt" else "all"
        self.pool_over = pool_over
        self.ring: list[tuple[int, np.ndarray]] = []

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        super().begin_layer(index, n_kv_heads, group, budget)
        self.ring = []

    def update(self, view: LayerView) -> None:
        for i, p in enumerate(view.q_pos):
            self.ring.append((p, np.concatenate([head.q[:, i] for head in view.heads])))
        self.ring = self.ring[-self.window :]

    def others(self, head: HeadView) -> set[int]:
        return last_slots(head, self.window)

    def window_sums(self, head: HeadView) -> np.ndarray:
        """(G, n): attention from the observation window to every slot, summed over rows, per query head."""
        if self.window_source == "chunk":
            return column_sums(head.attention, self.window)
        G = head.q.shape[0]
        rows = np.array([q[head.g * G : (head.g + 1) * G] for _, q in self.ring]).transpose(1, 0, 2)
        probs, _ = attend(rows, [p for p, _ in self.ring], head.k, head.v, head.pos, head.layer.scale)
        return column_sums(probs, self.window)

    def smooth(self, sums: np.ndarray) -> np.ndarray:
        """(n,) -> (n,). With pool_over = 'prefix' the window's own scores are left at 0: it is protected
        anyway.
        """
        if self.pool_over == "all":
            return pool(sums, self.kernel, self.pool)
        out = np.zeros(len(sums))
        prefix = max(len(sums) - self.window, 0)
        out[:prefix] = pool(sums[:prefix], self.kernel, self.pool)
        return out

    def score_heads(self, head: HeadView) -> np.ndarray:
        """(G, n): the score each query head would give on its own."""
        return np.array([self.smooth(row) for row in self.window_sums(head)])

    def score(self, head: HeadView) -> np.ndarray:
        if self.pool_order == "before_mean":
            return self.reduced(head, self.score_heads)
        return self.smooth(self.reduced(head, self.window_sums))


def snap16x5(head: HeadView, budget: int, n_sink: int) -> tuple[list[int], np.ndarray]:
    """The prompt step of the cold-compress suite (section 3.4, `h2o/coldcompress`): kept positions and scores
    (n,).

    Mean attention of the last 16 queries, group mean, average pooling 5 that does not count padding, first
    n_sink and last 16 tokens forced in.
    """
    rows = min(16, head.attention.shape[1])
    mean = reduce_group(column_sums(head.attention, rows), "mean") / rows
    score = pool(mean, 5, "avg_nopad")
    return keep(head.pos, list(score), budget, first_positions(head, n_sink), last_slots(head, rows)), score


def mean_rows(probs: np.ndarray, w: int) -> np.ndarray:
    """probs (G, m, n) -> (n,): group-mean attention averaged over the last min(w, m) rows."""
    mean = group_mean(probs)
    rows = min(w, mean.shape[0])
    total = np.zeros(mean.shape[1])
    for i in range(mean.shape[0] - rows, mean.shape[0]):
        total += mean[i]
    return total / rows
