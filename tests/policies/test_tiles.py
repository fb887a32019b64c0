"""Copies in fp32 are made a tile of rows at a time: scores are the same bit by bit, and memory stays that of a tile."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from views import view

from policies.chunkkv import ChunkKV
from policies.cur import CUR
from policies.keydiff import KeyDiff
from policies.l2 import L2
from policies.lagkv import LagKV
from policies.qfilters import QFilters
from policies.scorer import ON_A_PROCESSOR, tiles, tiles_of_copies

SCORERS = [
    KeyDiff(), KeyDiff(anchor="median"), KeyDiff(anchor="pairwise"), KeyDiff(metric="euclid"), L2(),
    LagKV(lag=2, sinks=1), LagKV(lag=2, sinks=0, compare="across"), CUR(window=4), ChunkKV(KeyDiff(), size=4),
    QFilters([[[0.5, -1.0, 2.0, 0.1], [1.0, 0.0, -0.3, 0.7]]]),
]  # fmt: skip


@pytest.mark.parametrize("scorer", SCORERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_scores_do_not_depend_on_the_tiles(scorer, dtype, monkeypatch):
    torch.manual_seed(1)
    rows, heads, slots, width = 5, 2, 9, 4
    keys = torch.randn(rows, heads, slots, width).to(dtype)
    positions = torch.rand(rows, heads, slots).argsort(-1).int() - 2
    places = positions.clamp(min=-1)
    shown = replace(view(slots), keys=keys, values=keys.flip(-1) + 1, positions=places, is_full=False)
    at_once = scorer.score(shown)
    monkeypatch.setattr("policies.scorer.ON_A_PROCESSOR", 2 * heads * slots * width)
    assert len(tiles(keys)) == 3
    assert torch.equal(scorer.score(shown), at_once)


def test_only_copies_are_made_in_tiles():
    keys = torch.zeros(3, 1, ON_A_PROCESSOR // 2, 2)
    assert tiles_of_copies(keys) == [slice(0, 3)]
    assert tiles_of_copies(keys.half()) == [slice(0, 1), slice(1, 2), slice(2, 3)]


def test_a_row_larger_than_a_tile_is_a_tile():
    assert tiles(torch.zeros(2, 1, ON_A_PROCESSOR, 2)) == [slice(0, 1), slice(1, 2)]
