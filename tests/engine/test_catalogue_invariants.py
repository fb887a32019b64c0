"""Invariants of policies.md 7 that hold for every policy: budgets, nesting, blocks, isolation, first tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from survivors import ALL, BUDGET, Survivors, able, generated, unlike_dense
from tiny import prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

LENGTH, NEW = 56, 4
BLOCKS, ONE_SHOT, TOKEN_FED = Prompting("blocked", 16), Prompting("one_shot"), Prompting("token_fed")
EVERY = [(name, feed) for feed in (BLOCKS, ONE_SHOT) for name in able(feed)]
EVERY += [(name, TOKEN_FED) for name in able(TOKEN_FED) if "/" not in name]  # the slowest regime: one preset of each
every = pytest.mark.parametrize(("name", "feed"), EVERY, ids=str)


@every
def test_a_budget_for_everything_gives_the_logits_of_dense(name, feed):
    """policies.md T-01: bit-identical to dense with the same blocks and the same positions."""
    if unlike_dense(name):
        pytest.skip("differs from dense without evicting (T-01)")
    chosen = ALL[name]
    seen, outcome = generated(chosen, feed, prompt(LENGTH), LENGTH + NEW, NEW)
    dense, expected = generated(replace(DENSE, rope=chosen.rope), feed, prompt(LENGTH), 0, NEW)
    assert outcome.tokens == expected.tokens
    for ours, theirs in zip(seen.logits, dense.logits, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", [name for name in able(BLOCKS) if name in able(ONE_SHOT)])
@pytest.mark.parametrize("block", [LENGTH, LENGTH + 9])
def test_one_block_is_one_shot(name, block):
    """policies.md T-02: b >= T equals one-shot for every policy that supports both."""
    if name == "oracle":
        pytest.skip("its dense run is read in the same blocks")
    seen, outcome = generated(ALL[name], Prompting("blocked", block), prompt(LENGTH), BUDGET, NEW)
    once, expected = generated(ALL[name], ONE_SHOT, prompt(LENGTH), BUDGET, NEW)
    assert outcome == expected
    assert seen.held == once.held


@every
def test_survivors_are_unique_and_nested(name, feed):
    """policies.md T-03, T-04: kept positions are unique, from the previous ones and the new chunk, never too many."""
    chosen = ALL[name]
    seen, outcome = generated(chosen, feed, prompt(LENGTH), BUDGET, NEW)
    chunks = Request(prompt(LENGTH), chosen, BUDGET, NEW).chunks(feed)
    ends = [stop for _, stop in chunks] + [LENGTH + i for i in range(1, NEW)]
    before = [[[]] * 2] * 3
    start = 0
    for end, layers in zip(ends, seen.held, strict=True):
        for own, old in zip(layers, before, strict=True):
            for head in range(2):
                assert len(own[head]) == len(set(own[head]))
                assert set(own[head]) <= {*old[head], *range(start, end)}
                if chosen.uniform:
                    grown = max(0, end - LENGTH) if chosen.schedule.decode == "never" else 0
                    assert len(own[head]) == min(BUDGET + grown, end)
        before, start = layers, end
    assert outcome.ledger.invalid == ""


@every
def test_a_run_leaves_nothing_behind(name, feed):
    """policies.md T-08, T-13: prompt A and then B equals B alone, to the bit: schedules, accumulators, ties."""
    first, second = (
        Request(prompt(20 + BUDGET, 1), ALL[name], BUDGET, NEW),
        Request(prompt(LENGTH), ALL[name], BUDGET, NEW),
    )
    seen = Survivors()
    engine = Engine(tiny_model("llama"), watchers=[seen])
    engine.generate([first], feed)
    passes = len(seen.held)
    (outcome,) = engine.generate([second], feed)
    alone, expected = generated(ALL[name], feed, prompt(LENGTH), BUDGET, NEW)
    assert outcome == expected
    assert seen.held[passes:] == alone.held
    assert all(torch.equal(a, b) for a, b in zip(seen.logits[passes:], alone.logits, strict=True))


@pytest.mark.parametrize("name", able(ONE_SHOT))
def test_the_first_token_after_one_shot_is_dense(name):
    """policies.md T-14, A-21: logits of the first generated token equal dense."""
    if unlike_dense(name) and not name.startswith("fastgen"):
        pytest.skip("another softmax")
    seen, outcome = generated(ALL[name], ONE_SHOT, prompt(LENGTH), BUDGET, 2)
    dense, _ = generated(replace(DENSE, rope=ALL[name].rope), ONE_SHOT, prompt(LENGTH), 0, 2)
    assert torch.equal(seen.logits[0], dense.logits[0])
    assert seen.held[0] != dense.held[0] or outcome.ledger.tokens_evicted == 0


@pytest.mark.parametrize(("name", "feed"), [(n, f) for n, f in EVERY if f != ONE_SHOT and n != "oracle"], ids=str)
def test_nothing_reads_the_future(name, feed):
    """policies.md T-06: other tokens after a chunk change neither earlier evictions nor earlier predictions."""
    tokens, cut = prompt(LENGTH), 48  # a border between blocks, with evictions before it
    changed = [*tokens[:cut], *prompt(LENGTH - cut, 9)]
    one, other = (
        Engine(tiny_model("llama")).perplexity([Request(t, ALL[name], BUDGET)], feed)[0] for t in (tokens, changed)
    )
    # A prompt read in one pass may add in another order.
    assert one.nll[: cut - 1] == pytest.approx(other.nll[: cut - 1], abs=1e-5)
    assert one.nll[cut - 1 :] != pytest.approx(other.nll[cut - 1 :], abs=1e-5)
