"""K-VEC: SnapKV with cross-head and cross-layer coverage (policies.md section 3.18; K-VEC Eq. 8-16)."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tests.reference.policy import HeadView, LayerView, Policy, last_slots
from tests.reference.selection import floor_of, gap, keep, largest, refuse_nan
from tests.reference.snapkv import mean_rows, pool


def focus_of(P: np.ndarray, criterion: str) -> float:  # noqa: N803
    """P (P,) pooled scores of one head -> how focused it is; the least focused heads get the wider window.

    'std': standard deviation over candidates. 'entropy': minus the entropy of the scores scaled to sum 1.
    """
    if criterion == "std":
        mean = sum(float(x) for x in P) / len(P)
        return math.sqrt(sum((float(x) - mean) ** 2 for x in P) / len(P))
    if criterion == "entropy":
        total = sum(float(x) for x in P)
        shares = [float(x) / total for x in P] if total > 0 else [1.0 / len(P)] * len(P)
        return sum(x * math.log(x) for x in shares if x > 0)
    raise ValueError(f"unknown focus criterion {criterion!r}")


def widened_heads(P: np.ndarray, delta: int, criterion: str = "std") -> list[int]:  # noqa: N803
    """P (H, P) -> the delta least focused heads; on equal focus the lower head index first."""
    return sorted(range(len(P)), key=lambda g: (focus_of(P[g], criterion), g))[:delta]


def coverage_of_layers(cnt: Sequence[int], index: int) -> list[float]:
    """cov_t = cnt[t] / (l + 1) with 0-based l: 0 in layer 0, below 1 always."""
    return [c / (index + 1) for c in cnt]


def head_max_mean(views: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """probs (G, m, n) of every KV head -> I (n,): max over all query heads per row, mean over the last rows."""
    stacked = [probs[h] for probs in views for h in range(probs.shape[0])]
    m, n = stacked[0].shape
    rows = min(rows, m)
    out = np.zeros(n)
    for i in range(m - rows, m):
        for t in range(n):
            out[t] += largest([float(head[i, t]) for head in stacked])
    return out / rows


def adjusted(
    P: np.ndarray,  # noqa: N803
    I: Sequence[float],  # noqa: E741, N803
    cnt: Sequence[int],
    index: int,
    lam: float,
    preserved: int,
    override: str = "inf",
) -> np.ndarray:
    """P (H, P) after the window step -> P' (H, P), Eq. 12-16; `preserved` per head are overridden."""
    cov = coverage_of_layers(cnt, index)
    out = np.array(P, dtype=np.float64)
    for g in range(out.shape[0]):
        for t in range(out.shape[1]):
            out[g, t] = P[g, t] + lam * I[t] * (1.0 - cov[t])
        for t in keep(range(out.shape[1]), list(P[g]), preserved):
            out[g, t] = math.inf if override == "inf" else 1.0
    return out


def select_layer(
    P: np.ndarray,  # noqa: N803
    P_wide: np.ndarray,  # noqa: N803
    I: Sequence[float],  # noqa: E741, N803
    cnt: Sequence[int],
    index: int,
    slots: int,
    preserved: int,
    *,
    delta: int = 3,
    lam: float = 1.0,
    criterion: str = "std",
    override: str = "inf",
) -> tuple[list[list[int]], np.ndarray, list[int]]:
    """Steps 2-8 for one layer, all inputs over candidates and already pooled.

    P (H, P) from the last O rows, P_wide (H, P) from the last O' rows -> kept candidates per head (`slots`
    each), P' (H, P), re-scored heads.
    """
    refuse_nan(P.flat)
    wide = widened_heads(P, delta, criterion)
    mixed = np.array([P_wide[g] if g in wide else P[g] for g in range(len(P))])
    final = adjusted(mixed, I, cnt, index, lam, min(preserved, slots), override)
    return [keep(range(final.shape[1]), list(row), slots) for row in final], final, wide


