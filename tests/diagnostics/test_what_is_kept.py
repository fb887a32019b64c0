"""Kept positions, coverage and overlap: known answers and direct counts."""

from __future__ import annotations

from itertools import combinations

import pytest
from diagnostics.runs import BLOCKS, LENGTH, frames

from harness.engine.requests import Prompting

LAYERS, HEADS = 3, 2


def test_the_window_keeps_the_newest_tokens_everywhere():
    kept = frames("window", 10, "kept")["kept"]
    for (step, _, _), part in kept.groupby(["step", "layer", "head"]):
        stop = (step + 1) * 8
        assert part["position"].tolist() == list(range(max(0, stop - 10), stop))
    assert kept.groupby("step")["fed"].first().tolist() == [8, 16, 24, 32, 40]


@pytest.mark.parametrize("budget", [8, 10, 40, 99])
def test_the_windows_coverage_is_its_budget(budget):
    coverage = frames("window", budget, "coverage")["coverage"]
    last = coverage[coverage["step"] == 4]
    assert set(last["coverage"]) == {min(budget, LENGTH) / LENGTH}
    assert last["layer"].tolist() == [-1, *range(LAYERS)]


def test_decode_steps_follow_the_prompt():
    found = frames("window", 10, "kept", "coverage", prompting=Prompting("one_shot"), continuation=[5, 6, 7])
    kept, coverage = found["kept"], found["coverage"]
    assert kept.groupby("step")["phase"].first().tolist() == ["prompt", "decode", "decode", "decode"]
    assert kept[kept["step"] == 3]["position"].max() == LENGTH + 2
    overall = coverage[coverage["layer"] == -1]
    assert overall["covered"].tolist() == [10, 9, 8, 7]  # of the prompt
    assert set(overall["tokens"]) == {LENGTH}


@pytest.mark.parametrize(
    ("name", "held"),
    [("window", [10, 10, 10, 10]), ("keydiff/kvpress", [30, 31, 32, 33])],  # the latter evicts nothing in decode
)
def test_memory_is_what_is_held_and_what_is_gone_after_every_step(name, held):
    feed, fed = Prompting("one_shot"), [LENGTH + step for step in range(4)]
    memory = frames(name, held[0], "memory", prompting=feed, continuation=[5, 6, 7])["memory"]
    assert memory["fed"].tolist() == fed
    assert memory["answer"].tolist() == [0, 1, 2, 3]
    assert memory["held"].tolist() == memory["most"].tolist() == held
    assert memory["evicted"].tolist() == [tokens - slots for tokens, slots in zip(fed, held, strict=True)]


@pytest.mark.parametrize("name", ["keydiff", "snapkv", "pyramidkv", "random"])
def test_coverage_and_overlap_are_counts_over_kept(name):
    feed = Prompting("one_shot") if name == "pyramidkv" else BLOCKS
    found = frames(name, 33, "kept", "coverage", "overlap", prompting=feed)
    kept, coverage, overlap = (found[each] for each in ("kept", "coverage", "overlap"))
    for (step, layer), part in kept.groupby(["step", "layer"]):
        row = coverage[(coverage["step"] == step) & (coverage["layer"] == layer)].iloc[0]
        assert row["covered"] == part["position"].nunique()
        assert row["coverage"] == row["covered"] / part["fed"].iloc[0]
        heads = [set(head["position"]) for _, head in part.groupby("head")]
        pairs = overlap[(overlap["step"] == step) & (overlap["layer"] == layer)]
        expected = [(len(a & b), len(a & b) / len(a | b)) for a, b in combinations(heads, 2)]
        assert pairs["shared"].tolist() == [shared for shared, _ in expected]
        assert pairs["jaccard"].tolist() == pytest.approx([share for _, share in expected])
    for step, part in kept.groupby("step"):
        row = coverage[(coverage["step"] == step) & (coverage["layer"] == -1)].iloc[0]
        assert row["covered"] == part["position"].nunique()


def test_equal_heads_overlap_fully():
    assert set(frames("window", 10, "overlap")["overlap"]["jaccard"]) == {1.0}


def test_policies_with_positions_in_the_cache_have_what_needs_no_attention():
    found = frames("buzz", 34, "kept", "coverage", "prediction", prompting=Prompting("one_shot"), continuation=[5, 6])
    assert all(len(frame) for frame in found.values())
    with pytest.raises(ValueError, match=r"set policy\.rope=absolute and policy\.logit_scale=none"):
        frames("buzz", 34, "kept", "lsh", prompting=Prompting("one_shot"))
