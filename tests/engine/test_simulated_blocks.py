"""Blocks simulated beside one dense pass: survivors are chosen from the keys, queries and values of a dense run, and
nothing that was evicted is missed before generation begins."""

from __future__ import annotations

import pytest
import torch
from presets import policy
from reference.engine import simulate
from reference.presets import make
from survivors import generated
from tiny import generated_by_transformers, prompt, tiny_model
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import repeat_kv

from harness.engine.engine import Engine
from harness.engine.requests import EngineError, Prompting, Request
from policies import PolicyError

LENGTH, BLOCK, BUDGET = 90, 16, 40
BLOCKED, SIMULATED = Prompting("blocked", BLOCK), Prompting("simulated", BLOCK)
TAPE: dict[int, tuple[torch.Tensor, ...]] = {}


def taped(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Plain causal attention that notes each layer's rotated queries and keys, and its values."""
    TAPE[module.layer_idx] = (query[0], key[0], value[0])
    groups = module.num_key_value_groups
    logits = query @ repeat_kv(key, groups).transpose(-1, -2) * scaling
    causal = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).tril()
    return (logits.masked_fill(~causal, -torch.inf).softmax(-1) @ repeat_kv(value, groups)).transpose(1, 2), None


AttentionInterface.register("taped", taped)


@pytest.mark.parametrize(
    ("name", "reference"),
    [("keydiff", "keydiff/default"), ("h2o", "h2o/keydiff"), ("tova", "tova/keydiff"), ("sink", "sink"),
     ("caote_h2o", "caote+h2o/keydiff")],
)  # fmt: skip
def test_survivors_are_those_of_the_loop_over_the_tensors_of_one_dense_pass(name, reference):
    tokens = prompt(LENGTH)
    model = tiny_model("llama")
    model.set_attn_implementation("taped")
    with torch.no_grad():
        model(torch.tensor([tokens]), use_cache=False)
    seen, _ = generated(policy(name), SIMULATED, tokens, BUDGET, 1)
    for layer, tensors in TAPE.items():
        chunks = list(zip(*([part.numpy() for part in tensor.split(BLOCK, 1)] for tensor in tensors), strict=True))
        steps = simulate(make(reference), chunks, BUDGET, prompt_chunks=len(chunks))
        assert [passes[layer] for passes in seen.held] == [step.kept for step in steps]


@pytest.mark.parametrize("name", ["keydiff", "h2o/buzz", "oracle"])
def test_prompts_are_computed_as_if_nothing_were_evicted_and_generation_is_not(name):
    tokens = prompt(LENGTH)
    dense = generated_by_transformers(tiny_model("llama"), tokens, 12)
    _, outcome = generated(policy(name), SIMULATED, tokens, 12, 12)
    _, true = generated(policy(name), BLOCKED, tokens, 12, 12)
    assert outcome.tokens[0] == dense[0] != true.tokens[0]
    assert outcome.tokens != dense
    assert outcome.ledger.invalid == ""
    assert outcome.ledger.slots_kept_max == 12


def test_a_budget_that_holds_everything_is_dense():
    tokens = prompt(LENGTH)
    _, outcome = generated(policy("keydiff"), SIMULATED, tokens, 200, 6)
    assert outcome.tokens == generated_by_transformers(tiny_model("llama"), tokens, 6)


def test_a_row_does_not_depend_on_its_company():
    """Prompts of several lengths, budgets and policies together, the dense one among them."""
    engine = Engine(tiny_model("llama"))
    rows = [
        Request(prompt(length), policy(name), budget, 6)
        for name in ("h2o", "keydiff", "dense")
        for length, budget in ((90, 40), (61, 20), (90, 24))
    ]
    together = engine.generate(rows, SIMULATED)
    assert together == [engine.generate([row], SIMULATED)[0] for row in rows]


def test_what_one_block_holds_is_what_true_blocks_hold():
    """With one eviction there is nothing that a later block could have missed."""
    tokens = prompt(LENGTH)
    for name in ("h2o", "keydiff"):
        (a, simulated), (b, true) = (
            generated(policy(name), Prompting(regime, LENGTH), tokens, BUDGET, 5) for regime in ("simulated", "blocked")
        )
        assert a.held == b.held
        assert simulated == true


def test_policies_that_read_prompts_whole_are_refused():
    with pytest.raises(PolicyError, match="use prompt=one_shot"):
        Engine(tiny_model("llama")).generate([Request(prompt(50), policy("kvec/testbed"), 40, 1)], SIMULATED)
    with pytest.raises(EngineError, match="Known: blocked, one_shot, token_fed, simulated"):
        Prompting("acted")  # type: ignore[arg-type]
