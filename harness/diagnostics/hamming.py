"""Average Hamming distances between the codes of queries and keys: signs of seeded random projections.

Source: HashEvict appendix E, steps 1-3. Codes do not depend on a vector's length, so normalising first, as the paper
does, changes nothing. "Averaged over multiple projections": 8 here, the paper gives no number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.diagnostics.tape import Vectors
from policies.hashevict import projection_of

PROJECTIONS = 8  # seeds 0 … 7


def average_distances(vectors: Vectors, layer: int, query_head: int, bits: int) -> Tensor:
    """(T, T) fp32, query × key: bits in which their codes differ, mean over projections, 0 to ``bits``."""
    asking = _signs(vectors.queries[query_head], layer, bits)
    cached = _signs(vectors.keys[query_head // vectors.group], layer, bits)
    return (bits - asking @ cached.T / PROJECTIONS) / 2


def _signs(vectors: Tensor, layer: int, bits: int) -> Tensor:
    """(n, D) to (n, PROJECTIONS · bits), -1 or 1; zero counts as positive."""
    drawn = [projection_of(seed, layer, bits, vectors.shape[-1]) for seed in range(PROJECTIONS)]
    return torch.where(vectors.float() @ torch.cat(drawn).to(vectors.device).T >= 0, 1.0, -1.0)
