"""KVzip: what slots receive while the model repeats its context, against NumPy over transformers' queries and keys."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import kvzip as slow
from survivors import Survivors
from tiny import ARCHITECTURES, prompt, tiny_model
from transformers import DynamicCache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from harness.engine.decode.look_ahead import Repetition, repeated, repetition_key
from harness.engine.engine import Engine
from harness.engine.requests import EngineError, Prompting, RepeatPrompt, Request
from policies import Policy, PolicyError, Protect, Schedule
from policies.baselines import Recency
from policies.kvzip import KVzip, ModelWide

ONCE = Schedule("after_prompt", "never")
ASKED = RepeatPrompt(first=(5, 6, 7), later=(8, 9), answer=(10,))
SINKS, CHUNK = 2, 12
ALONE = Policy("kvzip", KVzip(CHUNK), protect=Protect(sinks=SINKS), schedule=ONCE)
WIDE = replace(ALONE, allocator=ModelWide())
ONE_SHOT = Prompting("one_shot")


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def by_numpy(model, tokens: list[int], repeat: RepeatPrompt = ASKED) -> np.ndarray:
    """(L, H, T): queries and keys from the modules, rotated by transformers, in a cache that ends at the context."""
    layers = model.model.layers
    out = np.zeros((len(layers), 2, len(tokens)))
    for piece, fed in slow.passes(tokens, CHUNK, repeat.first, repeat.later, repeat.answer):
        cache, outputs = DynamicCache(), [[], []]
        with torch.no_grad():
            model(torch.tensor([tokens]), past_key_values=cache)
            hooks = [
                getattr(layer.self_attn, name).register_forward_hook(lambda _, __, out, to=to: to.append(out))
                for layer in layers
                for name, to in zip(("q_proj", "k_proj"), outputs, strict=True)
            ]
            model(torch.tensor([fed]), past_key_values=cache)
        for hook in hooks:
            hook.remove()
        places = torch.arange(len(tokens), len(tokens) + len(fed))[None]
        cos, sin = model.model.rotary_emb(outputs[0][0], places)
        for number, layer in enumerate(layers):
            own = outputs[0][number].view(1, len(fed), 4, 8).transpose(1, 2)
            queries = apply_rotary_pos_emb(own, own, cos, sin)[0][0].double().numpy()
            keys = cache.layers[number].keys[0].double().numpy()
            out[number][:, piece] = slow.scores(queries, keys, len(tokens), piece, SINKS, layer.self_attn.scaling)
    return out


def test_worked_example():
    """policies.md 3.28: keys 0 and ln 3, queries 1 and 1, one piece of two tokens, nothing said before it."""
    keys = torch.tensor([0.0, math.log(3), 0.0, math.log(3)]).view(1, 1, 4, 1)
    found = Repetition(context=2, sinks=4)
    found.piece = range(2)
    found.note(0, torch.ones(1, 1, 2, 1), keys, 1.0, None)
    torch.testing.assert_close(found.scores, torch.tensor([[[0.2, 0.6]]]))


@pytest.mark.parametrize("length", [5, 12, 30])
def test_scores_are_those_of_the_reference(model, length):
    """policies.md 3.28: one piece, a whole number of pieces, and a short last one. fp32 against fp64."""
    row = Request(prompt(length), ALONE, 8, repeat=ASKED)
    found = repeated(model, [row])[repetition_key(row)]
    np.testing.assert_allclose(found.numpy(), by_numpy(model, prompt(length)), atol=2e-5)


def survivors(model, row: Request) -> list[list[list[int]]]:
    watcher = Survivors()
    Engine(model, watchers=[watcher]).generate([row], ONE_SHOT)
    return watcher.held[0]


@pytest.mark.parametrize("budget", [3, 8, 21, 29])
def test_the_whole_model_shares_one_budget(model, budget):
    """The best scores of all layers and heads stay, sinks first, and all heads together hold exactly the budget."""
    row = Request(prompt(30), WIDE, budget, 3, repeat=ASKED)
    found = survivors(model, row)
    table = repeated(model, [row])[repetition_key(row)].numpy()
    assert found == slow.kept(table, budget, SINKS)
    assert sum(len(head) for layer in found for head in layer) == budget * 6


def test_without_an_allocator_each_head_keeps_its_own_best(model):
    row = Request(prompt(30), ALONE, 8, 3, repeat=ASKED)
    table = repeated(model, [row])[repetition_key(row)].numpy()
    expected = [[slow.kept(own[None, None], 8, SINKS)[0][0] for own in layer] for layer in table]
    assert survivors(model, row) == expected


def test_what_is_asked_changes_the_scores_and_the_question_does_not(model):
    row = Request(prompt(30), WIDE, 8, 3, repeat=ASKED)
    other = replace(row, repeat=RepeatPrompt())
    scores = repeated(model, [row, other])
    assert not torch.equal(scores[repetition_key(row)], scores[repetition_key(other)])
    context = Prompting("one_shot", split="context")
    watchers = [Survivors(), Survivors()]
    for watcher, question in zip(watchers, ([3, 4, 5], [6, 7]), strict=True):
        Engine(model, watchers=[watcher]).generate([replace(row, question=question)], context)
    assert watchers[0].held[0] == watchers[1].held[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_repeats_and_stays_as_it_was(architecture):
    model = tiny_model(architecture)
    rows = [Request(prompt(length), WIDE, 9, 6, repeat=ASKED) for length in (30, 21)]
    rows.append(Request(prompt(30), WIDE, 14, 6, repeat=ASKED))
    together = [outcome.tokens for outcome in Engine(model).generate(rows, ONE_SHOT)]
    assert together == [Engine(model).generate([row], ONE_SHOT)[0].tokens for row in rows]
    whole = replace(rows[0], budget=64)
    dense = Request(prompt(30), Policy("dense", schedule=Schedule("never", "never")), 0, 6)
    assert Engine(model).generate([whole], ONE_SHOT)[0].tokens == Engine(model).generate([dense], ONE_SHOT)[0].tokens


def test_a_prompt_is_repeated_once_for_all_budgets(model):
    rows = [Request(prompt(30), WIDE, budget, 3, repeat=ASKED) for budget in (8, 12, 20)]
    assert len(repeated(model, rows)) == 1


def test_what_cannot_work_is_refused(model):
    with pytest.raises(PolicyError, match="letting the model repeat it, once it has been read whole"):
        Policy("mine", KVzip())
    with pytest.raises(PolicyError, match="repeats at least 1 token at a time, not chunk=0"):
        KVzip(0)
    with pytest.raises(EngineError, match=r"needs 5\d\d positions, but the model was made for 512"):
        Engine(model).generate([Request(prompt(280), replace(ALONE, scorer=KVzip()), 9, 3)], ONE_SHOT)
    newest = Policy("mine", Recency(), allocator=ModelWide(), schedule=ONCE)
    with pytest.raises(PolicyError, match="exist once it has been read whole, under the scorer kvzip"):
        Engine(model).generate([Request(prompt(30), newest, 9, 3)], ONE_SHOT)
