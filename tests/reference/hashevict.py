"""HashEvict: Hamming distance between locality-sensitive codes (policies.md section 3.14; HashEvict Algorithm
1).

h(x) = [R x >= 0], R (c, D) Gaussian. Evict the cached key whose code is farthest from the query's, then append.
"""

import math
from collections.abc import Callable

import numpy as np

from tests.reference.policy import HeadView, LayerView, Policy, first_positions, last_positions
from tests.reference.selection import keep, refuse_nan

Code = tuple[int, ...]


def code(R: np.ndarray, x: np.ndarray) -> Code:  # noqa: N803
    """R (c, D), x (D,) -> c bits; a projection of exactly zero maps to 1."""
    projected = [float(np.dot(row, x)) for row in R]
    refuse_nan(projected)
    return tuple(1 if y >= 0 else 0 for y in projected)


def hamming(a: Code, b: Code) -> int:
    return sum(1 for x, y in zip(a, b, strict=True) if x != y)


def group_distance(R: np.ndarray, queries: np.ndarray, key_code: Code, rule: str) -> int:  # noqa: N803
    """queries (G, D) of one KV head against one cached code (A-14). In 'majority' a split vote gives 1, like
    zero.
    """
    if rule == "mean_query":
        return hamming(code(R, queries.mean(axis=0)), key_code)
    codes = [code(R, q) for q in queries]
    if rule == "sum":
        return sum(hamming(c, key_code) for c in codes)
    if rule == "min":
        return min(hamming(c, key_code) for c in codes)
    if rule == "majority":
        return hamming(tuple(1 if 2 * sum(bit) >= len(codes) else 0 for bit in zip(*codes, strict=True)), key_code)
    raise ValueError(f"unknown group rule {rule!r}")


def projection(bits: int, width: int, seed: int) -> np.ndarray:
    """(c, D) standard normal. Which generator draws it is no part of the method: pass R to compare two
    programs.
    """
    return np.random.default_rng(seed).standard_normal((bits, width))


def eviction_steps(
    distance: Callable[[int, int], float], total: int, budget: int, sink: int = 4, recent: int = 10
) -> list[float]:
    """distance(t, j) -> e_j for each of `total` tokens: the step that evicts it, inf if none (sections 3.14,
    6.4).

    Attention with the mask j <= t < e_j then is the sequential prompt stage.
    """
    evicted_at = [math.inf] * total
    alive = list(range(min(budget, total)))
    for t in range(budget, total):
        free = [j for j in alive if j >= sink and j < t - recent]
        if free:
            victim = max(free, key=lambda j: (distance(t, j), -j))  # tie: the smaller position goes
        else:
            # More protected slots than slots in all: sinks first, then the most recent (1.3-2).
            late = [j for j in alive if j >= sink]
            victim = late[0] if late else alive[-1]
        evicted_at[victim] = t
        alive = [j for j in alive if j != victim] + [t]
    return evicted_at


def task_budget(fraction: float, median_prompt: float, max_new_tokens: int) -> int:
    """The released runs' C: round(fraction * (median prompt + max new / 2)), up to a multiple of 8."""
    size = round(fraction * (median_prompt + max_new_tokens / 2))
    return -(-size // 8) * 8


class HashEvict(Policy):
    """S_j = -distance. hash_of 'query' is the paper, 'key' the released code (hash of the incoming key).

    prompt_mode: 'sequential' fills the cache with the first N tokens and then reads one at a time;
    'recent_global' reads the whole prompt with full attention and keeps the first `sink` and the last N - sink
    tokens. R: projection (bits, D); drawn from `seed` if None.
    """

    def __init__(
        self,
        bits: int = 16,
        hash_of: str = "query",
        group_rule: str = "sum",
        sink: int = 4,
        recent: int = 10,
        prompt_mode: str = "sequential",
        seed: int = 0,
        R: np.ndarray | None = None,  # noqa: N803
        **common: str,
    ) -> None:
        if hash_of not in {"query", "key"} or prompt_mode not in {"sequential", "recent_global"}:
            raise ValueError(f"unknown hash_of {hash_of!r} or prompt_mode {prompt_mode!r}")
        super().__init__(**{"prefill_evict": "once_after_prompt", "order": "EAA"} | common)
        self.bits, self.hash_of, self.group_rule = bits, hash_of, group_rule
        self.sink, self.recent, self.prompt_mode, self.seed, self.R = sink, recent, prompt_mode, seed, R
        self.sequential_prompt = prompt_mode == "sequential"

    def matrix(self, width: int) -> np.ndarray:
        if self.R is None:
            self.R = projection(self.bits, width, self.seed)
        return self.R

    def update(self, view: LayerView) -> None:
        """Write the codes of the keys that just arrived."""
        for head in view.heads:
            table = self.tables[head.g]["code"]
            for p, key in zip(head.pos, head.k, strict=True):
                if p not in table:
                    table[p] = code(self.matrix(len(key)), key)

    def score(self, head: HeadView) -> np.ndarray:
        R = self.matrix(head.q.shape[2])
        table = self.tables[head.g]["code"]
        if self.hash_of == "key":
            new = code(R, head.layer.k_new[head.g, -1])
            return np.array([-hamming(new, table[p]) for p in head.pos], dtype=np.float64)
        queries = head.q[:, -1]
        return np.array([-group_distance(R, queries, table[p], self.group_rule) for p in head.pos], dtype=np.float64)

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.sink)

    def others(self, head: HeadView) -> set[int]:
        return last_positions(head, self.recent)

    def due(self, view: LayerView) -> bool:
        return self.prompt_mode == "recent_global" and super().due(view)

    def select_head(self, head: HeadView, budget: int | None) -> list[int]:
        if self.prompt_mode == "recent_global" and head.layer.prompt and budget is not None:
            # First `sink` and last N - sink tokens, i.e. StreamingLLM on the prompt.
            return keep(head.pos, head.pos, budget, self.sinks(head))
        return super().select_head(head, budget)
