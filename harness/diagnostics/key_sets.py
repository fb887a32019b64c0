"""Kept and evicted keys of one head at the end of the prompt, the cut that all key diagnostics share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from harness.diagnostics.tape import Tape


@dataclass(frozen=True)
class HeadKeys:
    """One KV head of the policy's own run. n: prompt tokens."""

    layer: int
    head: int
    keys: Tensor  # (n, D) fp32, rotated
    queries: Tensor  # (G, n, D) fp32, rotated, of the query heads that share these keys
    kept: Tensor  # (n,) bool, held after the last prompt block

    @property
    def directions(self) -> Tensor:
        """(n, D): keys of length 1."""
        return F.normalize(self.keys, dim=-1)

    @property
    def anchor(self) -> Tensor:
        """(D,): the mean of the directions over the whole prompt, evicted keys included (KeyDiff Eq. 8)."""
        return self.directions.mean(0)

    @property
    def mean_query(self) -> Tensor:
        """(D,): over tokens and the query group; KeyDiff does not say how it treats groups."""
        return self.queries.mean((0, 1))


def heads_of(tape: Tape) -> Iterator[HeadKeys]:
    """Every KV head of every layer."""
    held = tape.held_after(tape.last_of_prompt)[..., : tape.prompt_tokens]
    for layer, vectors in enumerate(tape.vectors):
        queries = vectors.queries.view(len(vectors.keys), vectors.group, *vectors.queries.shape[1:])
        for head, keys in enumerate(vectors.keys):
            asked = queries[head, :, : tape.prompt_tokens].float()
            yield HeadKeys(layer, head, keys[: tape.prompt_tokens].float(), asked, held[layer, head])
