"""T-31 of policies.md: a token-fed prompt read in one pass equals the same prompt fed token by token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from presets import policy
from tiny import ARCHITECTURES, prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import Policy
from policies.hashevict import HashEvict

TOKEN_FED = Prompting("token_fed")
SMALL = replace(policy("hashevict"), protect=replace(policy("hashevict").protect, sinks=2, recent=3))
NAMED = {
    "query": SMALL,
    "8 bits": replace(SMALL, scorer=HashEvict(bits=8)),
    "key": replace(SMALL, scorer=HashEvict(hash_of="key")),
    "min": replace(SMALL, scorer=HashEvict(group_rule="min")),
}


@pytest.fixture
def token_by_token(monkeypatch):
    """Make the engine feed such prompts token by token."""

    def forget():
        monkeypatch.setattr(Policy, "attention_free", False)

    return forget


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("name", NAMED)
def test_same_tokens_and_same_ledger(kind, name, token_by_token):
    """policies.md 3.14, T-31."""
    # Unequal lengths, so that padding takes part; one prompt fits its budget and evicts nothing. Rows of one length and
    # budget are simulated together, others apart.
    model = tiny_model(kind)
    sizes = ((40, 14, 1), (33, 14, 2), (40, 14, 3), (12, 14, 4), (40, 9, 5))  # prompt, budget, seed
    rows = [Request(prompt(length, seed), NAMED[name], budget, 6) for length, budget, seed in sizes]
    assert len(rows[0].chunks(TOKEN_FED)) == 1
    at_once = Engine(model).generate(rows, TOKEN_FED)
    token_by_token()
    one_by_one = Engine(model).generate(rows, TOKEN_FED)
    for fast, slow in zip(at_once, one_by_one, strict=True):
        assert fast.tokens == slow.tokens
        assert fast.ledger == replace(slow.ledger, policy_calls=fast.ledger.policy_calls)
        assert fast.ledger.invalid == ""


def test_same_likelihoods(token_by_token):
    """policies.md 3.14, T-31."""
    model = tiny_model("llama")
    rows = [Request(prompt(length, length), SMALL, 14) for length in (40, 31)]
    at_once = Engine(model).perplexity(rows, TOKEN_FED)
    token_by_token()
    for fast, slow in zip(at_once, Engine(model).perplexity(rows, TOKEN_FED), strict=True):
        assert fast.nll == pytest.approx(slow.nll, abs=1e-4)  # rounding of fp32 sums


def test_the_peak_is_the_budget(token_by_token):
    """policies.md 3.14, T-31."""
    (outcome,) = Engine(tiny_model("llama")).generate([Request(prompt(40), SMALL, 14, 6)], TOKEN_FED)
    assert outcome.ledger.slots_peak == outcome.ledger.slots_kept_max == 14
