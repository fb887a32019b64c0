"""BUZZ: beehive sampling between sinks and a sliding window (policies.md section 3.17; BUZZ figure 3 and Eq.
10).

Layout in position order: [ sink k | old | new | window w ]; "middle" = old + new. When the middle exceeds the
threshold, old tokens are thinned by the small stride and every hive of s new tokens keeps its best one.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from tests.reference.attention import column_sums
from tests.reference.policy import LayerView, Policy
from tests.reference.selection import refuse_nan

LOG_BASE = 512


def small_stride(stride: int) -> int:
    """s-hat = floor((s + 1) / 2)."""
    return (stride + 1) // 2


def interval(tokens: Sequence[int], stride: int) -> list[int]:
    """tokens[0], tokens[stride], tokens[2 * stride], ...: ceil(len / stride) of them, no scores."""
    return [token for rank, token in enumerate(tokens) if rank % stride == 0]


def local_max(tokens: Sequence[int], score: Mapping[int, float], stride: int) -> list[int]:
    """The best token of each consecutive hive of `stride`; the last hive may be short.

    Ties keep the earliest token, the one exception to rule 1.3-4 that policies.md makes.
    """
    best = []
    for start in range(0, len(tokens), stride):
        hive = tokens[start : start + stride]
        refuse_nan(score[t] for t in hive)
        winner = hive[0]
        for token in hive[1:]:
            if score[token] > score[winner]:
                winner = token
        best.append(winner)
    return best


def sweep(
    old: Sequence[int],
    new: Sequence[int],
    score: Mapping[int, float],
    stride: int,
    new_rule: str = "local_max",
    swap_strides: bool = False,
) -> list[int]:
    """One eviction of the middle: what becomes the next `old`."""
    for_old, for_new = small_stride(stride), stride
    if swap_strides:
        for_old, for_new = for_new, for_old
    sampled = local_max(new, score, for_new) if new_rule == "local_max" else interval(new, for_new)
    return interval(old, for_old) + sampled


def recursion(threshold: int, stride: int, steps: int) -> list[int]:
    """a_1 ... a_steps: middle length after each eviction when one token arrives per step."""
    small = small_stride(stride)
    out: list[int] = []
    for _ in range(steps):
        old = out[-1] if out else 0
        out.append(-(-old // small) + -(-(threshold + 1 - old) // stride))
    return out


def best_ratio(stride: int) -> Fraction:
    """Theorem 3.1: T_thr / w at which the stationary middle equals the window."""
    if stride % 2:
        return Fraction(stride * stride + 1, stride + 1)
    return Fraction(stride - 1)


def sizes(cache_size: int, size_kind: str, sink: int = 4, stride: int = 5) -> tuple[int, int]:
    """Window w and threshold T_thr for a target cache size (A-12).

    Only 'peak' is pinned down by policies.md; the other two name w up to rounding, taken to the nearest
    ('mean') and downwards ('post'), with T_thr the nearest integer to ratio * w.
    """
    ratio, room = best_ratio(stride), cache_size - sink
    if size_kind == "peak":
        window = math.floor(room / (1 + ratio))
        return window, room - window
    if size_kind == "mean":
        window = round(room / (1 + (1 + ratio) / 2))
    elif size_kind == "post":
        window = room // 2
    else:
        raise ValueError(f"unknown size_kind {size_kind!r}")
    return window, round(ratio * window)


def lengths(sink: int, window: int, stride: int, threshold: int) -> tuple[int, float, int]:
    """Cache length after an eviction, on average, and at its peak, once the middle has become stationary."""
    a = recursion(threshold, stride, 200)[-1]
    fixed = sink + window
    cycle = [fixed + middle for middle in range(a, threshold + 1)]
    return cycle[0], sum(cycle) / len(cycle), cycle[-1]


def log_factor(n: int) -> float:
    """ln n / ln 512: factor on the logits of BUZZ + log n; 0 for one slot, uniform over that slot."""
    return math.log(n) / math.log(LOG_BASE)


class Buzz(Policy):
    """window and threshold, or cache_size with size_kind; without any of them the budget given to `simulate` is
    used as cache_size.

    prefill: 'loop' repeats interval sampling with the small stride after the first sweep until the middle fits,
    'code' makes one sweep at the end of the prompt (a later one per decode step if it still does not fit),
    'stream' makes one sweep after every block. new_rule 'interval' is BUZZ without local max; accumulate =
    False scores by the current attention only.
    """

    def __init__(
        self,
        sink: int = 4,
        window: int | None = None,
        stride: int = 5,
        threshold: int | None = None,
        cache_size: int | None = None,
        size_kind: str = "peak",
        prefill: str = "loop",
        new_rule: str = "local_max",
        swap_strides: bool = False,
        accumulate: bool = True,
        logn: bool = False,
        **common: str,
    ) -> None:
        if prefill not in {"loop", "code", "stream"} or new_rule not in {"local_max", "interval"}:
            raise ValueError(f"unknown prefill {prefill!r} or new_rule {new_rule!r}")
        if stride < 3:
            raise ValueError("stride must be at least 3: below, old tokens are never dropped")
        if (window is None) != (threshold is None):
            raise ValueError("give both window and threshold, or neither")
        schedule = "after_each_block" if prefill == "stream" else "once_after_prompt"
        super().__init__(**{"prefill_evict": schedule, "decode_evict": "threshold"} | common)
        self.sink, self.stride, self.prefill, self.new_rule = sink, stride, prefill, new_rule
        self.given = (window, threshold)
        self.cache_size, self.size_kind = cache_size, size_kind
        self.swap_strides, self.accumulate, self.logn = swap_strides, accumulate, logn
        self.window, self.threshold, self.n_old = 0, 0, 0
        if threshold is not None:
            self.resolve(None)
        elif cache_size is not None:
            self.resolve(cache_size)

    def resolve(self, cache_size: int | None) -> None:
        window, threshold = self.given
        if window is None or threshold is None:
            if cache_size is None:
                raise ValueError("BUZZ needs a window and threshold, a cache_size or a budget")
            window, threshold = sizes(cache_size, self.size_kind, self.sink, self.stride)
        if threshold < 5:
            raise ValueError("threshold must be at least 5")
        self.window, self.threshold = window, threshold

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        super().begin_layer(index, n_kv_heads, group, budget)
        self.resolve(budget if self.cache_size is None else self.cache_size)
        self.n_old = 0

    def logit_factor(self, n: int) -> float:
        return log_factor(n) if self.logn else 1.0

    def update(self, view: LayerView) -> None:
        for head in view.heads:
            gained = self.reduced(head, lambda x: column_sums(x.attention, len(view.q_pos)))
            acc = self.tables[head.g]["acc"]
            for j, p in enumerate(head.pos):
                acc[p] = float(gained[j]) + (acc.get(p, 0.0) if self.accumulate else 0.0)

    def select(self, view: LayerView, budget: int | None) -> list[list[int]]:
        n = len(view.heads[0].pos)
        middle = max(n - self.sink - self.window, 0)
        if middle <= self.threshold:
            return [list(head.pos) for head in view.heads]
        kept = []
        for head in view.heads:
            first, rest = head.pos[: self.sink], head.pos[self.sink :]
            old, new, window = rest[: self.n_old], rest[self.n_old : middle], rest[middle:]
            acc = self.tables[head.g]["acc"]
            self.scores[head.g] = dict(acc)
            left = sweep(old, new, acc, self.stride, self.new_rule, self.swap_strides)
            self.margins[head.g] = self.margin(new, acc)
            if view.prompt and self.prefill == "loop":
                while len(left) > self.threshold:
                    left = interval(left, self.stride if self.swap_strides else small_stride(self.stride))
            kept.append(first + left + window)
        self.n_old = len(kept[0]) - self.sink - self.window
        return kept

    def margin(self, new: Sequence[int], acc: Mapping[int, float]) -> float:
        """Smallest distance between the best and the second best token of a hive."""
        if self.new_rule != "local_max":
            return math.inf
        size = small_stride(self.stride) if self.swap_strides else self.stride
        out = math.inf
        for start in range(0, len(new), size):
            ranked = sorted((acc[t] for t in new[start : start + size]), reverse=True)
            if len(ranked) > 1:
                out = min(out, ranked[0] - ranked[1])
        return out


def trace(
    sink: int, window: int, stride: int, threshold: int, prefill: int, last: int, score: Mapping[int, float]
) -> list[tuple[int, int, int, list[int]]]:
    """Feed tokens 0 ... last with fixed scores: `prefill` of them at once, then one per step.

    One entry per eviction: newest token, survivors among old, survivors among new, cache.
    """
    cache, n_old, out = list(range(prefill)), 0, []
    for token in range(prefill, last + 1):
        cache.append(token)
        middle = len(cache) - sink - window
        if middle <= threshold:
            continue
        old, new = cache[sink : sink + n_old], cache[sink + n_old : sink + middle]
        left = sweep(old, new, score, stride)
        from_old = sum(1 for t in left if t in set(old))
        cache = cache[:sink] + left + cache[sink + middle :]
        n_old = len(left)
        out.append((token, from_old, len(left) - from_old, list(cache)))
    return out


def stationary(threshold: int, stride: int) -> set[int]:
    """Values that the recursion keeps visiting: a single one if it converges, several if it cycles."""
    return set(np.array(recursion(threshold, stride, 400))[-100:].tolist())
