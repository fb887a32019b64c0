"""FastGen: each head picks the cheapest hybrid policy that recovers enough attention (policies.md section
3.12).

Hybrid policies in increasing cost; the first `sink` tokens always belong: 1 special, 2 + punctuation, 3 + heavy
hitters, 4 + local window, 5 full.
"""

from collections.abc import Collection, Sequence

import numpy as np

from tests.reference.attention import group_mean
from tests.reference.policy import HeadView, LayerView, Policy
from tests.reference.selection import ceil_of, exact, floor_of, keep, refuse_nan

FULL = 5


def window_size(fraction: float, length: int) -> int:
    """Local window of a mask over `length` tokens, the query's own token included; at least that one."""
    return max(1, floor_of(fraction, length))


def decode_share(fraction: float, max_len: int) -> int:
    """round(fraction * max_len), half to even: a head's slots in decode for its window or heavy hitters."""
    return round(exact(fraction) * max_len)


def recovered_mass(A: np.ndarray, static: Collection[int], window: int = 0) -> float:  # noqa: N803
    """A (T, T) causal: average over rows of the attention on the static tokens and the row's last `window`
    tokens.
    """
    T = A.shape[0]
    total = 0.0
    for i in range(T):
        total += sum(float(A[i, j]) for j in range(i + 1) if j in static or i - j < window)
    return total / T


def band_sums(A: np.ndarray, window: int) -> np.ndarray:  # noqa: N803
    """A (T, T) -> (T,): column sums restricted to i - j < window."""
    T = A.shape[0]
    return np.array([sum(float(A[i, j]) for i in range(j, T) if i - j < window) for j in range(T)])


def recovered_mass_from_sums(columns: np.ndarray, band: np.ndarray, static: Collection[int], total: int) -> float:
    """The same number without A: (sum over S of c_j + sum outside S of c^W_j) / T."""
    return sum(float(columns[j] if j in static else band[j]) for j in range(total)) / total


def heavy_hitters(columns: np.ndarray, taken: Collection[int], count: int) -> list[int]:
    """The `count` tokens with the largest column sum / (T - pos) among those not yet kept for the last row."""
    T = len(columns)
    free = [j for j in range(T) if j not in taken]
    return keep(free, [float(columns[j]) / (T - j) for j in free], count)


def choose(masses: Sequence[float], recovery: float) -> int:
    """The first hybrid policy (numbered from 1) whose recovered mass reaches `recovery`; else full."""
    refuse_nan(masses)
    for number, mass in enumerate(masses, start=1):
        if mass >= recovery:
            return number
    return FULL


