"""Faster products on a processor: a model's linear layers with weights laid out once, as oneDNN reads them.

torch leaves float32 products on x86 to MKL, which lays the weights out anew in every call and does not use AVX-512 on
AMD's processors. What comes out is the same up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


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
