"""The sequential prompt stage of HashEvict at batch speed (policies.md, 3.14 and 6.4).

Which key is evicted when depends on the layer's queries and keys, never on attention. So the loop "evict, append" runs
on hash codes alone and notes each key's death; one attention call with the mask j <= t < death[j] then equals the
token-by-token run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from policies.hashevict import HashEvict

NEVER = torch.iinfo(torch.int64).max
_BEYOND = 1 << 28  # more than any position


def death_times(asking: Tensor, codes: Tensor, budget: int, sinks: int, recent: int, scorer: HashEvict) -> Tensor:
    """The step that evicts each token, (R, H, T) int64; `NEVER` for survivors.

    ``asking`` (R, H, A, T) and ``codes`` (R, H, T) int64: what every token asks with, and its key's code
    (`HashEvict.asking`, `HashEvict.codes`). The first ``budget`` tokens fill the cache; token t then evicts one of the
    cached before it enters. Protected are positions below ``sinks`` and t - ``recent`` … t - 1; where nothing else is
    cached, the oldest recent token goes, and of sinks alone the newest (1.3-2).
    """
    total = codes.shape[-1]
    deaths = torch.full_like(codes, NEVER)
    alive = torch.arange(min(budget, total), device=codes.device).expand(*codes.shape[:2], -1).clone()
    cached = codes[..., :budget].clone()
    for now in range(budget, total):
        distance = scorer.distance(asking[..., now : now + 1], cached.unsqueeze(-2))[..., 0, :]
        urgency = distance * _BEYOND + (_BEYOND - 1 - alive)  # on equal distance the older token
        urgency = torch.where(alive >= now - recent, -1 - alive, urgency)
        urgency = torch.where(alive < sinks, alive - 2 * _BEYOND, urgency)
        victim = urgency.argmax(-1, keepdim=True)
        deaths.scatter_(-1, alive.gather(-1, victim), now)
        alive.scatter_(-1, victim, now)
        cached.scatter_(-1, victim, codes[..., now : now + 1])
    return deaths
