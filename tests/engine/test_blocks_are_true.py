"""Block i attends only to what survived the blocks before it: held against a model run with plain masks.

The witness is transformers' eager attention over the *whole* sequence with a mask per layer and head that hides every
token from the moment our engine evicted it. It never sees our cache, only the list of survivors.
"""

from __future__ import annotations

import pytest
import torch
from presets import policy
from tiny import prompt, tiny_model
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import repeat_kv

from harness.engine import model_runner
from harness.engine.batch import batch
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request

LENGTH, BLOCK, BUDGET = 90, 16, 40


def masked_eager(module, query, key, value, attention_mask, scaling, dropout=0.0, hidden=None, **kwargs):
    """Plain softmax attention with ``hidden[layer]`` (H, T, T) bool: key j is gone for query i."""
    groups = module.num_key_value_groups
    logits = query @ repeat_kv(key, groups).transpose(-1, -2) * scaling
    length = query.shape[2]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    seen = causal & ~hidden[module.layer_idx].repeat_interleave(groups, 0)
    weights = logits.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ repeat_kv(value, groups)).transpose(1, 2), None


AttentionInterface.register("witness", masked_eager)


@pytest.mark.parametrize("name", ["keydiff", "h2o", "tova", "caote_snapkv", "sink"])
def test_logits_are_those_of_a_model_that_loses_exactly_the_evicted_tokens(name, monkeypatch):
    survivors = []

    class Watched(batch.Batch):
        def finish(self):
            super().finish()
            survivors.append([layer.positions[0].clone() for layer in self.cache.layers])

    monkeypatch.setattr(model_runner, "Batch", Watched)
    model, tokens = tiny_model("llama"), prompt(LENGTH)
    (outcome,) = Engine(model).perplexity([Request(tokens, policy(name), BUDGET)], Prompting("blocked", BLOCK))

    hidden = torch.zeros(3, 2, LENGTH, LENGTH, dtype=torch.bool)
    for block, layers in enumerate(survivors):
        seen = min((block + 1) * BLOCK, LENGTH)
        for layer, positions in enumerate(layers):
            for head, held in enumerate(positions):
                gone = sorted(set(range(seen)) - set(held[held >= 0].tolist()))
                hidden[layer, head, seen:, gone] = True
    assert hidden.any()

    model.set_attn_implementation("witness")
    with torch.no_grad():
        logits = model(torch.tensor([tokens]), hidden=hidden, use_cache=False).logits.log_softmax(-1)[0]
    expected = -logits[:-1].gather(-1, torch.tensor(tokens[1:])[:, None]).squeeze(-1)
    torch.testing.assert_close(torch.tensor(outcome.nll), expected, rtol=1e-4, atol=1e-4)
