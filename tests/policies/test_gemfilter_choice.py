"""GemFilter's choice of tokens on tensors (policies.md 3.10)."""

from __future__ import annotations

import pytest
import torch

from policies import PolicyError
from policies.gemfilter import TokenFilter

ALONG = torch.tensor([[1.0, 0.0]])  # one query head that asks for the first coordinate


def keys(*scores: float) -> torch.Tensor:
    """One KV head whose keys have these dot products with `ALONG`, and something else besides."""
    return torch.tensor([[[score, 7.0] for score in scores]])


def test_3_10_the_largest_dot_products_stay_in_order_of_position():
    assert TokenFilter(kernel=1).choose(ALONG, keys(0.1, 0.9, -3.0, 0.4, 0.8), 3) == [1, 3, 4]


def test_3_10_scores_are_averaged_over_neighbours_with_zeros_beyond_the_ends():
    given = keys(1.0, 1.0, 0.0, 0.0, 1.2, 0.6, 0.0)  # by 3: .667, .667, .333, .4, .6, .6, .2
    assert TokenFilter(kernel=3).choose(ALONG, given, 2) == [0, 1]
    assert TokenFilter(kernel=3).choose(ALONG, given, 4) == [0, 1, 4, 5]
    assert TokenFilter(kernel=3).choose(ALONG, keys(3.0, 0.0, 0.0, 2.0, 2.0), 1) == [4]  # 4/3 twice: the newer
    assert TokenFilter(kernel=3).choose(ALONG, keys(2.4, 0.1, 1.0, 0.0, 0.0), 1) == [1]  # 3.5 / 3, not 2.5 / 2


def test_3_10_every_query_head_counts_alike_whatever_its_kv_head():
    """Two KV heads with two query heads each: the sum over all four decides, the same for every head."""
    query = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]])
    both = torch.cat([keys(0.0, 1.0, 0.0, 0.9), keys(0.0, 3.0, 0.0, 0.0)])
    # 2 x the first head's keys, minus half of the second's: 0, 0.5, 0, 1.8
    assert TokenFilter(kernel=1).choose(query, both, 1) == [3]
    assert TokenFilter(kernel=1).choose(query, both, 2) == [1, 3]


def test_3_10_equal_scores_leave_the_newer():
    assert TokenFilter(kernel=1).choose(ALONG, keys(1.0, 1.0, 1.0, 1.0), 2) == [2, 3]


def test_a_score_that_is_no_number_is_an_error():
    with pytest.raises(PolicyError, match="not a number"):
        TokenFilter(kernel=1).choose(ALONG, keys(1.0, float("nan"), 2.0), 1)
