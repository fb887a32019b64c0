"""Whether this hardware multiplies numbers of 16 bits itself, and what to say where it does not."""

from __future__ import annotations

import torch


def native(dtype: torch.dtype, device: str | torch.device) -> bool:
    """Whether a device has instructions for products of this type; true of float32."""
    if dtype not in (torch.bfloat16, torch.float16):
        return True
    if torch.device(device).type == "cpu":  # what torch asks before it leaves a product to oneDNN
        if not torch._C._has_mkldnn:  # as in builds for Apple's processors: nobody to leave it to
            return False
        asked = torch.ops.mkldnn
        supported = asked._is_mkldnn_bf16_supported if dtype == torch.bfloat16 else asked._is_mkldnn_fp16_supported
        return bool(supported())
    if torch.device(device).type == "cuda" and dtype == torch.bfloat16:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return True


def advice(model: str, dtype: torch.dtype, device: str | torch.device) -> str:
    """One sentence where a model computes in a type that its device only imitates; empty elsewhere.

    Measured on an AVX2 processor (torch 2.13): bfloat16 and float16 take eight times as long as float32 in the linear
    layers of a prompt and twice as long in those of a decode step.
    """
    if native(dtype, device):
        return ""
    name, kind = str(dtype).removeprefix("torch."), "processor" if torch.device(device).type == "cpu" else "GPU"
    return (
        f"Model {model} computes in {name}, which this {kind} has no instructions for: with model.dtype=float32 it "
        "reads prompts several times as fast, in cells of their own."
    )
