"""Models by size, with random weights: time does not depend on their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from harness.config.model import ModelSpec
from harness.engine.attention.model_parts import head_width
from harness.runner.memory import linear_parameters


@dataclass(frozen=True)
class Size:
    """A Llama's dimensions."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    inner: int
    vocabulary: int


SHAPES = {
    "tiny": Size(hidden=64, layers=2, heads=4, kv_heads=2, width=16, inner=128, vocabulary=256),
    "25m": Size(hidden=512, layers=8, heads=8, kv_heads=4, width=64, inner=1376, vocabulary=4096),
    "smollm2-135m": Size(hidden=576, layers=30, heads=9, kv_heads=3, width=64, inner=1536, vocabulary=49152),
    "1b": Size(hidden=2048, layers=16, heads=32, kv_heads=8, width=64, inner=8192, vocabulary=128256),
    "llama3.2-3b": Size(hidden=3072, layers=28, heads=24, kv_heads=8, width=128, inner=8192, vocabulary=128256),
    "llama3.1-8b": Size(hidden=4096, layers=32, heads=32, kv_heads=8, width=128, inner=14336, vocabulary=128256),
}


@dataclass(frozen=True)
class Work:
    """Floating-point operations of a Llama: linear layers per token, attention per token and visible slot."""

    linear: int
    attention: int
    head: int  # of the output projection, once per pass

    def of(self, tokens: int, seen: int, passes: int) -> float:
        """Of ``tokens`` tokens that see ``seen`` slots on average, in ``passes`` passes that keep one logit each."""
        return float(tokens * (self.linear + self.attention * seen) + passes * self.head)


def build(name: str, dtype: torch.dtype, device: str) -> PreTrainedModel:
    """The testbed with its weights, or a Llama of this shape with random ones."""
    if name == "testbed":
        return ModelSpec.parse({"name": "testbed", "path": "bundled/testbed", "dtype": str(dtype)[6:]}).load(device)
    size = SHAPES[name]
    config = LlamaConfig(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.width,
        intermediate_size=size.inner,
        vocab_size=size.vocabulary,
        max_position_embeddings=2**20,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval()


def work_of(config: Any) -> Work:
    """A multiply-add counts two."""
    return Work(
        linear=2 * linear_parameters(config),
        attention=4 * config.num_attention_heads * head_width(config) * config.num_hidden_layers,
        head=2 * config.hidden_size * config.vocab_size,
    )
