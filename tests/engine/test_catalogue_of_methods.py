"""Items of policies.md 7 on single methods, from attention to survivors (3.11 to 3.18)."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from math import log

import numpy as np
import pytest
import torch
from against_reference import drawn_chunks, tensors
from presets import policy
from raw import run_layer, run_layers
from scripted import scripted
from survivors import ALL, generated
from test_other_policies_equal_reference import TOKENS
from test_other_policies_equal_reference import fastgen as fastgen_pair
from tiny import prompt

from harness.config.head_profiles import read
from harness.engine.requests import Prompting
from policies import DENSE, Policy, Protect, Schedule
from policies.buzz import Buzz
from policies.caote import CAOTE
from policies.h2o import H2O
from policies.hashevict import HashEvict
from policies.headkv import prefix_slots
from policies.kvec import KVec
from policies.scissorhands import Scissorhands
from policies.structure import StructuralPolicy

ONE_SHOT, TOKEN_FED = Prompting("one_shot"), Prompting("token_fed")
ONCE = Schedule(prompt="after_prompt", decode="never")
FIRST = Schedule("after_prompt", evict_first=True)


def test_head_budgets_follow_the_keys_of_the_file(tmp_path):
    """policies.md 3.9, T-26: means of the lists, shares of all heads, raised to temp; `layer-head` says whose."""
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"1-0": [2.0], "0-1": [1.0, 3.0], "1-1": [4.0], "0-0": [0.0, 4.0, 2.0]}))
    importance = read(str(file)).importance
    for temp, shares in ((1.0, (0.2, 0.2, 0.2, 0.4)), (2.0, (1 / 7, 1 / 7, 1 / 7, 4 / 7))):
        slots = prefix_slots(importance, 2, 120, 1.2, temp, "public_code")
        assert sum(slots, ()) == tuple(round(400 * share + 20) for share in shares)


def test_one_observation_evicts_below_uniform():
    """policies.md 3.11, T-28: history 1 without protection evicts a token below uniform, the oldest of them."""
    chunks = tensors(drawn_chunks(9, [10] + [1] * 8, 2, "normal"))
    steps = run_layer(Policy("", Scissorhands(1), schedule=FIRST), chunks, 10, 1)
    keys = torch.cat([chunk[1] for chunk in chunks], 1)
    for chunk, before, step in zip(chunks[1:], steps[1:], steps[2:], strict=False):
        for head in range(2):
            seen = before.kept[head]
            attention = (chunk[0][2 * head : 2 * head + 2, 0] @ keys[head, seen].T * 8**-0.5).softmax(-1).mean(0)
            low = [place for place, share in zip(seen, attention.tolist(), strict=True) if share < 1 / 10]
            assert set(seen) - set(step.kept[head]) == {min(low)}


@pytest.mark.parametrize("steps", [399, 400, 401])
def test_the_ring_wraps_at_400(steps):
    """policies.md 3.11, T-28: the step 400 later overwrites the bit, and the score divides by at most 400."""
    scorer = Scissorhands()
    decode = [tuple(torch.zeros(1, 1, 2) for _ in range(3))] * steps
    uniform = run_layer(Policy("", scorer), [tuple(torch.zeros(1, 2, 2) for _ in range(3)), *decode], 999, 1)
    ring, seen = uniform[-1].state["ring"][0], uniform[-1].state["observations"][0]
    bits = sum(int(octet).bit_count() if hasattr(int, "bit_count") else bin(int(octet)).count("1") for octet in ring[0])
    assert seen[0] == steps + 1
    assert bits == min(steps + 1, 400)


def test_a_new_occupant_starts_empty():
    """policies.md 3.11, T-28: one eviction per step, and the freed slot's ring and count are cleared."""
    chosen = Policy("", Scissorhands(), protect=Protect(1, 2), schedule=FIRST)
    steps = run_layer(chosen, tensors(drawn_chunks(1, [8] + [1] * 6, 2, "normal")), 8, 1)
    for number, (before, step) in enumerate(pairwise(steps)):
        for head in range(2):
            assert len(set(before.kept[head]) - set(step.kept[head])) == 1
            assert step.carried("observations", head)[8 + number] == 1
            written = [octet for octet in step.carried("ring", head)[8 + number] if octet]
            assert len(written) <= 1
            assert {0, 6 + number, 7 + number} <= set(step.kept[head])


