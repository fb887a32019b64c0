"""Worked examples and checks of policies.md 3.1 to 3.5, from attention to survivors."""

from __future__ import annotations

import math

import pytest
import torch
from against_reference import drawn_chunks, tensors
from presets import policy
from raw import run_layer
from scripted import scripted, uniform_prompt

from harness.engine.requests import Prompting
from policies import DENSE, Policy, Protect, Schedule
from policies.baselines import Recency
from policies.h2o import H2O
from policies.tova import TOVA

TWO_BLOCKS = [[[[1, 0], [0.6, 0.4]]], [[[0.5, 0.3, 0.2, 0], [0.2, 0.1, 0.3, 0.4]]]]


def received(step, head=0):
    return list(step.carried("received", head).values())


def test_dense_blocks_are_one_pass():
    """policies.md 3.1: chunked prefill is mathematically identical to one-shot prefill, and nothing is evicted."""
    whole = tensors(drawn_chunks(1, [30], 2, "normal"))
    parts = [tuple(x[:, start : start + 7] for x in whole[0]) for start in range(0, 30, 7)]
    once, blocks = run_layer(DENSE, whole, 0, 1), run_layer(DENSE, parts, 0, len(parts))
    torch.testing.assert_close(torch.cat([step.output for step in blocks], 1), once[0].output, rtol=1e-5, atol=1e-5)
    assert blocks[-1].kept == [list(range(30))] * 2


@pytest.mark.parametrize("sinks", [0, 4])
def test_exact_sets_after_every_chunk(sinks):
    """policies.md 3.2, 3.3, T-20: {t-N+1..t} for the window, {0..3} and {t-N+5..t} with sinks, in every head."""
    sizes = [8, 8, 5, 1, 1]
    chosen = Policy("", Recency(), protect=Protect(sinks=sinks))
    steps = run_layer(chosen, tensors(drawn_chunks(2, sizes, 2, "normal")), 6, 3)
    for number, step in enumerate(steps):
        end = sum(sizes[: number + 1])
        assert step.kept == [[*range(sinks), *range(end - 6 + sinks, end)]] * 2


def test_no_sinks_is_the_window():
    """policies.md 3.3, T-20: with n_sink = 0 identical to the window, outputs included."""
    chunks = tensors(drawn_chunks(3, [9, 9, 1, 1], 2, "normal"))
    sink, window = Policy("", Recency(), protect=Protect(sinks=0)), policy("window")
    for a, b in zip(run_layer(sink, chunks, 7, 2), run_layer(window, chunks, 7, 2), strict=True):
        assert a.kept == b.kept
        assert torch.equal(a.output, b.output)


@pytest.mark.parametrize(("recent", "survivors"), [(0, [0, 1]), (0.5, [0, 3])])
def test_h2o_over_two_blocks(recent, survivors):
    """policies.md 3.4, T-21: acc (1.6, .4), then (2.3, .8, .5, .4), and who survives at N = 2."""
    unlimited = run_layer(Policy("", H2O()), scripted(TWO_BLOCKS), 9, 2)
    assert received(unlimited[0]) == pytest.approx([1.6, 0.4])
    assert received(unlimited[1]) == pytest.approx([2.3, 0.8, 0.5, 0.4])
    limited = run_layer(Policy("", H2O(), protect=Protect(recent=recent)), scripted(TWO_BLOCKS), 2, 2)
    assert limited[1].kept == [survivors]


def test_h2o_freezes():
    """policies.md 3.4, T-21: the newest token is evicted at once, acc (2.7, 1.0) stays."""
    row = [[[0.4, 0.2, 0, 0, 0.4]]]
    steps = run_layer(Policy("", H2O()), scripted([*TWO_BLOCKS, row]), 2, 2)
    assert steps[2].kept == [[0, 1]]
    assert received(steps[2]) == pytest.approx([2.7, 1.0])


@pytest.mark.parametrize("sizes", [[20], [5] * 4, [7, 7, 6], [1] * 20])
def test_accumulators_do_not_depend_on_blocks(sizes):
    """policies.md 3.4, T-21: acc grows by m per chunk, and is the full column sum however the prompt is cut."""
    ((query, keys, values),) = tensors(drawn_chunks(4, [20], 3, "normal"))
    logits = query @ keys.repeat_interleave(3, 0).transpose(-1, -2) / math.sqrt(8)
    visible = torch.ones(20, 20, dtype=torch.bool).tril()
    whole = logits.masked_fill(~visible, -torch.inf).softmax(-1).sum(1).view(2, 3, 20).mean(1)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    parts = [tuple(x[:, a : a + m] for x in (query, keys, values)) for a, m in zip(starts, sizes, strict=True)]
    steps = run_layer(Policy("", H2O()), parts, 20, len(parts))
    for step, start, m in zip(steps, starts, sizes, strict=True):
        for head in range(2):
            assert sum(received(step, head)) == pytest.approx(start + m, rel=1e-5)
    for head in range(2):
        assert received(steps[-1], head) == pytest.approx(whole[head].tolist(), abs=1e-5)


