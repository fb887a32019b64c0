"""What the weights start from: random ones, and one group of heads that looks at the token before.

Repeating what followed an earlier occurrence (induction) takes two heads: one that writes into each token which token
stood before it, and one that searches for the present token among those. Random weights form the first only after
millions of tokens: a Llama has no biases, so where a head looks can depend on position alone only through a part that
all token embeddings share, and random embeddings share none. Here they share one from the start, and the query heads
of the first KV head of the first layer are turned by one position towards their keys. On lists of 64 words, repeated in
part, the accuracy after 0.4 M tokens was .81 with this start and .18 without it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

SHARPNESS = 5.8  # length of the turned part of queries and keys, per frequency
FREQUENCIES = 0.5  # share of a head's, the highest: the others tell neighbours apart no better


@torch.no_grad()
def look_back(model: LlamaForCausalLM, seed: int) -> None:
    """Changes new weights in place: the embeddings, and the queries and keys of the first KV head of layer 0."""
    config = model.config
    deviation, width = config.initializer_range, config.hidden_size
    # Its own generator: what else is drawn does not depend on this.
    shared = torch.randn(width, generator=torch.Generator().manual_seed(seed + 1)).sign()
    embedding = model.model.embed_tokens.weight
    embedding += deviation * shared.to(embedding.device)
    # After the first norm a token is (shared + own) / sqrt 2: its product with `shared` is width / sqrt 2.
    read = (SHARPNESS * 2**0.5 / width * shared).to(embedding.device)
    block = model.model.layers[0].self_attn
    half = block.head_dim // 2
    angles = model.model.rotary_emb.inv_freq[: round(half * FREQUENCIES)].float()
    _write(block.k_proj.weight, 0, half, torch.ones_like(angles), torch.zeros_like(angles), read)
    for head in range(block.num_key_value_groups):
        _write(block.q_proj.weight, head * block.head_dim, half, angles.cos(), -angles.sin(), read)


def _write(weight: Tensor, start: int, half: int, first: Tensor, second: Tensor, read: Tensor) -> None:
    """The rows of one head from ``start`` on: pairs (first, second) of each frequency times ``read`` [hidden]."""
    weight[start : start + len(first)] = first[:, None] * read
    weight[start + half : start + half + len(second)] = second[:, None] * read
    weight[start + len(first) : start + half] = 0
    weight[start + half + len(second) : start + 2 * half] = 0
