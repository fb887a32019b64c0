"""What is read of a model beside its layers: shapes, the rotary table and the output projection W_O.

`CacheRope` rotates by positions inside the cache (policies.md 1.5, rope="cache"): slot j, in order of the text, is
rotated as position j. Keys are stored unrotated, because rotating them again after every eviction would accumulate
rounding. To get them unrotated from an unchanged model, every token is fed at position 0, where the rotation is the
identity. Queries and keys are then rotated here, exactly, from the model's own table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from harness.engine.requests import EngineError
from policies.view import Rotation

if TYPE_CHECKING:  # a sweep is planned without transformers' models
    from transformers import PreTrainedModel

OUTPUT_NAMES = ("o_proj", "out_proj", "dense")  # what attention modules of transformers call W_O
FIXED_TABLES = ("default", "linear", "llama3")  # the angle of an index depends on nothing else


def head_width(config: Any) -> int:
    """D of a transformers text configuration: older ones do not say it."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def kv_heads(config: Any) -> int:
    """H of a transformers text configuration: older ones do not say it."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def slots_worth_a_pass(model: Any) -> int:
    """Slots whose keys and values are as many numbers, over all layers and heads, as all weights: a pass reads both."""
    config = model.config.get_text_config()
    weights = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    return int(weights // (2 * config.num_hidden_layers * kv_heads(config) * head_width(config)))


def rotation_of(model: Any, indices: int, what: str) -> Rotation:
    """Cosines and sines for indices 0 … n - 1. ``what``: what the table is wanted for, and what to do without it.

    Raises `EngineError` where the angle of an index depends on more than the index.
    """
    rotary: Any = getattr(model.base_model, "rotary_emb", None)
    if getattr(rotary, "rope_type", None) not in FIXED_TABLES:
        raise EngineError(f"Model type '{model.config.model_type}' has no plain rotary table, so {what}.")
    probe = torch.zeros(1, 1, dtype=torch.float32, device=model.device)
    cos, sin = rotary(probe, torch.arange(indices, device=model.device)[None])
    half = cos.shape[-1] // 2
    return Rotation(cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())


class CacheRope:
    """The model's cosines and sines for indices 0 … n - 1, (n, D / 2) fp32 each: both halves of a vector share them."""

    def __init__(self, model: Any, indices: int) -> None:
        table = rotation_of(
            model,
            indices,
            "positions inside the cache (rope=cache) are not defined for it: choose a policy with rope=absolute",
        )
        self.cos, self.sin = table.cos, table.sin

    def rotate(self, vectors: Tensor, index: Tensor) -> Tensor:
        """``vectors`` (…, D) rotated by ``index`` (…), in the halves convention of transformers."""
        cos, sin = (table.index_select(0, index.flatten()).view(*index.shape, -1) for table in (self.cos, self.sin))
        first, second = vectors.float().chunk(2, dim=-1)
        turned = torch.empty_like(vectors, dtype=torch.float32)
        real, imaginary = turned.chunk(2, dim=-1)
        torch.mul(first, cos, out=real).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=imaginary).addcmul_(first, sin)
        return turned.to(vectors.dtype)


def output_heads(model: PreTrainedModel, layer: int) -> Tensor:
    """(H, G, D, E) fp32: what a value of each query head adds to the layer's output of E numbers.

    Where a layer does not hold a plain matrix (packed or quantised weights) it is asked what it makes of unit vectors.
    Raises `EngineError` for a model without such a layer.
    """
    attention: Any = model.get_decoder().layers[layer].self_attn
    projection = next((getattr(attention, name) for name in OUTPUT_NAMES if hasattr(attention, name)), None)
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


_asked: WeakKeyDictionary[torch.nn.Module, Tensor] = WeakKeyDictionary()  # the answers of `_of_unit_vectors`


def _of_unit_vectors(projection: Any, model: PreTrainedModel) -> Tensor:
    """(in, out) fp32, asked once for as long as the layer lives: it costs as much as a pass of so many tokens."""
    if projection not in _asked:
        units = torch.eye(projection.in_features, dtype=model.dtype, device=model.device)
        nothing = torch.zeros_like(units[:1])
        _asked[projection] = (projection(units) - projection(nothing)).float()
    return _asked[projection]
