"""Which numbers training computes with: bfloat16 where the hardware multiplies them, float32 elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def chosen(config: Mapping[str, Any]) -> torch.dtype:
    """The type of products, by the setting ``bf16``: true, false, or `auto`, which asks the hardware.

    A processor without instructions for bfloat16 multiplies it a hundred times slower than float32.
    """
    setting = config["bf16"]
    wanted = native(config["device"]) if setting == "auto" else setting
    return torch.bfloat16 if wanted else torch.float32


def native(device: str) -> bool:
    """Whether a device multiplies matrices of bfloat16 itself."""
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # what torch itself asks before it uses oneDNN's
