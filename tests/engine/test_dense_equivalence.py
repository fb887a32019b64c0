"""Promise 1: budget >= prompt + generation gives the tokens of transformers' own ``generate()``."""

from __future__ import annotations

import pytest
import torch
from presets import alike_groups, evicting_in, policy, runs_on
from tiny import ARCHITECTURES, generated_by_transformers, prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

LENGTH, NEW = 45, 12
# By definition: another softmax, and budgets that follow recovered attention instead of a size.
ONE_OF_EACH_PATH = ("sink", "sink/buzz", "h2o", "caote_snapkv", "keydiff", "ada_snapkv", "hashevict", "kvec", "oracle")
NEVER_DENSE = ("buzz/logn", "fastgen")
FEEDS = [
    Prompting("blocked", 1),
    Prompting("blocked", 7),
    Prompting("blocked", 32),
    Prompting("blocked", 10_000),
    Prompting("one_shot"),
    Prompting("token_fed"),
]


@pytest.fixture(params=ARCHITECTURES, scope="module")
def model(request):
    return tiny_model(request.param)


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_dense_gives_the_tokens_of_generate_whatever_the_blocks(model, feed):
    """policies.md 3.1."""
    tokens = prompt(LENGTH)
    (outcome,) = Engine(model).generate([Request(tokens, DENSE, max_new_tokens=NEW)], feed)
    assert outcome.tokens == generated_by_transformers(model, tokens, NEW)
    assert outcome.ledger.invalid == ""


@pytest.mark.parametrize("feed", [FEEDS[1], *FEEDS[-2:]], ids=str)
def test_every_policy_gives_them_too_when_its_budget_holds_everything(model, feed):
    """policies.md 3.3, T-01."""
    tokens, budget = prompt(LENGTH), max(LENGTH + NEW, 64)
    able = [n for n in evicting_in(feed, budget) if n not in NEVER_DENSE and runs_on(model.config, policy(n))]
    if model.config.model_type != "llama":  # policies see tensors, not architectures: one of each path is enough
        able = [n for n in able if n in ONE_OF_EACH_PATH]
    expected = generated_by_transformers(model, tokens, NEW)
    for alike in alike_groups(able):
        rows = [Request(tokens, policy(name), budget, NEW) for name in alike]
        for name, outcome in zip(alike, Engine(model).generate(rows, feed), strict=True):
            assert outcome.tokens == expected, name
            assert outcome.ledger.tokens_evicted == 0, name
            assert outcome.ledger.invalid == "", name


def test_the_model_is_left_as_it_was(model):
    before = model.config._attn_implementation
    Engine(model).generate([Request(prompt(9), DENSE, max_new_tokens=2)], Prompting())
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_bfloat16_agrees_with_transformers_in_bfloat16(kind):
    # bf16 rounds to 3 digits, so greedy paths of random models may part at a near tie; logits must agree to rounding.
    model = tiny_model(kind, torch.bfloat16)
    tokens = prompt(40)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits.float().log_softmax(-1)[0]
    expected = -logits[:-1].gather(-1, torch.tensor(tokens[1:])[:, None]).squeeze(-1)
    (outcome,) = Engine(model).perplexity([Request(tokens, DENSE)], Prompting("blocked", 7))
    assert torch.tensor(outcome.nll).sub(expected).abs().mean() < 0.05


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_perplexity_without_eviction_is_that_of_one_dense_pass(model, feed):
    tokens = prompt(LENGTH, seed=3)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits.log_softmax(-1)[0]
    expected = -logits[:-1].gather(-1, torch.tensor(tokens[1:])[:, None]).squeeze(-1)
    (outcome,) = Engine(model).perplexity([Request(tokens, DENSE)], feed)
    # Sums of 8 to 48 products in another order: a few ulp of numbers around 10.
    torch.testing.assert_close(torch.tensor(outcome.nll), expected, rtol=1e-4, atol=1e-4)
