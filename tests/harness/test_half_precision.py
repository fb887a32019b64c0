"""What is said of numbers that the hardware only imitates."""

import pytest
import torch

from harness.config.model import ModelSpec, auto_dtype, dtype_advice, has_native_dtype


def test_float32_needs_no_advice():
    assert has_native_dtype(torch.float32, "cpu")
    assert dtype_advice("m", torch.float32, "cpu") == ""


def test_a_torch_without_onednn_imitates_and_does_not_fail(monkeypatch):
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    monkeypatch.delattr(torch.ops, "mkldnn", raising=False)
    for dtype in (torch.bfloat16, torch.float16):
        assert not has_native_dtype(dtype, "cpu")
        assert "with model.dtype=float32" in dtype_advice("m", dtype, "cpu")


@pytest.mark.parametrize(
    ("machine", "bf16", "amx", "chosen"),
    [
        ("x86_64", False, False, "float32"),
        ("x86_64", True, False, "bfloat16"),
        ("AMD64", False, True, "bfloat16"),
    ],
)
def test_auto_takes_bfloat16_where_a_processor_has_instructions_for_it(monkeypatch, machine, bf16, amx, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert auto_dtype() == chosen
    assert ModelSpec("testbed", "bundled/testbed", "auto").dtype == chosen, (
        "a cell is named by the type it is computed in"
    )


def test_auto_takes_sixteen_bits_on_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for native, chosen in ((True, "bfloat16"), (False, "float16")):
        monkeypatch.setattr("harness.config.model.has_native_dtype", lambda dtype, device, native=native: native)
        assert auto_dtype() == chosen
