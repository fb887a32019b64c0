"""Run by `test_column_kernels` in a process of its own: the GPU's statistics equal those of plain torch."""

from __future__ import annotations

import pytest
import torch

from harness.engine.attention import attend, triton_kernels
from harness.engine.attention.mask import AttentionMask

R, H, G, M, N, D = 2, 2, 2, 40, 76, 24  # two tiles of query rows, three of slots
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(R, M, H * G, D, device=DEVICE).transpose(1, 2), torch.randn(R, H, N + 9, D, device=DEVICE)


def mask(kind):
    """The attention masks that the engine builds, by kind."""
    valid = torch.ones(R, M, dtype=torch.bool, device=DEVICE)
    filled = torch.ones(R, 1, N - M, dtype=torch.bool, device=DEVICE)
    if kind in ("padded", "hiding"):
        valid[1, :25] = False
        filled[0, :, 20:30] = False
    if kind == "ragged":
        filled = torch.rand(R, H, N - M, device=DEVICE) > 0.3
    if kind == "first chunk":
        filled = filled[..., :0]
    seen = AttentionMask(valid, filled, plain=kind in ("plain", "first chunk"))
    return seen.hiding(torch.rand(R, H, 1, N, device=DEVICE) > 1.5) if kind == "hiding" else seen


def plain(monkeypatch, statistic, *arguments, **more):
    """The same by plain torch, on any device."""
    with monkeypatch.context() as patch:
        patch.setattr(attend, "has_kernels", lambda device: False)
        return statistic(*arguments, **more)


@pytest.mark.parametrize("kind", ["plain", "padded", "ragged", "first chunk", "hiding"])
@pytest.mark.parametrize(("rows", "softcap"), [(1, None), (32, 2.0), ("all", None)])
def test_column_sums_equal_those_of_plain_torch(inputs, kind, rows, softcap, monkeypatch):
    query, keys = inputs
    seen = mask(kind)
    keys = keys[:, :, : seen.slots]
    first = 0 if rows == "all" else M - rows
    sums = triton_kernels.column_sums(query, keys, seen, first, 0.3, softcap, None)
    expected = plain(monkeypatch, attend.column_sums, query, keys, seen, rows, 0.3, softcap)
    assert torch.allclose(sums, expected, rtol=1e-5, atol=1e-5)


def test_only_what_is_counted_is_summed(inputs, monkeypatch):
    query, keys = inputs
    seen, counted = mask("padded"), torch.rand(R, H, M, N, device=DEVICE) > 0.5
    sums = triton_kernels.column_sums(query, keys[:, :, :N], seen, 0, 0.3, None, counted)
    expected = plain(monkeypatch, attend.column_sums, query, keys[:, :, :N], seen, "all", 0.3, counted=counted)
    assert torch.allclose(sums, expected, rtol=1e-5, atol=1e-5)
    everything = triton_kernels.column_sums(query, keys[:, :, :N], seen, 0, 0.3, None, None)
    assert not torch.allclose(sums, everything, atol=1e-2)


@pytest.mark.parametrize(("kind", "softcap"), [("plain", None), ("padded", 2.0), ("first chunk", None)])
def test_the_strongest_head_equals_that_of_plain_torch(inputs, kind, softcap, monkeypatch):
    query, keys = inputs
    seen = mask(kind)
    keys = keys[:, :, : seen.slots]
    found = triton_kernels.strongest_head(query, keys, seen, M - 32, 0.3, softcap)
    expected = plain(monkeypatch, attend.strongest_head, query, keys, seen, 32, 0.3, softcap)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_equal_columns_stay_equal_in_whatever_tile_they_lie(inputs):
    query, keys = inputs
    keys = keys[:, :, :1].expand(-1, -1, N, -1)
    sums = triton_kernels.column_sums(query, keys, mask("plain"), 0, 0.3, None, None)[..., : N - M]
    assert torch.equal(sums, sums[..., :1].expand_as(sums))


def test_a_key_that_is_not_a_number_is_not_hidden(inputs):
    query, keys = inputs
    keys = keys[:, :, :N].clone()
    keys[1, 0, 3] = torch.nan
    for statistic, more in ((triton_kernels.column_sums, (None,)), (triton_kernels.strongest_head, ())):
        found = statistic(query, keys, mask("plain"), M - 8, 0.3, None, *more)
        assert found[1].isnan().any()
        assert not found[0].isnan().any()


def test_models_in_half_precision_get_fp32_statistics(inputs, monkeypatch):
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply bf16
    query, keys = (tensor.to(dtype) for tensor in inputs)
    sums = triton_kernels.column_sums(query, keys[:, :, :N], mask("plain"), M - 8, 0.3, None, None)
    expected = plain(monkeypatch, attend.column_sums, query, keys[:, :, :N], mask("plain"), 8, 0.3)
    assert sums.dtype == torch.float32
    assert torch.allclose(sums, expected, rtol=1e-5, atol=1e-5)