def test_means_count_the_prompt_once():
    """policies.md 3.4: column sum over T - pos as one observation, and one more row and count per decode step."""
    chosen = Policy("", H2O("mean"), schedule=Schedule("after_prompt"))
    rows = [uniform_prompt(3), [[[0.1, 0.2, 0.3, 0.4]]]]
    steps = run_layer(chosen, scripted(rows), 9, 1)
    means = [(1 + 1 / 2 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 2, 1 / 3]
    assert received(steps[0]) == pytest.approx(means)
    assert steps[0].carried("observations", 0) == {0: 1, 1: 1, 2: 1}
    assert received(steps[1]) == pytest.approx([means[0] + 0.1, means[1] + 0.2, means[2] + 0.3, 0.4])
    assert steps[1].carried("observations", 0) == {0: 2, 1: 2, 2: 2, 3: 1}


def test_cold_compress_protects_and_evicts_first():
    """policies.md 3.4: sinks 4 and recent 10 stay, never more than N slots in decode (order EAA)."""
    chunks = tensors(drawn_chunks(5, [40] + [1] * 6, 2, "normal"))
    steps = run_layer(policy("h2o/coldcompress"), chunks, 24, 1)
    for number, step in enumerate(steps[1:]):
        for own in step.kept:
            assert len(own) == 24
            assert {*range(4), *range(40 + number - 10, 41 + number)} <= set(own)


def prompt_ending_in(rows, heads=1):
    """A prompt of four tokens whose last rows, one per query head, are given."""
    uniform = uniform_prompt(4)[0]
    return scripted([[[*uniform[:3], row] for row in rows]], heads)


def test_tova_averages_the_group():
    """policies.md 3.5, T-22: the mean row (.40, .15, .20, .25) of a group of two keeps {0, 3}."""
    prompt = prompt_ending_in([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
    assert run_layer(Policy("", TOVA()), prompt, 2, 1)[0].kept == [[0, 3]]


@pytest.mark.parametrize(("heads", "survivors"), [("kv", [[0, 3], [1, 3]]), ("layer", [[0, 3], [0, 3]])])
def test_tova_per_head_and_per_layer(heads, survivors):
    """policies.md 3.5, T-22: own sets per KV head, or one index set shared by the layer."""
    prompt = prompt_ending_in([[0.5, 0.04, 0.16, 0.3], [0.1, 0.45, 0.15, 0.3]], heads=2)
    assert run_layer(Policy("", TOVA(heads)), prompt, 2, 1)[0].kept == survivors


def test_tova_presets_coincide_with_one_head():
    """policies.md 3.5: with one KV head keydiff and original coincide."""
    chunks = [tuple(x[:n] for x, n in zip(c, (3, 1, 1), strict=True)) for c in drawn_chunks(6, [20, 1, 1], 3, "sharp")]
    one_shot = Prompting("one_shot")
    a, b = (run_layer(policy(name), tensors(chunks), 9, 1, one_shot) for name in ("tova/keydiff", "tova/original"))
    assert [step.kept for step in a] == [step.kept for step in b]


def test_tova_scores_sum_to_one():
    """policies.md 3.5: the last row's probabilities sum to 1 per head."""
    sums = []

    class Watched(TOVA):
        def score(self, view):
            sums.append(super().score(view).sum(-1))
            return super().score(view)

    run_layer(Policy("", Watched()), tensors(drawn_chunks(7, [9, 9, 1], 2, "sharp")), 7, 2)
    assert torch.allclose(torch.stack(sums), torch.ones(()))


def test_tova_may_evict_the_current_token():
    """policies.md 3.5: nothing is protected, the new token least of all."""
    rows = [[[[1, 0], [0.5, 0.5]]], [[[0.6, 0.3, 0.1]]]]
    assert run_layer(Policy("", TOVA()), scripted(rows), 2, 1)[1].kept == [[0, 1]]
