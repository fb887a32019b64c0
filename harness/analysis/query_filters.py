"""The filters of Q-Filters: where the queries of each head lie (Godey et al. 2025; policies.md 3.27)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.analysis.recording import follow
from harness.engine.batch.batch import Batch
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.requests import Prompting, Request
from policies import DENSE

BLOCK = 512  # tokens of a pass


class QueryMoments:
    """A watcher of a dense run: by layer the sums of q and of q qᵀ over all queries q, fp64.

    The right singular vectors of all queries, one below the other, are the eigenvectors of the latter sum, so that no
    query has to be kept.
    """

    def __init__(self) -> None:
        self.total: dict[int, Tensor] = {}  # (H·G, D)
        self.gram: dict[int, Tensor] = {}  # (H·G, D, D)

    def attended(self, work: LayerPass) -> None:
        """Add the queries of one layer in one pass over one row."""
        queries = work.attention_of(slice(0, 1)).queries("all")[0].double()
        self.total[work.index] = self.total.get(work.index, 0) + queries.sum(1)
        self.gram[work.index] = self.gram.get(work.index, 0) + queries.transpose(-1, -2) @ queries

    def evicted(self, work: LayerPass) -> None:
        """Nothing is evicted in a dense run."""

    def predicted(self, batch: Batch, logits: Tensor) -> None:
        """Logits are of no interest."""

    def filters(self, kv_heads: int) -> Tensor:
        """(L, H, D): the mean of a group's first singular vectors, each pointing to the mean of its queries."""
        gram = torch.stack([self.gram[layer] for layer in sorted(self.gram)])
        total = torch.stack([self.total[layer] for layer in sorted(self.total)])
        first = torch.linalg.eigh(gram).eigenvectors[..., -1]  # (L, H·G, D), of the largest eigenvalue
        first = first * torch.where((first * total).sum(-1, keepdim=True) < 0, -1.0, 1.0)
        layers, heads, size = first.shape
        groups: Tensor = first.view(layers, kv_heads, heads // kv_heads, size)
        return groups.mean(2)


@torch.inference_mode()
def measure_filters(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> list[list[list[float]]]:
    """``filters[layer][KV head]`` from the queries of these texts (token ids), D numbers each."""
    moments = QueryMoments()
    for tokens in texts:
        follow(model, Request(tokens, DENSE), (), Prompting("blocked", BLOCK), [moments])
    found: list[list[list[float]]] = moments.filters(model.config.get_text_config().num_key_value_heads).tolist()
    return found
