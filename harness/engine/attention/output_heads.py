"""The output projection W_O of a model's layers, as policies are shown it: one matrix for each query head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.requests import EngineError

NAMES = ("o_proj", "out_proj", "dense")  # what attention modules of transformers call it


def output_heads(model: PreTrainedModel, layer: int) -> Tensor:
    """(H, G, D, E) fp32: what a value of each query head adds to the layer's output of E numbers.

    Where a layer does not hold a plain matrix (packed or quantised weights) it is asked what it makes of unit vectors.
    Raises `EngineError` for a model without such a layer.
    """
    attention: Any = model.get_decoder().layers[layer].self_attn
    projection = next((getattr(attention, name) for name in NAMES if hasattr(attention, name)), None)
    if projection is None:
        raise EngineError(
            f"Model type '{model.config.model_type}' has no output projection that could be read: choose a policy "
            "that does not weigh values by it."
        )
    config = model.config.get_text_config()
    weight = getattr(projection, "weight", None)
    if isinstance(weight, Tensor) and weight.is_floating_point():
        columns = weight.detach().float().T
    else:
        columns = _of_unit_vectors(projection, model)
    queries, heads = config.num_attention_heads, config.num_key_value_heads
    return columns.reshape(heads, queries // heads, -1, columns.shape[-1])


def _of_unit_vectors(projection: Any, model: PreTrainedModel) -> Tensor:
    units = torch.eye(projection.in_features, dtype=model.dtype, device=model.device)
    nothing = torch.zeros_like(units[:1])
    made: Tensor = projection(units) - projection(nothing)
    return made.float()
