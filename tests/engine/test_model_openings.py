"""What policies read of a model beside keys, values and attention: queries without their rotation, and W_O.

Expected Attention and CriticalKV are held to computations that take both from transformers' own modules.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from reference.expected_attention import scores
from survivors import Survivors
from tiny import prompt, tiny_model

from harness.engine.attention.model_parts import output_heads
from harness.engine.engine import Engine
from harness.engine.fast_layers import pack_layers
from harness.engine.requests import EngineError, Prompting, Request
from policies import Policy, Protect, Schedule
from policies.criticalkv import CriticalKV
from policies.expected_attention import ExpectedAttention
from policies.tova import TOVA

ONCE = Schedule("after_prompt", "never")


@pytest.fixture
def model():
    return tiny_model("llama")


def test_packed_weights_are_asked_once(model):
    model = deepcopy(model)
    if not pack_layers(model):
        pytest.skip("weights cannot be packed on this machine")
    assert output_heads(model, 0).data_ptr() == output_heads(model, 0).data_ptr() != output_heads(model, 1).data_ptr()


@pytest.mark.parametrize("packed", [False, True])
def test_w_o_is_what_the_layer_adds_for_each_query_head(model, packed):
    wanted = [layer.self_attn.o_proj.weight.detach().clone() for layer in model.model.layers]
    if packed and not pack_layers(model):
        pytest.skip("weights cannot be packed on this machine")
    for layer, weight in enumerate(wanted):
        found = output_heads(model, layer)
        assert found.shape == (2, 2, 8, 32)
        context = torch.randn(4, 8, generator=torch.Generator().manual_seed(layer))
        by_head = torch.einsum("gd,gde->e", context, found.flatten(0, 1))
        torch.testing.assert_close(by_head, weight @ context.flatten(), atol=1e-5, rtol=1e-5)


def test_on_a_model_it_keeps_what_the_definition_keeps(model):
    """Attention from transformers, W_O from the module: the two stages written out for each head."""
    tokens, budget = prompt(60), 21
    with torch.inference_mode():
        out = model(torch.tensor([tokens]), output_attentions=True, use_cache=True)
    seen = Survivors()
    chosen = Policy("critical", CriticalKV(TOVA(), 0.5), schedule=ONCE)
    Engine(model, watchers=[seen]).generate([Request(tokens, chosen, budget)], Prompting("one_shot"))
    for layer, held in enumerate(seen.held[0]):
        weight = model.model.layers[layer].self_attn.o_proj.weight.detach()
        for head, kept in enumerate(held):
            group = [2 * head, 2 * head + 1]
            mass = out.attentions[layer][0, group, -1].mean(0)
            values = out.past_key_values.layers[layer].values[0, head]
            lengths = sum((values @ weight[:, 8 * q : 8 * q + 8].T).abs().sum(-1) for q in group) / 2
            first = mass.topk(budget // 2).indices.tolist()
            second = ((mass + 1e-4) * lengths).tolist()
            rest = sorted(set(range(60)) - set(first), key=lambda slot: -second[slot])
            assert kept == sorted(first + rest[: budget - len(first)]), (layer, head)


class Asked:
    """What `q_proj` of each layer has made so far: queries before their rotation."""

    def __init__(self, model) -> None:
        self.made = [[] for _ in model.model.layers]
        self.handles = [
            layer.self_attn.q_proj.register_forward_hook(lambda _module, _given, made, n=n: self.made[n].append(made))
            for n, layer in enumerate(model.model.layers)
        ]

    def queries(self, layer: int) -> np.ndarray:
        """(H, G, T, D)."""
        whole = torch.cat(self.made[layer], 1)[0]
        return whole.view(len(whole), 2, 2, 8).permute(1, 2, 0, 3).double().numpy()


@pytest.mark.parametrize("settings", [{}, {"covariance": False}, {"value_norm": False}, {"epsilon": 0.02}], ids=str)
def test_after_a_prompt_it_keeps_what_the_definition_keeps(model, settings):
    """kvpress' protocol: one pass, one selection. The twin gets q_proj's output and the keys of transformers' cache."""
    tokens, budget, future = prompt(60), 25, 30
    asked = Asked(model)
    with torch.inference_mode():
        cache = model(torch.tensor([tokens]), use_cache=True).past_key_values
    for handle in asked.handles:
        handle.remove()
    seen = Survivors()
    scorer = ExpectedAttention(future, **settings)
    chosen = Policy("expected", scorer, protect=Protect(sinks=4), schedule=ONCE)
    Engine(model, watchers=[seen]).generate([Request(tokens, chosen, budget)], Prompting("one_shot"))
    for layer, held in enumerate(seen.held[0]):
        queries = asked.queries(layer)
        for head, kept in enumerate(held):
            keys, values = (
                x[0, head, 4:].double().numpy() for x in (cache.layers[layer].keys, cache.layers[layer].values)
            )
            found = scores(queries[head], keys, values, 60, future, 4, **settings)
            best = sorted((np.argsort(-found)[: budget - 4] + 4).tolist())
            assert kept == [0, 1, 2, 3, *best], (layer, head)


def test_in_blocks_and_in_decode_the_statistics_are_those_of_everything_read(model):
    tokens, new = prompt(50), 4
    asked, states = Asked(model), []

    class Watched(ExpectedAttention):
        def update(self, view):
            found = dict(super().update(view))
            for layer, rows in view.by_layer():
                states.append((layer, {name: each[rows] for name, each in found.items()}))
            return found

    chosen = Policy("expected", Watched(8), protect=Protect(sinks=4))
    (outcome,) = Engine(model).generate([Request(tokens, chosen, 20, new)], Prompting("blocked", 16))
    for handle in asked.handles:
        handle.remove()
    assert outcome.ledger.invalid == ""
    for layer in range(3):
        state = [found for at, found in states if at == layer][-1]
        whole = asked.queries(layer).reshape(4, -1, 8)[:, 4:]
        assert whole.shape[1] == 50 + new - 1 - 4 == state["count"].item()
        np.testing.assert_allclose(state["mean"][0], whole.mean(1), atol=1e-4)  # fp32 rotations on and off
        centred = whole - whole.mean(1, keepdims=True)
        np.testing.assert_allclose(state["scatter"][0], centred.transpose(0, 2, 1) @ centred, rtol=1e-3, atol=1e-3)
    assert outcome.ledger.state_bytes == 3 * 4 * 4 * (8 + 64) + 3 * 4  # mean and scatter of 4 heads, one count a layer


def test_models_without_a_plain_table_are_refused():
    chosen = Policy("expected", ExpectedAttention(8), protect=Protect(sinks=4))
    gemma = tiny_model("gemma3_text")
    with pytest.raises(
        EngineError, match="has no plain rotary table, so policy 'expected' cannot take the rotation off"
    ):
        Engine(gemma).generate([Request(prompt(40), chosen, 20)], Prompting("blocked", 16))
