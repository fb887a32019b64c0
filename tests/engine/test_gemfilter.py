"""T-27 of policies.md: GemFilter's score equals the naive one, k >= T is dense, and positions restart at 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from presets import policy
from reference.gemfilter import select_tokens, token_scores
from tiny import ARCHITECTURES, generated_by_transformers, prompt, tiny_model

from harness.engine.batch.token_filter import _at_layer
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import PolicyError
from policies.gemfilter import TokenFilter

ONE_SHOT = Prompting("one_shot")


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_budget_for_everything_is_dense(kind):
    """policies.md 3.10, T-27."""
    model, tokens = tiny_model(kind), prompt(40)
    (outcome,) = Engine(model).generate([Request(tokens, policy("gemfilter"), 40, 8)], ONE_SHOT)
    assert outcome.tokens == generated_by_transformers(model, tokens, 8)
    assert outcome.ledger.coverage == 1


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_it_continues_as_transformers_does_from_the_chosen_tokens_alone(kind):
    """policies.md 3.10, T-27."""
    model, tokens = tiny_model(kind), prompt(60)
    inputs = []
    model.base_model.layers[1].self_attn.q_proj.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    query, keys = _at_layer(model, torch.tensor([tokens]), 1)
    assert len(inputs) == 1
    chosen = TokenFilter(1).choose(query, keys, 20)
    expected = generated_by_transformers(model, [tokens[i] for i in chosen], 8)
    (outcome,) = Engine(model).generate([Request(tokens, policy("gemfilter"), 20, 8)], ONE_SHOT)
    assert outcome.tokens == expected
    assert outcome.ledger.slots_requested == 20
    assert outcome.ledger.slots_kept_max == 20 + 7
    assert outcome.ledger.slots_peak == 60
    assert outcome.ledger.tokens_evicted == 40
    assert outcome.ledger.coverage == pytest.approx(20 / 60)


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_that_of_the_reference(seed):
    """policies.md 3.10, T-27."""
    rng = np.random.default_rng(seed)
    query, keys = rng.normal(size=(6, 8)).astype(np.float32), rng.normal(size=(2, 50, 8)).astype(np.float32)
    expected = select_tokens(token_scores(query, keys), 17, kernel=5)
    assert TokenFilter().choose(torch.from_numpy(query), torch.from_numpy(keys), 17) == list(expected)


def test_equal_scores_keep_the_newer():
    assert TokenFilter(kernel=1).choose(torch.ones(2, 4), torch.zeros(1, 6, 4), 2) == [4, 5]


def test_a_layer_that_the_model_does_not_have_is_refused():
    deep = replace(policy("gemfilter"), token_filter=TokenFilter(13))
    with pytest.raises(PolicyError, match="layers 0 to 2"):
        Engine(tiny_model("llama")).generate([Request(prompt(30), deep, 10, 1)], ONE_SHOT)


def test_blocks_are_refused():
    """policies.md 3.10."""
    with pytest.raises(PolicyError, match="use prompt=one_shot"):
        Engine(tiny_model("llama")).generate([Request(prompt(30), policy("gemfilter"), 10, 1)], Prompting("blocked", 8))
