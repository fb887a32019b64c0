"""The ledger's `tokens_reread`: what the model is fed beside a row's own passes, counted where tokens enter it."""

from __future__ import annotations

import pytest
from presets import EVICTING, policy
from tiny import prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import RepeatPrompt, Request, natural_regime

LENGTH, BUDGET = 240, 120  # above what presets protect; repeated within the 512 positions of the model
ASKED = RepeatPrompt(first=(5, 6, 7), later=(8, 9), answer=(10,))
QUESTION = prompt(9, 2)


@pytest.fixture(scope="module")
def counted():
    """An engine, and the list of how many tokens each pass has embedded."""
    model, fed = tiny_model("llama"), []
    model.get_input_embeddings().register_forward_pre_hook(lambda _, args: fed.append(args[0].numel()))
    return Engine(model), fed


@pytest.mark.parametrize("name", EVICTING)
def test_every_token_is_the_rows_own_or_read_again_for_its_policy(counted, name):
    """One new token, which is never fed: the row's own tokens are those of its prompt that it reads."""
    engine, fed = counted
    row = Request(prompt(LENGTH), policy(name), BUDGET, 1, repeat=ASKED)
    fed.clear()
    (outcome,) = engine.generate([row], natural_regime(row.policy, 16))
    own = BUDGET if row.policy.token_filter else LENGTH  # what GemFilter leaves out is read by its first pass alone
    assert outcome.ledger.tokens_reread == sum(fed) - own
    reread = row.policy.token_filter or row.policy.repeats or row.policy.hindsight
    assert (outcome.ledger.tokens_reread > 0) == bool(reread)


@pytest.mark.parametrize("name", ["oracle", "kvzip", "gemfilter"])
def test_a_question_that_comes_later_is_read_again_by_the_oracle_alone(counted, name):
    """KVzip repeats the context and GemFilter filters it before any question; the oracle's dense run reads both."""
    engine, fed = counted
    row = Request(prompt(LENGTH), policy(name), BUDGET, 1, question=QUESTION, repeat=ASKED)
    fed.clear()
    (outcome,) = engine.generate([row], natural_regime(row.policy, 16, "context"))
    own = (BUDGET if name == "gemfilter" else LENGTH) + len(QUESTION)
    assert outcome.ledger.tokens_reread == sum(fed) - own


@pytest.mark.parametrize("name", ["kvzip", "gemfilter"])
def test_no_first_pass_where_the_budget_holds_the_prompt(counted, name):
    """GemFilter filters nothing then. KVzip's repetition is made all the same, and counted."""
    engine, fed = counted
    fed.clear()
    row = Request(prompt(LENGTH), policy(name), LENGTH, 1, repeat=ASKED)
    (outcome,) = engine.generate([row], natural_regime(row.policy, 16))
    assert outcome.ledger.tokens_reread == sum(fed) - LENGTH
