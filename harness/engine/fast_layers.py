"""Fewer kernels between one attention and the next: norms and feed-forward parts of a model through torch.compile.

Only parts without a state are compiled. All layers share one compiled graph for each kind of part and shape; attention,
slots and evictions stay as they are. What comes out is the same up to the rounding of fused operations.
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


# Faster products on a processor: a model's linear layers with weights laid out once, as oneDNN reads them.
#
# torch leaves float32 products on x86 to MKL, which lays the weights out anew in every call and does not use AVX-512 on
# AMD's processors. What comes out is the same up to the order of sums.


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
        """Its two widths."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def pack_layers(model: PreTrainedModel) -> int:
    """Pack the linear layers of a model's decoder layers in place, where that is possible. How many were packed.

    Possible are float32 weights on an x86 processor, under a torch that has MKL and oneDNN. The output head stays: it
    may share its weights with the embedding.
    """
    if not _possible():
        return 0
    count = 0
    for parent, name, layer in _layers(model):  # one at a time, so that one layer at most is there twice
        setattr(parent, name, PackedLinear(layer))
        count += 1
    return count


def _possible() -> bool:
    asked = torch.ops.mkldnn  # the two operations that torch's own compiler calls; another torch may not have them
    return (
        torch._C.has_mkl
        and torch._C._has_mkldnn
        and hasattr(asked, "_reorder_linear_weight")
        and hasattr(asked, "_linear_pointwise")
    )


def _layers(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Plain linear layers in float32 on the processor, with the modules that hold them and their names there."""
    for decoder_layer in getattr(model.get_decoder(), "layers", ()):
        for parent in decoder_layer.modules():
            for name, layer in list(parent.named_children()):
                if type(layer) is not nn.Linear or hasattr(layer, "_hf_hook"):  # accelerate's, which moves weights
                    continue
                if layer.weight.dtype == torch.float32 and layer.weight.device.type == "cpu":
                    yield parent, name, layer
