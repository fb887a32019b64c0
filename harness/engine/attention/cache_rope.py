"""Positions inside the cache (policies.md 1.5, rope="cache"): slot j, in order of the text, is rotated as position j.

Keys are stored unrotated, because rotating them again after every eviction would accumulate rounding. To get them
unrotated from an unchanged model, every token is fed at position 0, where the rotation is the identity. Queries and
keys are then rotated here, exactly, from the model's own table.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.engine.requests import EngineError

FIXED_TABLES = ("default", "linear", "llama3")  # the angle of an index depends on nothing else


class CacheRope:
    """The model's cosines and sines for indices 0 … n - 1, (n, D) fp32 each."""

    def __init__(self, model: Any, indices: int) -> None:
        rotary: Any = getattr(model.base_model, "rotary_emb", None)
        if getattr(rotary, "rope_type", None) not in FIXED_TABLES:
            raise EngineError(
                f"Model type '{model.config.model_type}' has no plain rotary table, so positions inside the cache "
                "(rope=cache) are not defined for it: choose a policy with rope=absolute."
            )
        probe = torch.zeros(1, 1, dtype=torch.float32, device=model.device)
        cos, sin = rotary(probe, torch.arange(indices, device=model.device)[None])
        self.cos, self.sin = cos[0], sin[0]

    def rotate(self, vectors: Tensor, index: Tensor) -> Tensor:
        """``vectors`` (…, D) rotated by ``index`` (…), in the halves convention of transformers."""
        cos, sin = self.cos[index], self.sin[index]
        first, second = vectors.float().chunk(2, dim=-1)
        turned: Tensor = vectors.float() * cos + torch.cat([-second, first], -1) * sin
        return turned.to(vectors.dtype)


def ranks(positions: Tensor) -> Tensor:
    """(R, H, N) int64: each filled slot's index in the order of the text; empty slots come after all filled ones."""
    far = torch.iinfo(positions.dtype).max
    return torch.where(positions >= 0, positions, far).argsort(-1).argsort(-1)
