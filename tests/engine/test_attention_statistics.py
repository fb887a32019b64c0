"""T-09 of policies.md: the tiled statistics equal the naive attention matrix, and sum to the number of rows."""

from __future__ import annotations

import pytest
import torch

from harness.engine.attention import attend, column_sums

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


def naive(query, keys, visible, softcap):
    logits = query @ keys.repeat_interleave(G, dim=1).transpose(-1, -2) * 0.3
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    return logits.masked_fill(~visible, -torch.inf).softmax(-1)  # (R, H·G, M, N)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_output_equals_the_naive_one(inputs, softcap):
    query, keys, values, visible, _ = inputs
    expected = naive(query, keys, visible, softcap) @ values.repeat_interleave(G, dim=1)
    assert torch.allclose(attend(query, keys, values, visible, 0.3, softcap), expected.transpose(1, 2), atol=1e-5)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("rows", [1, 32, 64, 65, 1000, "all"])
def test_column_sums_equal_the_naive_ones(inputs, rows, softcap):
    query, keys, _, visible, valid = inputs
    first = 0 if rows == "all" else max(0, M - rows)
    counted = naive(query, keys, visible, softcap)[:, :, first:] * valid[:, None, first:, None]
    expected = counted.sum(2).view(R, H, G, N)
    sums = column_sums(query, keys, visible, valid, rows, 0.3, softcap)
    assert torch.allclose(sums, expected, rtol=1e-5, atol=1e-5)
    number = valid[:, first:].sum(-1)
    assert torch.allclose(sums.sum(-1), number.float()[:, None].expand(R, H)[..., None].expand(R, H, G), rtol=1e-5)


def test_bfloat16_models_get_fp32_statistics(inputs):
    query, keys, _, visible, valid = inputs
    low = column_sums(query.bfloat16(), keys.bfloat16(), visible, valid, 8, 0.3)
    exact = column_sums(query.bfloat16().float(), keys.bfloat16().float(), visible, valid, 8, 0.3)
    assert low.dtype == torch.float32
    assert torch.equal(low, exact)
