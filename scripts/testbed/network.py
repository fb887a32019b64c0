"""The network: transformers' Llama for its parameters, a forward pass of our own for its speed.

The pass is the model's own mathematics without padding (`tests/scripts/test_testbed_training.py` holds them equal):
every sequence is full, so attention is causal and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from scripts.testbed.initial import look_back

BLOCK = 64  # queries whose scores are written out at once
WRITTEN_OUT = 1024  # tokens; on a processor the fused kernel is 2 to 5 times slower up to here, with heads this small


def build(shape: Mapping[str, Any], seed: int, start_from: str | None = None) -> LlamaForCausalLM:
    """A model in float32, new (`look_back`) or with the weights of a folder; ``shape`` are fields of `LlamaConfig`."""
    torch.manual_seed(seed)
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = LlamaConfig(**shape, **special, tie_word_embeddings=True)
    if start_from:
        return LlamaForCausalLM.from_pretrained(start_from, config=config, dtype=torch.float32)
    model = LlamaForCausalLM(config)
    look_back(model, seed)
    return model


def rotation(model: LlamaForCausalLM, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the positions 0 to ``length`` - 1, [length, head dimension] each."""
    cos, sin = model.model.rotary_emb(
        torch.zeros(1, device=model.device), torch.arange(length, device=model.device)[None]
    )
    return cos[0], sin[0]


def logits(model: LlamaForCausalLM, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """[batch, length, vocabulary] for full sequences of embedded tokens [batch, length, hidden size]."""
    for layer in model.model.layers:
        x = x + _attention(layer.self_attn, layer.input_layernorm(x), turn)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.lm_head(model.model.norm(x))  # type: ignore[no-any-return]


def embedded(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """[batch, length, hidden size] of token ids [batch, length].

    Not to be compiled: on a processor, threads would then add up the gradients of the embeddings in whatever order they
    come, and a run would not end twice with the same weights.
    """
    return model.model.embed_tokens(ids)  # type: ignore[no-any-return]


def loss(
    model: LlamaForCausalLM, x: Tensor, gold: Tensor, weight: Tensor, turn: tuple[Tensor, Tensor], first: float
) -> tuple[Tensor, Tensor]:
    """Mean negative log-likelihood (nats) of ``gold`` [batch, length], the tokens that follow those of ``x``.

    ``x`` is `embedded`; each token counts under its ``weight`` [batch, length].

    Beside it the share of tokens of weight ``first``, which begin answers, that are the model's first choice. Tokens
    after them say little: once a value has begun, going on with it takes no knowledge of which key was asked for.
    """
    predicted = logits(model, x, turn).float().flatten(0, 1)
    gold, weight = gold.flatten(), weight.flatten()
    each = F.cross_entropy(predicted, gold, reduction="none")
    asked = weight == first
    right = ((predicted.detach().argmax(-1) == gold) & asked).sum() / asked.sum().clamp(min=1)
    return (each * weight).sum() / weight.sum(), right


def _attention(block: Any, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    batch, length, _ = x.shape
    q, k, v = (
        project(x).view(batch, length, -1, block.head_dim).transpose(1, 2)
        for project in (block.q_proj, block.k_proj, block.v_proj)
    )
    q, k = _turned(q, turn), _turned(k, turn)
    if x.device.type == "cpu" and length <= WRITTEN_OUT:
        mixed = _in_blocks(q, k, v)
    else:
        group = block.num_key_value_groups
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return block.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))  # type: ignore[no-any-return]


def _in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, `BLOCK` queries at a time over the keys up to them.

    ``q`` and the result are [batch, H * G, T, D], ``k`` and ``v`` [batch, H, T, D].
    """
    (batch, heads, length, dim), shared = q.shape, k.shape[1]
    future = torch.full((length, length), float("-inf"), device=q.device).triu(1)
    mixed = []
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        asked = q[:, :, start:end].reshape(batch, shared, -1, dim)  # the queries of a group lie under each other
        scores = (asked @ k[:, :, :end].mT).float() * dim**-0.5
        scores = scores.view(batch, shared, -1, end - start, end) + future[start:end, :end]
        weights = scores.softmax(-1).to(v.dtype).view(batch, shared, -1, end)
        mixed.append((weights @ v[:, :, :end]).view(batch, heads, end - start, dim))
    return torch.cat(mixed, dim=2)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)