def test_masses_are_those_of_masked_attention():
    """policies.md 3.12, T-29: column sums and their band give the mass of any set and window."""
    seen = []

    class Asking(H2O):
        def update(self, view):
            window = torch.full((1, 1, 1), 4)
            seen.append((view.attention.received("all"), view.attention.received_within(window)))
            return super().update(view)

    ((query, keys, values),) = tensors(drawn_chunks(2, [17], 2, "sharp"))
    run_layer(Policy("", Asking()), [(query, keys, values)], 17, 1)
    logits = query @ keys.repeat_interleave(2, 0).transpose(-1, -2) * 8**-0.5
    visible = torch.ones(17, 17, dtype=torch.bool).tril()
    attention = logits.masked_fill(~visible, -torch.inf).softmax(-1).view(2, 2, 17, 17).mean(1)
    static = torch.zeros(17, dtype=torch.bool)
    static[[0, 1, 5, 11]] = True
    covered = static | (visible & ~visible.tril(-4))  # columns of the set, and i - j < 4
    direct = (attention * covered).sum((1, 2)) / 17
    columns, band = (sums[0] for sums in seen[0])
    assert torch.allclose(torch.where(static, columns, band).sum(-1) / 17, direct, atol=1e-6)


def test_heads_of_different_hybrids_differ_in_length():
    """policies.md 3.12, T-29: head 0 attends to itself and needs a window; head 1 attends to token 0 only."""
    total = 20
    rows = torch.stack([torch.eye(total), torch.eye(total)[0].expand(total, total)])
    chosen = fastgen_pair(sinks=1).fast
    (step,) = run_layer(chosen, scripted([rows.numpy()], heads=2), total, 1, ONE_SHOT, tokens=TOKENS[:total])
    assert [step.carried("hybrid", head)[0] for head in range(2)] == [4, 1]
    assert len(step.kept[0]) > len(step.kept[1])


def test_punctuation_grows_with_the_text():
    """policies.md 3.12, T-29: heads that keep punctuation take in all of it, and full heads everything."""
    chunks = tensors(drawn_chunks(3, [30] + [1] * 12, 2, "normal"))
    marks = {place for place in range(42) if TOKENS[place] in (1, 2)}
    assert marks - set(range(30))
    pair = fastgen_pair(recovery=1.1)
    full = run_layer(pair.fast, chunks, 30, 1, ONE_SHOT, tokens=TOKENS[:42])
    assert full[-1].kept == [list(range(42))] * 2
    heavy = run_layer(fastgen_pair(recovery=0.5).fast, chunks, 30, 1, ONE_SHOT, tokens=TOKENS[:42])
    for head in range(2):
        assert heavy[-1].carried("hybrid", head)[0] in (2, 3, 4)
        assert marks <= set(heavy[-1].kept[head])


@pytest.mark.parametrize("hash_of", ["query", "key"])
def test_one_pass_gives_the_outputs_of_token_by_token(hash_of, monkeypatch):
    """policies.md 3.14, T-31: eviction steps give the sequential sets and outputs within 1e-6; at most C slots live."""
    scorer = HashEvict(8, hash_of)
    chosen = Policy("", scorer, protect=Protect(2, 3), schedule=Schedule("each_block", evict_first=True))
    whole = drawn_chunks(4, [40], 2, "normal")[0]
    cut = [tuple(x[:, :9] for x in whole), *(tuple(x[:, i : i + 1] for x in whole) for i in range(9, 40))]
    at_once = run_layer(chosen, tensors([whole]), 9, 1, TOKEN_FED)
    monkeypatch.setattr(Policy, "attention_free", False)
    one_by_one = run_layer(chosen, tensors(cut), 9, len(cut), TOKEN_FED)
    assert at_once[0].kept == one_by_one[-1].kept
    outputs = torch.cat([step.output for step in one_by_one], 1)
    assert (at_once[0].output - outputs).abs().max() < 1e-6
    for number, step in enumerate(one_by_one[1:], start=9):
        assert [len(own) for own in step.kept] == [9, 9]
        assert all({0, 1, number - 2, number - 1, number} <= set(own) for own in step.kept)


