"""HashEvict: evict the key whose hash is farthest from the query's, before attention (policies.md, 3.14).

Codes are signs of random projections, h(x) = [R x >= 0]; between two vectors at angle θ a bit differs with
probability θ/π. The paper hashes the query, the released code hashes the new key.

A prompt is defined token by token, but is read in one pass (6.4): which key is evicted when depends on the layer's
queries and keys, never on attention. `simulate_evictions` runs the loop "evict, append" on hash codes alone and notes
the step at which each key goes; one attention call with the mask j <= t < step[j] then equals the token-by-token run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from policies.scorer import SlotState
from policies.view import CacheView, PolicyError

HashOf = Literal["query", "key"]
GroupRule = Literal["sum", "mean_query", "min", "majority"]

WIDTHS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}  # bits that a state integer holds
_LAYERS_APART = 1_000_003  # between the seeds of neighbouring layers: more than the seeds that anyone would try
NEVER = torch.iinfo(torch.int64).max  # the eviction step of survivors
_BEYOND = 1 << 28  # more than any position


@dataclass(frozen=True)
class HashEvict:
    """Score = minus the Hamming distance between a cached key's code and the query's code. Many scores are equal.

    ``hash_of`` says what the query's code is made of: the query, or the new token's key. ``group_rule`` says how the
    queries of one KV head count together (A-14): the sum of their distances, the code of their mean, the smallest
    distance, or the majority of their codes (a split vote gives 1, like a zero).
    """

    bits: int = 16
    hash_of: HashOf = "query"
    group_rule: GroupRule = "sum"
    seed: int = 0
    nonnegative: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 64:
            raise PolicyError(f"hashevict bits={self.bits} does not fit one integer: give 1 to 64 bits.")
        if self.hash_of not in get_args(HashOf):
            raise PolicyError(f"hashevict hash_of='{self.hash_of}' is not one of {', '.join(get_args(HashOf))}.")
        if self.group_rule not in get_args(GroupRule):
            raise PolicyError(
                f"hashevict group_rule='{self.group_rule}' is not one of {', '.join(get_args(GroupRule))}."
            )

    @property
    def state(self) -> dict[str, SlotState]:
        """Each key's code, in the narrowest integer: 2 bytes for 16 bits."""
        return {"codes": SlotState(dtype=next(kind for width, kind in WIDTHS.items() if self.bits <= width))}

    def update(self, view: CacheView) -> dict[str, Tensor]:
        """Codes of the chunk's keys behind the old ones."""
        fresh = self.codes(view.arriving, view.layer).to(view.state["codes"].dtype)
        return {"codes": torch.cat([view.state["codes"][..., : -fresh.shape[-1]], fresh], -1)}

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N). Codes cannot be NaN, so a NaN in the hashed query or key is passed on here."""
        query_codes = self.query_codes(view.attention.queries(1), view.arriving[:, :, -1:], view.layer)
        distance = self.distance(query_codes, self._whole(view.state["codes"]).unsqueeze(-2))[..., 0, :]
        hashed = view.arriving if self.hash_of == "key" else view.attention.queries(1)
        unknown = hashed[:, :, -1].isnan().flatten(1).any(-1).view(-1, 1, 1)
        return (-distance.float()).masked_fill(unknown, torch.nan)

    def codes(self, vectors: Tensor, layer: int) -> Tensor:
        """(…, D) to (…) int64, bit i being the sign of projection i."""
        projection = projection_of(self.seed, layer, self.bits, vectors.shape[-1]).to(vectors.device)
        return _packed(vectors.float() @ projection.T >= 0)

    def query_codes(self, queries: Tensor, keys: Tensor, layer: int) -> Tensor:
        """(R, H, A, T) int64: the codes that cached keys are compared with at each token, A of them per KV head.

        ``queries`` (R, H·G, T, D), ``keys`` (R, H, T, D) of the same tokens.
        """
        if self.hash_of == "key":
            return self.codes(keys, layer).unsqueeze(2)
        rows, heads, total, width = keys.shape
        group = queries.float().view(rows, heads, -1, total, width)
        if self.group_rule == "mean_query":
            return self.codes(group.mean(2, keepdim=True), layer)
        codes = self.codes(group, layer)
        return codes if self.group_rule in ("sum", "min") else self._majority(codes)

    def distance(self, query_codes: Tensor, cached: Tensor) -> Tensor:
        """(R, H, A, T) codes against (R, H, T or 1, N) cached ones: (R, H, T, N) int64."""
        apart = bits_set(query_codes.unsqueeze(-1) ^ cached.unsqueeze(2))
        return apart.amin(2) if self.group_rule == "min" else apart.sum(2)

    def eviction_steps(self, view: CacheView, sinks: int, recent: int) -> Tensor:
        """(R, H, T): see `policies.scorer.AttentionFree`. All rows of the view have the same budget."""
        query_codes = self.query_codes(view.attention.queries("all"), view.arriving, view.layer)
        return simulate_evictions(
            query_codes, self.codes(view.arriving, view.layer), view.budgets[0], sinks, recent, self
        )

    def _majority(self, codes: Tensor) -> Tensor:
        """(R, H, G, T) to (R, H, 1, T)."""
        votes = (codes.unsqueeze(-1) >> torch.arange(self.bits, device=codes.device)) & 1
        return _packed(2 * votes.sum(2, keepdim=True) >= codes.shape[2])

    def _whole(self, stored: Tensor) -> Tensor:
        """Stored codes as int64 without the copies of the sign bit that narrow integers get."""
        return stored.long() & ((1 << self.bits) - 1 if self.bits < 64 else -1)


@lru_cache(maxsize=512)
def projection_of(seed: int, layer: int, bits: int, width: int) -> Tensor:
    """R (bits, D), standard normal fp32, one per layer and shared by its heads; drawn on the CPU, so that it is the
    same for every device."""
    generator = torch.Generator().manual_seed(seed * _LAYERS_APART + layer)
    return torch.randn(bits, width, generator=generator)


def bits_set(codes: Tensor) -> Tensor:
    """How many bits are 1, in int64 of any sign (counting in pairs, nibbles and bytes; the product adds the bytes)."""
    codes = codes - ((codes >> 1) & 0x5555555555555555)
    codes = (codes & 0x3333333333333333) + ((codes >> 2) & 0x3333333333333333)
    codes = (codes + (codes >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (codes * 0x0101010101010101) >> 56


def _packed(signs: Tensor) -> Tensor:
    """(…, bits) bool to (…) int64."""
    return (signs.long() << torch.arange(signs.shape[-1], device=signs.device)).sum(-1)


def simulate_evictions(
    query_codes: Tensor, codes: Tensor, budget: int, sinks: int, recent: int, scorer: HashEvict
) -> Tensor:
    """The step that evicts each token, (R, H, T) int64; `NEVER` for survivors.

    ``query_codes`` (R, H, A, T) and ``codes`` (R, H, T) int64: each token's query codes and its key's code
    (`HashEvict.query_codes`, `HashEvict.codes`). The first ``budget`` tokens fill the cache; token t then evicts one of
    the cached ones before it enters. Protected are positions below ``sinks`` and t - ``recent`` … t - 1; where
    nothing else is cached, the oldest recent token goes, and of sinks alone the newest (1.3-2).
    """
    total = codes.shape[-1]
    evicted_at = torch.full_like(codes, NEVER)
    alive = torch.arange(min(budget, total), device=codes.device).expand(*codes.shape[:2], -1).clone()
    cached = codes[..., :budget].clone()
    for now in range(budget, total):
        distance = scorer.distance(query_codes[..., now : now + 1], cached.unsqueeze(-2))[..., 0, :]
        urgency = distance * _BEYOND + (_BEYOND - 1 - alive)  # on equal distance the older token
        urgency = torch.where(alive >= now - recent, -1 - alive, urgency)
        urgency = torch.where(alive < sinks, alive - 2 * _BEYOND, urgency)
        victim = urgency.argmax(-1, keepdim=True)
        evicted_at.scatter_(-1, alive.gather(-1, victim), now)
        alive.scatter_(-1, victim, now)
        cached.scatter_(-1, victim, codes[..., now : now + 1])
    return evicted_at
