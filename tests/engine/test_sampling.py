"""Drawn tokens follow the model's distribution as transformers would cut it, and a row's draws are its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from presets import policy
from tiny import prompt, tiny_model
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

from harness.engine.decode.decode_batch import RandomSampler, nucleus
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

BLOCKED = Prompting("blocked", 8)
NEW = 12
DRAWS = 4000


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def logits():
    return torch.randn(200, generator=torch.Generator().manual_seed(3)) * 3


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95, 1.0])
def test_the_tokens_that_may_be_drawn_are_those_of_transformers(logits, temperature, top_p):
    scaled = TemperatureLogitsWarper(temperature)(None, logits.double()[None])
    expected = TopPLogitsWarper(top_p)(None, scaled)[0].softmax(-1)
    tokens, mass = nucleus(logits, temperature, top_p)
    found = torch.zeros_like(expected)
    found[tokens] = torch.diff(mass, prepend=mass.new_zeros(1)) / mass[-1]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)  # the same sums in another order, in fp64


def test_draws_have_the_frequencies_of_their_probabilities(logits):
    row = Request(prompt(4), DENSE, max_new_tokens=DRAWS + 1, temperature=1.5, top_p=0.9, seed=5)
    sampler = RandomSampler(row, frozenset())
    drawn = torch.tensor([sampler.next(0, logits) for _ in range(DRAWS)])
    tokens, mass = nucleus(logits, 1.5, 0.9)
    expected = torch.diff(mass, prepend=mass.new_zeros(1)) / mass[-1]
    counted = torch.stack([(drawn == token).double().mean() for token in tokens])
    assert counted.sum() == 1, "nothing else is drawn"
    deviations = (counted - expected) / (expected * (1 - expected) / DRAWS).sqrt()
    assert deviations.abs().max() < 4.5  # normal deviates; the seed is fixed


def sampled(seed: int, **settings) -> Request:
    return Request(prompt(30), **{"policy": policy("keydiff"), "budget": 24, "temperature": 1.0, **settings}, seed=seed,
                   max_new_tokens=NEW)  # fmt: skip


def answers(model, rows) -> list[list[int]]:
    return [outcome.tokens for outcome in Engine(model).generate(rows, BLOCKED)]


def test_a_row_draws_the_same_in_any_company(model):
    rows = [sampled(seed) for seed in range(4)]
    together = answers(model, [*rows, Request(prompt(30), policy("keydiff"), 24, NEW)])
    assert together[:4] == [answers(model, [row])[0] for row in rows]
    assert together[:4] == answers(model, rows[::-1])[::-1]
    assert len({tuple(tokens) for tokens in together}) == 5, (
        "other seeds draw other answers, and greedy is none of them"
    )


def test_cold_or_narrow_draws_are_greedy(model):
    greedy = answers(model, [Request(prompt(30), policy("keydiff"), 24, NEW)])
    assert answers(model, [sampled(1, temperature=1e-4)]) == greedy
    assert answers(model, [sampled(1, top_p=1e-6)]) == greedy


def test_policies_draw_at_the_same_points(model):
    """A budget that holds everything gives the answer of the dense cache, draw for draw."""
    dense = answers(model, [sampled(seed, policy=DENSE, budget=0) for seed in range(3)])
    assert answers(model, [sampled(seed, budget=64) for seed in range(3)]) == dense
    assert answers(model, [sampled(seed) for seed in range(3)]) != dense


def test_stop_tokens_are_not_drawn_too_early(model):
    free = answers(model, [sampled(2)])[0]
    stops = frozenset(free[:3])
    early = replace(sampled(2), stops=stops)
    assert answers(model, [early]) == [[]]
    kept = answers(model, [replace(early, min_new_tokens=5)])[0]
    assert len(kept) >= 5
    assert not stops & set(kept)


def test_the_oracle_foresees_the_drawn_answer(model):
    """Its dense run draws what the row would draw: with a budget for everything nothing changes, seed by seed."""
    rows = [sampled(seed, policy=policy("oracle"), budget=64) for seed in range(3)]
    assert answers(model, rows) == answers(model, [replace(row, policy=DENSE, budget=0) for row in rows])
    tight = [replace(row, budget=16) for row in rows]
    assert answers(model, tight) == [answers(model, [row])[0] for row in tight]
