"""Promise 4: what a row yields does not depend on its company, nor on what ran before."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from presets import alike_groups, evicting_in, policy
from tiny import ARCHITECTURES, VOCABULARY, prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

FEEDS = [Prompting("blocked", 8), Prompting("one_shot"), Prompting("token_fed")]


@pytest.fixture(scope="module")
def engine():
    return Engine(tiny_model("llama"))


def without_repeats(length, seed):
    """For scores that are products of norms: in the first layer a token has the same ones wherever it stands, and the
    last bits, which depend on a batch's shape, would choose between its copies (policies.md 3.21)."""
    return random.Random(f"{seed}/{length}").sample(range(1, VOCABULARY), length)


def mixtures(feed, length=50):
    """Unequal prompts, unequal budgets, many policies and dense: more different than any real batch."""
    for number, alike in enumerate(alike_groups(evicting_in(feed, 64))):
        rope = policy(alike[0]).rope
        rows = [Request(prompt(length - 20, seed), replace(DENSE, rope=rope), max_new_tokens=6) for seed in range(2)]
        for seed, name in enumerate(alike):
            budget = 64 if policy(name).protect.smallest_budget() > 16 else 16
            text = without_repeats if name.startswith("cur") else prompt
            rows.append(Request(text(length + seed, number), policy(name), budget, 8))
            rows.append(Request(text(length - 3, seed), policy(name), budget + 3, 5))
        yield rows


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_a_batch_of_unequal_rows_agrees_with_one_by_one(engine, feed):
    for mixture in mixtures(feed, length=30 if feed.regime == "token_fed" else 50):
        together = engine.generate(mixture, feed)
        alone = [engine.generate([row], feed)[0] for row in mixture]
        assert [outcome.tokens for outcome in together] == [outcome.tokens for outcome in alone]
        assert [outcome.ledger for outcome in together] == [outcome.ledger for outcome in alone]


@pytest.mark.parametrize("feed", FEEDS[::2], ids=str)
def test_perplexity_in_a_batch_agrees_with_one_by_one(engine, feed):
    for mixture in mixtures(feed, length=30):
        together = engine.perplexity(mixture, feed)
        for row, outcome in zip(mixture, together, strict=True):
            (single,) = engine.perplexity([row], feed)
            # Batched matrix products may sum in another order: rounding only.
            assert outcome.nll == pytest.approx(single.nll, abs=1e-4)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_both_hold_for_every_architecture(kind):
    rows = [Request(prompt(41), DENSE, 0, 6)]
    rows += [
        Request(prompt(40 + 9 * i, i), policy(name), 36, 6) for i, name in enumerate(["keydiff", "h2o", "caote_snapkv"])
    ]
    engine, feed = Engine(tiny_model(kind)), Prompting("blocked", 7)
    together = engine.generate(rows, feed)
    alone = [Engine(tiny_model(kind)).generate([row], feed)[0] for row in rows]  # each on a model of its own
    assert [outcome.tokens for outcome in together] == [outcome.tokens for outcome in alone]
    one_after_another = [engine.generate([row], feed)[0] for row in rows]
    assert one_after_another == alone


def test_a_sample_after_another_equals_the_sample_alone(engine):
    """policies.md T-13."""
    first, second = (Request(prompt(60, seed), policy("h2o"), 20, 6) for seed in (1, 2))
    fresh = Engine(tiny_model("llama")).generate([second], FEEDS[0])
    engine.generate([first], FEEDS[0])
    assert engine.generate([second], FEEDS[0]) == fresh


def test_outcomes_come_in_the_order_of_the_rows(engine):
    rows = [
        Request(prompt(20 + 7 * i, i), policy(name), 36, 3) for i, name in enumerate(["tova", "sink", "tova", "h2o"])
    ]
    alone = [engine.generate([row], FEEDS[0])[0].tokens for row in rows]
    assert [outcome.tokens for outcome in engine.generate(rows, FEEDS[0])] == alone


def test_a_row_stops_at_the_models_stop_token_without_touching_its_neighbours(engine):
    rows = [Request(prompt(30, seed), policy("keydiff"), 12, 10) for seed in range(3)]
    free = engine.generate(rows, FEEDS[0])
    stop = free[1].tokens[4]
    stopping = Engine(engine.model, [stop]).generate(rows, FEEDS[0])
    for before, after in zip(free, stopping, strict=True):
        cut = before.tokens.index(stop) if stop in before.tokens else len(before.tokens)
        assert after.tokens == before.tokens[:cut]
