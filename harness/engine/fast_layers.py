"""Faster model layers outside attention: `compile_layers` on a GPU, `pack_layers` on an x86 CPU.

`compile_layers` runs norms and feed-forward parts through torch.compile, so that fewer kernels run between one
attention and the next. Only parts without a state are compiled. All layers share one compiled graph for each kind of
part and shape; attention, slots and evictions stay as they are.

`pack_layers` stores the weights of linear layers in oneDNN's layout. torch leaves float32 products on x86 to MKL, which
converts the weights in every call and does not use AVX-512 on AMD's processors; bfloat16 products go to oneDNN, which
converts them in every call too.

Results are the same up to the rounding of fused operations and the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch import _dynamo as dynamo
from transformers import PreTrainedModel


def compile_layers(model: PreTrainedModel) -> str | None:
    """Compile a model's layers in place. Returns None, or the sentence that says why they were left as they are."""
    parts = list(_stateless(model))
    smallest = min(parts, key=lambda part: sum(weight.numel() for weight in part.parameters()), default=None)
    if smallest is None:
        return f"engine.compile: nothing to compile in a model of type '{model.config.model_type}'; it runs as it is."
    try:
        _try_compile(deepcopy(smallest), model)
    except Exception as error:  # a compiler can fail with any exception
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        return f"engine.compile: torch.compile does not work here ({first_line}); the model runs as it is."
    for part in parts:
        part.compile()
    dynamo.config.suppress_errors = True  # a later shape that fails runs as it is; torch's log says so
    return None


def _stateless(model: PreTrainedModel) -> Iterator[torch.nn.Module]:
    """All parts of each layer but attention."""
    for layer in getattr(model.get_decoder(), "layers", ()):
        yield from (part for part in layer.children() if not hasattr(part, "layer_idx"))


@torch.inference_mode()
def _try_compile(part: torch.nn.Module, model: PreTrainedModel) -> None:
    part.compile()
    part(torch.zeros(1, 2, model.config.get_text_config().hidden_size, dtype=model.dtype, device=model.device))


class PackedLinear(nn.Module):
    """A linear layer that holds its weights in oneDNN's layout only: no second copy stays. For inference."""

    packed: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        bias = None if layer.bias is None else layer.bias.detach()
        packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)
        self.register_buffer("packed", packed, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return made

    def extra_repr(self) -> str:
        """Number of input and output features, for ``print(model)``."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def pack_layers(model: PreTrainedModel) -> int:
    """Pack the linear layers of a model's decoder layers, and its output head, in place. How many were packed.

    That needs an x86 CPU, a torch with MKL and oneDNN, and weights in float32, or in bfloat16 where oneDNN computes
    with that type. A head that shares its weights with the embedding takes memory of its own.
    """
    if not _can_pack():
        return 0
    count = 0
    for parent, name, layer in _packable_layers(model):  # one at a time, so that at most one layer is in memory twice
        setattr(parent, name, PackedLinear(layer))
        count += 1
    return count


def _can_pack() -> bool:
    ops = torch.ops.mkldnn  # operations that torch's own compiler calls; other versions of torch may not have them
    return (
        torch._C.has_mkl
        and torch._C._has_mkldnn
        and hasattr(ops, "_reorder_linear_weight")
        and hasattr(ops, "_linear_pointwise")
    )


def _packable_types() -> set[torch.dtype]:
    ops = torch.ops.mkldnn
    computes_in_bfloat16 = hasattr(ops, "_is_mkldnn_bf16_supported") and ops._is_mkldnn_bf16_supported()
    return {torch.float32, torch.bfloat16} if computes_in_bfloat16 else {torch.float32}


def _packable_layers(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Plain linear layers of these types on the CPU, with the modules that hold them and their names there."""
    types, head = _packable_types(), model.get_output_embeddings()
    inside = (part for layer in getattr(model.get_decoder(), "layers", ()) for part in layer.modules())
    for parent in (*inside, model):
        for name, layer in list(parent.named_children()):
            if type(layer) is not nn.Linear or hasattr(layer, "_hf_hook"):  # accelerate's, which moves weights
                continue
            if parent is model and layer is not head:
                continue
            if layer.weight.dtype in types and layer.weight.device.type == "cpu":
                yield parent, name, layer
