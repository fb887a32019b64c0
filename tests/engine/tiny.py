"""Tiny random models of every supported architecture: their text is noise, their computation is real."""

from __future__ import annotations

import random

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": None,  # random models stop at random; here all generations have full length
    "pad_token_id": 0,
    "initializer_range": 0.3,  # attention far from uniform, so that a wrong mask or position changes tokens
}
OWN = {
    "mistral": {"sliding_window": None},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
    "gemma2": {"query_pre_attn_scalar": 8, "sliding_window": 512, "attn_logit_softcapping": 5.0},
    "gemma3_text": {"query_pre_attn_scalar": 8, "sliding_window": 512},
}
ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text")


def tiny_model(kind: str, dtype: torch.dtype = torch.float32, **changes: object) -> PreTrainedModel:
    """A reproducible random model of this architecture."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **{**SIZES, **OWN.get(kind, {}), **changes})
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager").eval()
    model.generation_config.eos_token_id = None
    return model


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random tokens."""
    draw = random.Random(f"{seed}/{length}")
    return [draw.randrange(1, VOCABULARY) for _ in range(length)]


def generated_by_transformers(model: PreTrainedModel, tokens: list[int], new: int) -> list[int]:
    """Transformers' own greedy continuation with its own cache."""
    out = model.generate(torch.tensor([tokens]), max_new_tokens=new, min_new_tokens=new, do_sample=False)
    return out[0, len(tokens) :].tolist()


def stored_bytes(cache) -> int:
    """Bytes of K and V storage over all layers, tails included."""
    return sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
