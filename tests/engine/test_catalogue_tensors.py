"""Invariants of policies.md 7 on one layer's tensors: gathered state, slot order, groups, ties, storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch
from against_reference import drawn_chunks, tensors
from raw import run_layer
from survivors import ALL, able
from test_other_policies_equal_reference import PAIRS as OTHERS
from test_other_policies_equal_reference import TOKENS

from harness.engine.requests import Prompting
from policies import Policy, Protect, Schedule
from policies.ada import AdaKV
from policies.caote import CAOTE
from policies.chunkkv import ChunkKV
from policies.cur import CUR
from policies.h2o import H2O
from policies.hashevict import HashEvict
from policies.keydiff import KeyDiff
from policies.l2 import L2
from policies.lagkv import LagKV
from policies.rkv import RKV
from policies.scissorhands import Scissorhands
from policies.scorer import SlotState
from policies.selection import SkipLayers
from policies.snapkv import SnapKV
from policies.tova import TOVA

AFTER, ONCE = Schedule("after_prompt"), Schedule("after_prompt", "never")


@dataclass(frozen=True)
class Carrier:
    """State that knows where it belongs: each slot's position + 1, once as a number and once as a vector."""

    state: ClassVar[Mapping[str, SlotState]] = {"place": SlotState(), "places": SlotState((3,))}
    nonnegative: ClassVar[bool] = True

    def update(self, view):
        place = torch.where(view.state["place"] == 0, (view.positions + 1).float(), view.state["place"])
        wide = view.state["places"]
        return {"place": place, "places": torch.where(wide == 0, place.unsqueeze(-1), wide)}

    def score(self, view):
        return ((view.positions + 3 * torch.arange(2)[:, None]) * 7919 % 101).float() / 101


CARRIED = {
    "uniform": Policy("", Carrier(), protect=Protect(2, 3)),
    "evict first": Policy("", Carrier(), protect=Protect(2, 3), schedule=Schedule("after_prompt", evict_first=True)),
    "ragged": Policy("", Carrier(), allocator=AdaKV(window=0), schedule=ONCE),
    "skipped": Policy("", Carrier(), allocator=SkipLayers((1,)), schedule=AFTER),
}


@pytest.mark.parametrize("name", CARRIED)
def test_state_moves_with_its_slot(name):
    """policies.md T-04: all per-slot state is gathered with the same indices, held against a state that is `pos`, up to
    the last eviction: then nobody reads it any more."""
    sizes = [14, 14, 6] if CARRIED[name].schedule.prompt == "each_block" else [34]
    chunks = tensors(drawn_chunks(1, sizes + [1] * 9, 2, "normal"))
    steps = run_layer(CARRIED[name], chunks, 11, len(sizes))
    evicting = len(sizes) if CARRIED[name].schedule.decode == "never" else len(steps)
    for step in steps[:evicting]:
        for head in range(2):
            assert step.carried("place", head) == {p: p + 1 for p in step.kept[head]}
            assert step.carried("places", head) == {p: [p + 1] * 3 for p in step.kept[head]}


@pytest.mark.parametrize("name", able(Prompting("one_shot")))
def test_decode_does_not_read_the_future(name):
    """policies.md T-06: other tokens from some step on change nothing before it."""
    chunks, other = (tensors(drawn_chunks(seed, [60] + [1] * 6, 2, "normal")) for seed in (2, 3))
    if ALL[name].hindsight or name.startswith(("fastgen", "headkv", "duo", "kvzip")):
        pytest.skip("needs a model, token ids, or a profile of one layer")
    one, changed = (run_layer(ALL[name], each, 40, 1) for each in (chunks, chunks[:4] + other[4:]))
    for a, b in zip(one[:4], changed[:4], strict=True):
        assert a.kept == b.kept
        assert torch.equal(a.output, b.output)


