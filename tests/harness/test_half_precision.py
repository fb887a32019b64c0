"""What is said of numbers that the hardware only imitates."""

import torch

from harness.config.model import dtype_advice, has_native_dtype


def test_float32_needs_no_advice():
    assert has_native_dtype(torch.float32, "cpu")
    assert dtype_advice("m", torch.float32, "cpu") == ""


def test_a_torch_without_onednn_imitates_and_does_not_fail(monkeypatch):
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    monkeypatch.delattr(torch.ops, "mkldnn", raising=False)
    for dtype in (torch.bfloat16, torch.float16):
        assert not has_native_dtype(dtype, "cpu")
        assert "with model.dtype=float32" in dtype_advice("m", dtype, "cpu")
