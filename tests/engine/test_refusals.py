"""What the engine must not run is refused before anything is computed, in a sentence with the remedy."""

from __future__ import annotations

import pytest
from presets import policy
from tiny import generated_by_transformers, prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import EngineError, Prompting, Request
from policies import DENSE, PolicyError, build


def test_sliding_windows_shorter_than_the_run_are_refused():
    engine = Engine(tiny_model("mistral", sliding_window=32))
    with pytest.raises(EngineError, match=r"sliding-window layers of 32 tokens and this run needs 45.*Keep prompt"):
        engine.generate([Request(prompt(40), DENSE, max_new_tokens=5)], Prompting())


def test_sliding_windows_that_hold_the_whole_run_are_honoured():
    model = tiny_model("gemma3_text", sliding_window=64)
    tokens = prompt(40)
    (outcome,) = Engine(model).generate([Request(tokens, DENSE, max_new_tokens=20)], Prompting("blocked", 16))
    assert outcome.tokens == generated_by_transformers(model, tokens, 20)


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(EngineError, match="needs 600 positions, but the model was made for 512"):
        Engine(tiny_model("llama")).generate([Request(prompt(590), DENSE, max_new_tokens=10)], Prompting())


@pytest.mark.parametrize("size", [0, -3])
def test_blocks_without_tokens_are_refused(size):
    with pytest.raises(EngineError, match="at least 1 token per block"):
        Prompting("blocked", size)


def test_an_unknown_regime_offers_the_known_ones():
    with pytest.raises(EngineError, match="Known: blocked, one_shot, token_fed"):
        Prompting("streamed")  # type: ignore[arg-type]


def test_an_empty_prompt_is_refused():
    with pytest.raises(EngineError, match="needs at least one"):
        Request([], DENSE)


def test_a_budget_below_what_the_policy_protects_is_refused():
    with pytest.raises(PolicyError, match="smaller than the 32 that policy 'snapkv/keydiff' protects"):
        Request(prompt(50), policy("snapkv"), budget=31)


def test_compressing_once_after_the_prompt_is_refused_in_blocks():
    once = build({"name": "once", "scorer": "keydiff", "schedule": {"prompt": "after_prompt"}})
    with pytest.raises(PolicyError, match="use prompt=one_shot"):
        Engine(tiny_model("llama")).generate([Request(prompt(50), once, 20)], Prompting("blocked", 16))


def test_prompt_only_policies_grow_by_what_is_generated():
    """policies.md 3.6."""
    once = build({"name": "once", "scorer": "keydiff", "schedule": {"prompt": "after_prompt", "decode": "never"}})
    (outcome,) = Engine(tiny_model("llama")).generate([Request(prompt(50), once, 20, 7)], Prompting("one_shot"))
    assert outcome.ledger.invalid == ""
    assert outcome.ledger.slots_kept_max == 20 + 6  # the last token is never fed


def test_attention_of_ours_outside_of_the_engine_explains_itself():
    model = tiny_model("llama")
    import torch

    from harness.engine.batch.evict import slots_enabled

    with slots_enabled(model), pytest.raises(EngineError, match=r"use Engine\.generate"):
        model(torch.tensor([prompt(5)]))