GROUPED = {
    "h2o": H2O(), "h2o-mean": H2O("mean"), "tova": TOVA(), "tova-layer": TOVA("layer"), "keydiff": KeyDiff(),
    "snapkv": SnapKV(4, 3), "snapkv-max": SnapKV(4, 3, "max"), "l2": L2(), "scissorhands": Scissorhands(),
    "lagkv": LagKV(4, 0), "rkv": RKV(4, 3), "cur": CUR(window=4), "chunkkv": ChunkKV(SnapKV(4, 3), 3),
    **{f"hashevict-{rule}": HashEvict(8, group_rule=rule) for rule in ("sum", "mean_query", "min", "majority")},
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("group", [2, 4, 7])
def test_equal_query_heads_are_one_query_head(name, group):
    """policies.md T-07: with all query heads of a group equal, every reduction gives the selection of G = 1."""
    token_by_token = name.startswith("hashevict")
    feed = Prompting("token_fed" if token_by_token else "one_shot")
    schedule = Schedule("each_block" if token_by_token else "after_prompt", evict_first=token_by_token)
    prompt = [9] + [1] * 21 if token_by_token else [30]
    single = drawn_chunks(4, prompt + [1] * 6, 1, "normal")
    grouped = [(np.repeat(query, group, 0), keys, values) for query, keys, values in single]
    chosen = Policy("", GROUPED[name], schedule=schedule)
    lone, many = (run_layer(chosen, tensors(each), 9, len(prompt), feed) for each in (single, grouped))
    assert [step.kept for step in lone] == [step.kept for step in many]


@pytest.mark.parametrize("name", [name for name in GROUPED if name != "tova-layer"])
def test_one_query_head_per_group_is_plain_multi_head_attention(name):
    """policies.md T-07: G = 1 equals MHA, where every head decides as if it were alone."""
    chosen = Policy("", GROUPED[name], schedule=Schedule("each_block", evict_first=name.startswith("hashevict")))
    feed = Prompting("token_fed") if name.startswith("hashevict") else Prompting("blocked", 9)
    chunks = tensors(drawn_chunks(7, [9] + [1] * 20, 1, "normal"))
    both = run_layer(chosen, chunks, 9, 21, feed)
    for head in range(2):
        alone = run_layer(chosen, [tuple(x[head : head + 1] for x in chunk) for chunk in chunks], 9, 21, feed)
        assert [step.kept[0] for step in alone] == [step.kept[head] for step in both]


@pytest.mark.parametrize("name", [name for name in OTHERS if "fastgen" not in name])
def test_equal_inputs_are_decided_by_the_tie_rule_alone(name):
    """policies.md T-08: on equal keys, queries and values both heads keep the same, in every run."""
    pair = OTHERS[name]
    feed = Prompting("blocked", 9) if pair.feed == "blocked" else Prompting(pair.feed)
    sizes = [stop - start for start, stop in feed.chunks(31, 20)]
    chunks = [tuple(torch.ones(heads, m, 8) for heads in (4, 2, 2)) for m in sizes + [1] * 7]
    one, other = (run_layer(pair.fast, chunks, 20, len(sizes), feed, tokens=TOKENS[:38]) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert a.kept[0] == a.kept[1] == b.kept[0] == b.kept[1]
    if name.startswith(("keydiff", "l2", "hashevict")) and name != "l2-skipped":  # their scores are all equal here
        sinks = pair.fast.protect.sinks
        assert one[-1].kept[0] == [*range(sinks), *range(38 - 20 + sinks, 38)]


@dataclass(frozen=True)
class Same:
    """The uniform allocation, written as an allocator: stored packed, and packed again after every chunk."""

    exact: ClassVar[bool] = True

    def targets(self, view, scores, protected):
        return view.per_row(view.budgets).expand(*scores.shape[:2], 1)


STORED = {
    "h2o": Policy("", H2O(), protect=Protect(recent=3), schedule=AFTER),
    "tova": Policy("", TOVA(), schedule=AFTER),
    "snapkv": Policy("", SnapKV(4, 3), protect=Protect(recent=4), schedule=AFTER),
    "keydiff": Policy("", KeyDiff(), schedule=AFTER),
    "caote": Policy("", H2O(), CAOTE(), Protect(recent=3), AFTER),
    "l2": Policy("", L2(), schedule=AFTER),
    "lagkv": Policy("", LagKV(4, 2), protect=Protect(sinks=2), schedule=AFTER),
    "rkv": Policy("", RKV(4, 3), protect=Protect(recent=4), schedule=AFTER),
    "cur": Policy("", CUR(window=4), protect=Protect(sinks=2), schedule=AFTER),
    "chunkkv": Policy("", ChunkKV(KeyDiff(), 3), schedule=AFTER),
}


@pytest.mark.parametrize("name", STORED)
def test_overwriting_slots_equals_compacting_them(name):
    """policies.md T-11: decode in the slots of the evicted equals decode with gathered survivors."""
    chunks = tensors(drawn_chunks(5, [30] + [1] * 30, 2, "normal"))
    overwritten = run_layer(STORED[name], chunks, 12, 1)
    compacted = run_layer(replace(STORED[name], allocator=Same()), chunks, 12, 1)
    moved = 0
    for a, b in zip(overwritten, compacted, strict=True):
        assert a.kept == b.kept
        torch.testing.assert_close(a.output, b.output, rtol=1e-5, atol=1e-5)
        for state in a.state:
            for head in range(2):
                assert a.carried(state, head) == pytest.approx(b.carried(state, head), rel=1e-4)
        assert (b.positions.diff() > 0).all()
        moved += bool((a.positions.diff() < 0).any())
    assert moved  # otherwise the slots never left the order of the text


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_packed_heads_equal_masked_attention(alpha):
    """policies.md T-25: the ragged buffer equals attention over everything with what was dropped masked."""
    chosen = replace(ALL["ada_snapkv"], scorer=SnapKV(4, 3, "max", "prefix"), protect=Protect(recent=4))
    chosen = replace(chosen, allocator=AdaKV(window=4, alpha=alpha))
    chunks = tensors(drawn_chunks(6, [40, 1, 1, 1], 2, "sharp"))
    steps = run_layer(chosen, chunks, 12, 1)
    assert sum(map(len, steps[0].kept)) == 24
    assert (len(steps[0].kept[0]) == 12) == (alpha == 1)
    keys, values = (torch.cat([chunk[i] for chunk in chunks], 1) for i in (1, 2))
    for number, (before, step) in enumerate(pairwise(steps), start=40):
        visible = torch.zeros(2, 1, 43, dtype=torch.bool)
        for head in range(2):
            visible[head, 0, [*before.kept[head], number]] = True
        logits = chunks[number - 39][0] @ keys.repeat_interleave(2, 0).transpose(-1, -2) * 8**-0.5
        weights = logits.masked_fill(~visible.repeat_interleave(2, 0), -torch.inf).softmax(-1)
        torch.testing.assert_close(step.output, weights @ values.repeat_interleave(2, 0), rtol=1e-5, atol=1e-5)
