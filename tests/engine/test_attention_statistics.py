"""T-09 of policies.md: the tiled statistics equal the naive attention matrix, and sum to the number of rows."""

from __future__ import annotations

import pytest
import torch

from harness.engine.attention import attend as attention
from harness.engine.attention.attend import attend, attend_with_sums, column_sums, multiplies_bfloat16, strongest_head
from harness.engine.attention.mask import AttentionMask

R, H, G, M, N, D = 3, 2, 3, 150, 220, 16


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    query, keys, values = torch.randn(R, H * G, M, D), torch.randn(R, H, N, D), torch.randn(R, H, N, D)
    visible = torch.ones(M, N, dtype=torch.bool).tril(N - M).expand(R, 1, M, N).clone()
    visible[1, :, :, 20:40] = False  # empty slots in one row
    valid = torch.ones(R, M, dtype=torch.bool)
    valid[2, :50] = False  # a short, right-aligned chunk
    return query, keys, values, visible, valid


def explicit(visible, valid):
    return AttentionMask(valid, torch.ones(R, 1, 0, dtype=torch.bool), explicit=visible)


def naive(query, keys, visible, softcap):
    logits = query @ keys.repeat_interleave(G, dim=1).transpose(-1, -2) * 0.3
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    return logits.masked_fill(~visible, -torch.inf).softmax(-1)  # (R, H·G, M, N)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_output_equals_the_naive_one(inputs, softcap):
    query, keys, values, visible, valid = inputs
    expected = naive(query, keys, visible, softcap) @ values.repeat_interleave(G, dim=1)
    assert torch.allclose(
        attend(query, keys, values, explicit(visible, valid), 0.3, softcap), expected.transpose(1, 2), atol=1e-5
    )


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("rows", [1, 32, 64, 65, 1000, "all"])
def test_column_sums_equal_the_naive_ones(inputs, rows, softcap):
    """policies.md T-09."""
    query, keys, _, visible, valid = inputs
    first = 0 if rows == "all" else max(0, M - rows)
    counted = naive(query, keys, visible, softcap)[:, :, first:] * valid[:, None, first:, None]
    expected = counted.sum(2).view(R, H, G, N)
    sums = column_sums(query, keys, explicit(visible, valid), rows, 0.3, softcap)
    assert torch.allclose(sums, expected, rtol=1e-5, atol=1e-5)
    number = valid[:, first:].sum(-1)
    assert torch.allclose(sums.sum(-1), number.float()[:, None].expand(R, H)[..., None].expand(R, H, G), rtol=1e-5)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("kind", ["plain", "ragged", "waiting"])
def test_a_single_token_gives_output_and_sums_of_the_other_ways(inputs, kind, softcap):
    query, keys, values, _, _ = inputs
    filled, valid = torch.ones(R, 1, N - 1, dtype=torch.bool), torch.ones(R, 1, dtype=torch.bool)
    filled[1, :, 20:40] = kind == "plain"
    valid[2] = kind != "waiting"
    mask = AttentionMask(valid, filled, plain=kind == "plain")
    inputs = query[:, :, -1:], keys, values, mask, 0.3, softcap
    output, received = attend_with_sums(*inputs)
    assert torch.allclose(output, attend(*inputs), atol=1e-5)
    sums = column_sums(query[:, :, -1:], keys, mask, "all", 0.3, softcap)
    assert received.shape == sums.shape
    assert torch.allclose(received, sums, atol=1e-6)


def test_bfloat16_models_get_fp32_statistics(inputs):
    query, keys, _, visible, valid = inputs
    low = column_sums(query.bfloat16(), keys.bfloat16(), explicit(visible, valid), 8, 0.3)
    exact = column_sums(query.bfloat16().float(), keys.bfloat16().float(), explicit(visible, valid), 8, 0.3)
    assert low.dtype == torch.float32
    # Products of two numbers of 8 bits are exact in fp32; their sums, of 16 products here, have another order.
    assert torch.allclose(low, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("scaling", [0.25, 0.3])
@pytest.mark.parametrize("kind", ["plain", "ragged", "first chunk"])
def test_bfloat16_is_attended_in_tiles_as_by_the_fused_kernel(inputs, kind, scaling, softcap, monkeypatch):
    """And the sums that come with it are those of the statistics."""
    mask = by_rule(kind)
    query, keys, values = (each[:, :, -mask.slots :].bfloat16() for each in inputs[:3])
    if not multiplies_bfloat16(query, keys):
        pytest.skip("this processor has no instructions for products of bfloat16")
    output, sums = attend_with_sums(query, keys, values, mask, scaling, softcap)
    seen = mask.valid[..., None, None]
    assert torch.equal(output * seen, attend(query, keys, values, mask, scaling, softcap) * seen)
    statistics = column_sums(query, keys, mask, "all", scaling, softcap)
    assert torch.allclose(sums, statistics, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(attention, "multiplies_bfloat16", lambda query, keys: False)
    exact = attend(query.float(), keys.float(), values.float(), mask, scaling, softcap)
    # Weights, output and the exact output are rounded to 8 bits: each changes a mean of values by 2⁻⁹ of the largest.
    largest = float(values.abs().max())
    assert torch.allclose(output * seen, exact.bfloat16() * seen, rtol=0, atol=3 * largest * 2**-9)


def by_rule(kind):
    """Attention masks that the engine builds, and the same written out."""
    valid = torch.ones(R, M, dtype=torch.bool)
    filled = torch.ones(R, 1, N - M, dtype=torch.bool)
    if kind == "ragged":
        valid[2, :50] = False
        filled[1, :, 20:40] = False
    if kind == "first chunk":
        filled = filled[..., :0]
    return AttentionMask(valid, filled, plain=kind != "ragged")


@pytest.mark.parametrize("kind", ["plain", "ragged", "first chunk"])
@pytest.mark.parametrize("rows", [1, 70, "all"])
def test_masks_made_by_the_tile_equal_the_whole_mask(inputs, kind, rows):
    query, keys, values, _, _ = inputs
    mask = by_rule(kind)
    keys, values = keys[:, :, -mask.slots :], values[:, :, -mask.slots :]
    matrix = mask.rows(slice(None)).expand(R, 1, M, -1)
    asking, place = torch.arange(M)[:, None], torch.arange(mask.slots) - (mask.slots - M)
    slots = torch.cat([mask.filled[:, 0], mask.valid], 1)[:, None] & (place <= asking)
    expected = torch.where(mask.valid[:, :, None], slots, place == asking)[:, None]
    assert torch.equal(matrix, expected)
    written = AttentionMask(mask.valid, mask.filled, explicit=matrix)
    for statistic in (column_sums, strongest_head):
        if statistic is column_sums or rows != "all":
            by_tile, whole = (statistic(query, keys, s, rows, 0.3) for s in (mask, written))
            assert torch.allclose(by_tile, whole, rtol=1e-5, atol=1e-6)
    assert torch.allclose(
        attend(query, keys, values, mask, 0.3), attend(query, keys, values, written, 0.3), rtol=1e-5, atol=1e-6
    )