def coverage(kept: Iterable[Iterable[int]], total: int) -> float:
    """Unique prompt tokens kept by at least one (layer, head), divided by T (K-VEC tables 6 and 7)."""
    return len({p for positions in kept for p in positions if p < total}) / total


class KVec(Policy):
    """One-shot, layer by layer. cnt[t]: earlier layers that kept candidate t in at least one KV head.

    Means run over the rows that exist: fewer than O' (or O) when the chunk is shorter.
    """

    def __init__(
        self,
        O: int = 16,  # noqa: E741, N803
        O_prime: int = 32,  # noqa: N803
        delta: int = 3,
        lam: float = 1.0,
        beta: float = 0.25,
        kernel: int = 7,
        pool: str = "max",
        focus_criterion: str = "std",
        override: str = "inf",
        **common: str,
    ) -> None:
        super().__init__(**{"prefill_evict": "once_after_prompt", "decode_evict": "never"} | common)
        if override not in {"inf", "one"}:
            raise ValueError(f"unknown override {override!r}")
        self.O, self.O_prime, self.delta, self.lam, self.beta = O, O_prime, delta, lam, beta
        self.kernel, self.pool = kernel, pool
        self.focus_criterion, self.override = focus_criterion, override
        self.cnt: dict[int, int] = {}
        self.wide: list[int] = []

    def begin_sequence(self, n_layers: int) -> None:
        self.cnt = {}

    def others(self, head: HeadView) -> set[int]:
        return last_slots(head, self.O)

    def candidates(self, head: HeadView, rows: int) -> np.ndarray:
        """(P,) pooled group-mean attention of the last `rows` rows over the positions before the window."""
        mean = mean_rows(head.attention, rows)
        return pool(mean[: len(mean) - self.O], self.kernel, self.pool)

    def select(self, view: LayerView, budget: int | None) -> list[list[int]]:
        pos = view.heads[0].pos
        if budget is None or len(pos) <= budget:
            return [list(head.pos) for head in view.heads]
        if budget <= self.O:
            return [keep(head.pos, [0.0] * len(pos), budget, (), self.others(head)) for head in view.heads]
        slots = budget - self.O
        ahead = pos[: len(pos) - self.O]
        P = np.array([self.candidates(head, self.O) for head in view.heads])
        P_wide = np.array([self.candidates(head, self.O_prime) for head in view.heads])
        I = head_max_mean((head.attention for head in view.heads), self.O)  # noqa: E741
        kept, final, self.wide = select_layer(
            P,
            P_wide,
            list(I[: len(ahead)]),
            [self.cnt.get(p, 0) for p in ahead],
            view.index,
            slots,
            floor_of(self.beta, budget),
            delta=self.delta,
            lam=self.lam,
            criterion=self.focus_criterion,
            override=self.override,
        )
        chosen = [[ahead[t] for t in own] for own in kept]
        for p in {p for own in chosen for p in own}:
            self.cnt[p] = self.cnt.get(p, 0) + 1
        for g in range(len(kept)):
            self.scores[g] = dict(zip(ahead, map(float, final[g]), strict=True))
            self.margins[g] = self.margin(P, P_wide, final, kept, g, min(floor_of(self.beta, budget), slots))
        return [own + pos[len(ahead) :] for own in chosen]

    def margin(
        self,
        P: np.ndarray,  # noqa: N803
        P_wide: np.ndarray,  # noqa: N803
        final: np.ndarray,
        kept: list[list[int]],
        g: int,
        preserved: int,
    ) -> float:
        """How far the head's three decisions are from ties: widened or not, preserved or not, kept or not."""
        order = sorted(focus_of(row, self.focus_criterion) for row in P)
        edge = order[self.delta] - order[self.delta - 1] if 0 < self.delta < len(order) else math.inf
        used = P_wide[g] if g in self.wide else P[g]
        ids = list(range(len(used)))
        early = gap(ids, list(used), keep(ids, list(used), preserved))
        free = [t for t in ids if math.isfinite(final[g, t])]
        late = gap(free, [final[g, t] for t in free], [t for t in kept[g] if t in set(free)])
        return min(edge, early, late)