class FastGen(Policy):
    """tokens: ids of prompt and generation in order; max_len: length the cache is made for (all of them if
    None).

    One-shot prompt, then EAA. The budget is each head's own. `history` attention values per slot give its
    average: the prompt counts as one observation, like every decode step. Special tokens are those of the
    prompt.
    """

    def __init__(
        self,
        recovery: float = 0.9,
        heavy_frac: float = 0.3,
        window_frac: float = 0.3,
        sink: int = 4,
        self_visible: bool = False,
        *,
        tokens: Sequence[int] = (),
        special_ids: Collection[int] = (),
        punct_ids: Collection[int] = (),
        max_len: int | None = None,
        history: int = 400,
        **common: str,
    ) -> None:
        super().__init__(**{"prefill_evict": "once_after_prompt", "order": "EAA"} | common)
        self.recovery, self.heavy_frac, self.window_frac = recovery, heavy_frac, window_frac
        self.sink, self.self_visible, self.history = sink, self_visible, history
        self.tokens, self.special_ids, self.punct_ids = tokens, set(special_ids), set(punct_ids)
        self.max_len = len(tokens) if max_len is None else max_len
        self.chosen: list[int] = []
        self.masses: list[list[float]] = []
        self.step = 0
        self.prompt_tokens = 0

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        super().begin_layer(index, n_kv_heads, group, budget)
        self.chosen, self.masses, self.step = [], [], 0

    def specials(self) -> set[int]:
        return {p for p in range(self.prompt_tokens) if self.tokens[p] in self.special_ids}

    def punctuation(self, until: int) -> set[int]:
        return {p for p in range(until) if self.tokens[p] in self.punct_ids}

    def static(self, number: int, total: int) -> set[int]:
        """Global, special and punctuation tokens of hybrid policy `number`."""
        out = set(range(min(self.sink, total))) | self.specials()
        return out | self.punctuation(total) if number >= 2 else out

    def masks(self, columns: np.ndarray, length: int) -> list[tuple[set[int], int]]:
        """Row-independent set and window of each hybrid policy, with fractions taken of `length`."""
        T = len(columns)
        out: list[tuple[set[int], int]] = []
        for number in (1, 2, 3, 4):
            static = self.static(number, T)
            window = window_size(self.window_frac, length) if number == 4 else 0
            if number >= 3:
                recent = {j for j in range(T) if T - 1 - j < window}
                static |= set(heavy_hitters(columns, static | recent, ceil_of(self.heavy_frac, length)))
            out.append((static, window))
        out.append((set(range(T)), 0))
        return out

    def select(self, view: LayerView, budget: int | None) -> list[list[int]]:
        """Profile every head on the prompt and keep its policy's mask for the last query row."""
        if len(view.q_pos) != view.total:
            raise ValueError("FastGen profiles a one-shot prompt")
        self.prompt_tokens = T = view.total
        kept = []
        for head in view.heads:
            A = group_mean(head.attention)
            columns = A.sum(axis=0)
            masses = [recovered_mass(A, static, window) for static, window in self.masks(columns, T)]
            number = choose(masses, self.recovery)
            static, window = self.masks(columns, self.max_len)[number - 1]
            kept.append([j for j in range(T) if j in static or T - 1 - j < window])
            self.masses.append(masses)
            self.chosen.append(number)
            self.margins[head.g] = min(abs(mass - self.recovery) for mass in masses[:4])
            for j in range(T):
                self.observe(head.g, j, float(columns[j]) / (T - j))
        self.step += 1
        return kept

    def observe(self, g: int, p: int, value: float) -> None:
        self.tables[g]["ring"].setdefault(p, {})[self.step % self.history] = value
        self.tables[g]["count"][p] = self.tables[g]["count"].get(p, 0) + 1

    def update(self, view: LayerView) -> None:
        if view.prompt:
            return
        for head in view.heads:
            row = group_mean(head.attention)[0]
            for p, value in zip(head.pos, row, strict=True):
                self.observe(head.g, p, float(value))
        self.step += 1

    def head_budget(self, g: int, next_pos: int) -> int:
        """Slots the head may hold when the token at `next_pos` arrives; every punctuation token adds one."""
        number = self.chosen[g]
        size = self.sink + len(self.specials())
        if number >= 2:
            size += len(self.punctuation(next_pos))
        if number >= 3:
            size += decode_share(self.heavy_frac, self.max_len)
        if number == 4:
            size += decode_share(self.window_frac, self.max_len)
        return size

    def appended(self, g: int, token: int) -> bool:
        """Is this token inserted without an eviction, whatever the budget?"""
        return self.chosen[g] == FULL or (self.chosen[g] >= 2 and token in self.punct_ids)

    def score(self, head: HeadView) -> np.ndarray:
        """(n,): average attention over the last `history` observations."""
        ring, count = self.tables[head.g]["ring"], self.tables[head.g]["count"]
        return np.array([sum(ring[p].values()) / min(max(count[p], 1), self.history) for p in head.pos])

    def sinks(self, head: HeadView) -> set[int]:
        return {p for p in head.pos if p < self.sink}

    def others(self, head: HeadView) -> set[int]:
        t = head.layer.next_pos
        held = self.specials() | self.punctuation(t)
        if self.chosen[head.g] == 4:
            # The window counts the incoming token, so one slot fewer among the cached ones.
            held |= {p for p in head.pos if p > t - decode_share(self.window_frac, self.max_len)}
        return held

    def make_room(self, view: LayerView, budget: int | None) -> list[list[int]]:
        kept = []
        for head in view.heads:
            full = len(head.pos) >= self.head_budget(head.g, view.next_pos)
            evicts = self.chosen[head.g] in {3, 4} and not self.appended(head.g, self.tokens[view.next_pos])
            kept.append(self.choose(head, self.score(head), len(head.pos) - 1) if full and evicts else list(head.pos))
        return kept

    def admits(self, view: LayerView, g: int) -> str:
        if self.chosen[g] in {3, 4} or self.appended(g, self.tokens[view.next_pos]):
            return "keep"
        if len(view.heads[g].pos) < self.head_budget(g, view.next_pos):
            return "keep"
        return "see" if self.self_visible else "skip"