def test_released_code_truncates_the_prompt():
    """policies.md 3.14: no prompt strategy keeps the first 4 and the last C - 4 tokens."""
    (step,) = run_layer(policy("hashevict/released-code"), tensors(drawn_chunks(5, [40], 2, "normal")), 20, 1, ONE_SHOT)
    assert step.kept == [[*range(4), *range(24, 40)]] * 2


def test_caote_carries_the_accumulator_of_its_base():
    """policies.md 3.16, T-33: the raw accumulator is carried, never c."""
    chunks = tensors(drawn_chunks(6, [9, 1, 1], 2, "normal"))
    plain, corrected = (run_layer(Policy("", H2O(), c), chunks, 11, 1) for c in (None, CAOTE()))
    for a, b in zip(plain, corrected, strict=True):
        assert torch.equal(a.state["received"], b.state["received"])


def test_log_n_scales_by_the_slots_attended():
    """policies.md 3.17, T-34: softmax(ln n / ln 512 QK): 1 at n = 512, flatter below, uniform over one slot."""
    for n in (1, 12, 512, 600):
        ((query, keys, values),) = tensors(drawn_chunks(7, [n], 1, "normal"))
        (scaled,) = run_layer(replace(DENSE, logit_scale="log512"), [(query, keys, values)], 0, 1)
        (expected,) = run_layer(DENSE, [(query * (log(n) / log(512)), keys, values)], 0, 1)
        torch.testing.assert_close(scaled.output, expected.output, rtol=1e-5, atol=1e-5)
        (unscaled,) = run_layer(DENSE, [(query, keys, values)], 0, 1)
        assert torch.allclose(scaled.output, unscaled.output, atol=1e-6) == (n in (1, 512))


def test_buzz_without_a_threshold_to_reach_is_dense():
    """policies.md 3.17: T_thr beyond the text gives dense, in cache positions too."""
    chosen = StructuralPolicy("", structure=Buzz(window=4, threshold=999), schedule=Schedule("after_prompt"))
    chunks = tensors(drawn_chunks(8, [60] + [1] * 9, 2, "normal"))
    for a, b in zip(run_layer(chosen, chunks, 20, 1), run_layer(DENSE, chunks, 0, 1), strict=True):
        assert a.kept == b.kept
        torch.testing.assert_close(a.output, b.output)


def test_counters_equal_a_recount():
    """policies.md 3.18, T-35: after each layer cnt is the number of layers that kept the token in some head."""
    counted = []

    class Counting(KVec):
        def score(self, view):
            counted.append(view.kept_before[0].tolist())
            return super().score(view)

    chosen = Policy("", Counting(O=4, O_prime=8, delta=1), protect=Protect(recent=4), schedule=ONCE)
    drawn = [tensors(drawn_chunks(seed, [40], 2, "normal")) for seed in range(4)]
    layers = run_layers(chosen, drawn, 12, 1, ONE_SHOT)
    recount = np.zeros(40, dtype=int)
    for before, (step,) in zip(counted, layers, strict=True):
        assert before[:40] == recount.tolist()
        recount[sorted({place for own in step.kept for place in own})] += 1


def test_coverage_is_the_share_of_tokens_held_anywhere():
    """policies.md 3.18, T-35: unique prompt tokens kept by some layer and head, over T."""
    seen, outcome = generated(ALL["kvec"], ONE_SHOT, prompt(60), 12, 1)
    held = {place for layer in seen.held[0] for own in layer for place in own}
    assert 12 < len(held) < 60
    assert outcome.ledger.coverage == pytest.approx(len(held) / 60)


@pytest.mark.parametrize("total", [11, 12])
def test_a_prompt_that_fits_is_left_alone(total):
    """policies.md 3.18: if T <= C nothing, and no counters either."""
    chosen = Policy("", KVec(O=4, O_prime=8, delta=1), protect=Protect(recent=4), schedule=ONCE)
    for (step,) in run_layers(chosen, [tensors(drawn_chunks(s, [total], 2, "normal")) for s in (1, 2)], 12, 1):
        assert step.kept == [list(range(total))] * 2
