"""The machine's own roof, measured in the same run: matrix products of the model's shapes, and memory bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from harness.engine.attention.model_parts import head_width


def products(model: PreTrainedModel, tokens: int, passes: int) -> Callable[[], None]:
    """All linear layers of the decoder on blocks of ``tokens`` tokens, ``passes`` times, and nothing else."""
    linear = [part for layer in model.model.layers for part in layer.modules() if hasattr(part, "in_features")]
    inputs = {
        width: torch.randn(tokens, width, dtype=model.dtype, device=model.device)
        for width in {layer.in_features for layer in linear}
    }

    @torch.inference_mode()
    def run() -> None:
        for _ in range(passes):
            for layer in linear:
                layer(inputs[layer.in_features])

    return run


def attention(model: PreTrainedModel, rows: int, block: int, slots: int, passes: int) -> Callable[[], None]:
    """The two products of attention of so many rows over ``slots`` slots and nothing else: no softmax, no mask."""
    config = model.config
    heads, group = config.num_key_value_heads, config.num_attention_heads // config.num_key_value_heads
    like = {"dtype": model.dtype, "device": model.device}
    query = torch.randn(rows * heads, group * block, head_width(config), **like)
    keys, values = (torch.randn(rows * heads, slots, head_width(config), **like) for _ in range(2))

    @torch.inference_mode()
    def run() -> None:
        for _ in range(passes * config.num_hidden_layers):
            torch.bmm(torch.bmm(query, keys.transpose(1, 2)), values)

    return run
