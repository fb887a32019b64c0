"""Which numbers training computes with: bfloat16 where the hardware multiplies them, float32 elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from harness.config.model import has_native_dtype


def chosen(config: Mapping[str, Any]) -> torch.dtype:
    """The type of products, by the setting ``bf16``: true, false, or `auto`, which asks the hardware."""
    setting = config["bf16"]
    wanted = has_native_dtype(torch.bfloat16, config["device"]) if setting == "auto" else setting
    return torch.bfloat16 if wanted else torch.float32
