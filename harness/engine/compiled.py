"""Fewer kernels between one attention and the next: norms and feed-forward parts of a model through torch.compile.

Only parts without a state are compiled. All layers share one compiled graph for each kind of part and shape; attention,
slots and evictions stay as they are. What comes out is the same up to the rounding of fused operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import _dynamo as dynamo
from transformers import PreTrainedModel


def compile_layers(model: PreTrainedModel) -> str | None:
    """Compile a model's layers in place. Returns None, or the sentence that says why they were left as they are."""
    parts = list(_stateless(model))
    smallest = min(parts, key=lambda part: sum(weight.numel() for weight in part.parameters()), default=None)
    if smallest is None:
        return f"engine.compile: nothing to compile in a model of type '{model.config.model_type}'; it runs as it is."
    try:
        _tried(deepcopy(smallest), model)
    except Exception as error:  # a compiler fails in more ways than can be named
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        return f"engine.compile: torch.compile does not work here ({first_line}); the model runs as it is."
    for part in parts:
        part.compile()
    dynamo.config.suppress_errors = True  # a later shape that fails runs as it is; torch's log says so
    return None


def _stateless(model: PreTrainedModel) -> Iterator[torch.nn.Module]:
    """What stands beside attention in each layer."""
    for layer in getattr(model.get_decoder(), "layers", ()):
        yield from (part for part in layer.children() if not hasattr(part, "layer_idx"))


@torch.inference_mode()
def _tried(part: torch.nn.Module, model: PreTrainedModel) -> None:
    part.compile()
    part(torch.zeros(1, 2, model.config.get_text_config().hidden_size, dtype=model.dtype, device=model.device))
