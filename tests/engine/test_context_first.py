"""`prompt_split=context`: a context is compressed before its question is fed, and the question changes nothing of it.

The witness is transformers: its own cache, filled with the context, cut down to the positions that the policy kept, and
fed with the question and the answer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from presets import evicting_in, policy
from survivors import Survivors
from tiny import generated_by_transformers, prompt, tiny_model
from transformers import DynamicCache

from harness.engine.engine import Engine, Observer
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import SIMULATED, EngineError, Prompting, Request
from policies import DENSE

CONTEXT, QUESTION, OTHER = prompt(100), prompt(9, seed=1), prompt(14, seed=2)
BUDGET, NEW = 70, 5
FEEDS = [Prompting(regime, 16, "context") for regime in ("blocked", "one_shot", "token_fed")]
ONCE = ("keydiff/kvpress", "snapkv/kvpress", "tova/kvpress", "l2/kvpress")  # nothing is evicted in decode


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def asked(name: str, question: list[int], **changes) -> Request:
    chosen = DENSE if name == "dense" else policy(name)
    return Request(CONTEXT, chosen, 0 if name == "dense" else BUDGET, NEW, question=question, **changes)


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_without_eviction_it_makes_no_difference_when_the_question_comes(model, feed):
    (outcome,) = Engine(model).generate([asked("dense", QUESTION)], feed)
    assert outcome.tokens == generated_by_transformers(model, CONTEXT + QUESTION, NEW)
    answer = outcome.tokens
    (followed,) = Engine(model).follow([asked("dense", QUESTION, continuation=answer)], feed)
    whole = replace(feed, split="whole")
    (at_once,) = Engine(model).follow([Request(CONTEXT + QUESTION, DENSE, continuation=answer)], whole)
    assert followed.nll == pytest.approx(at_once.nll, abs=1e-5)  # the same sums in another order
    assert followed.ledger.slots_kept_max == len(CONTEXT) + len(QUESTION) + NEW - 1


def answered_from(model, held: list[list[list[int]]], question: list[int], new: int) -> list[int]:
    """Greedy answer of transformers over a cache that holds these positions, by layer and head."""
    cache = DynamicCache()
    with torch.inference_mode():
        model(torch.tensor([CONTEXT]), past_key_values=cache, use_cache=True)
        for layer, heads in zip(cache.layers, held, strict=True):
            index = torch.tensor(heads)[None, :, :, None].expand(-1, -1, -1, layer.keys.shape[-1])
            layer.keys, layer.values = layer.keys.gather(2, index), layer.values.gather(2, index)
        feed, answer, start = question, [], len(CONTEXT)
        while len(answer) < new:
            places = torch.arange(start, start + len(feed))[None]
            slots = cache.layers[0].keys.shape[2]
            mask = torch.ones(len(feed), slots + len(feed)).tril(slots).log()[None, None]
            out = model(
                torch.tensor([feed]), position_ids=places, attention_mask=mask, past_key_values=cache, use_cache=True
            )
            start, feed = start + len(feed), [int(out.logits[0, -1].argmax())]
            answer += feed
    return answer


@pytest.mark.parametrize("name", ONCE)
def test_the_answer_is_that_of_transformers_over_what_was_kept(model, name):
    """One prefill, one compression, then the question: kvpress' protocol."""
    seen = Survivors()
    feed = Prompting("one_shot", split="context")
    (outcome,) = Engine(model, watchers=[seen]).generate([asked(name, QUESTION)], feed)
    after_context = seen.held[0]
    assert {len(head) for layer in after_context for head in layer} == {BUDGET}
    assert outcome.tokens == answered_from(model, after_context, QUESTION, NEW)
    assert outcome.ledger.invalid == ""
    assert outcome.ledger.slots_kept_max == BUDGET + len(QUESTION) + NEW - 1


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_what_is_kept_of_a_context_does_not_depend_on_its_question(model, feed):
    for name in evicting_in(feed, BUDGET):
        if not policy(name).uniform or policy(name).hindsight or policy(name).token_filter is not None:
            continue
        held = []
        for question in (QUESTION, OTHER):
            seen, row = Survivors(), replace(asked(name, question), max_new_tokens=1)
            Engine(model, watchers=[seen]).generate([row], feed)
            held.append(seen.held[len(row.chunks(feed)) - 1])
        assert held[0] == held[1], name


def test_read_whole_the_question_does_decide_what_is_kept(model):
    """Otherwise the test above would pass on a policy that looks at nothing."""
    held = []
    for question in (QUESTION, OTHER):
        seen = Survivors()
        row = Request(CONTEXT + question, policy("snapkv/kvpress"), BUDGET)
        Engine(model, watchers=[seen]).generate([row], Prompting("one_shot"))
        held.append([[p for p in head if p < len(CONTEXT) - 64] for layer in seen.held[0] for head in layer])
    assert held[0] != held[1]


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_budgets_hold_while_the_question_is_fed(model, feed):
    """Every policy, together and alone, also those with ragged caches and those that look at the future."""
    names = evicting_in(feed, BUDGET)
    rows = [asked(name, question) for name in names for question in (QUESTION, OTHER)]
    together = dict(zip(map(id, rows), Engine(model).generate(rows, feed), strict=True))
    for row in rows:
        (alone,) = Engine(model).generate([row], feed)
        outcome = together[id(row)]
        assert (outcome.tokens, outcome.ledger) == (alone.tokens, alone.ledger), row.policy.name
        assert outcome.ledger.invalid == "", row.policy.name
        if row.policy.uniform and row.policy.token_filter is None:
            grown = len(row.question) + NEW - 1 if row.policy.schedule.decode == "never" else 0
            assert outcome.ledger.slots_kept_max == BUDGET + grown, row.policy.name


def rows_per_pass(monkeypatch, model, rows, feed, follow=False) -> tuple[list[int], int, list]:
    """How many rows each pass computed, the tokens that were reported as fed, and the outcomes."""
    computed: list[int] = []
    fed: list[int] = []
    observer = Observer()
    observer.fed = fed.append
    compute = ModelRunner._compute

    def counted(runner, batch, logits_to_keep):
        computed.append(len(batch.rows))
        return compute(runner, batch, logits_to_keep)

    monkeypatch.setattr(ModelRunner, "_compute", counted)
    engine = Engine(model)
    outcomes = (engine.follow if follow else engine.generate)(rows, feed, observer)
    return computed, sum(fed), outcomes


def test_questions_about_one_context_share_its_reading_and_its_compression(model, monkeypatch):
    rows = [asked("keydiff", question) for question in (QUESTION, OTHER)]
    computed, fed, _ = rows_per_pass(monkeypatch, model, rows, Prompting("blocked", 16, "context"))
    assert computed[:7] == [1] * 7, "seven blocks, the last three of which evict"
    assert computed[7:] == [2] * (1 + NEW - 1)
    assert fed == 2 * len(CONTEXT) + len(QUESTION) + len(OTHER) + 2 * (NEW - 1), "each row has read its prompt"


@pytest.mark.parametrize("name", ["h2o", "ada_snapkv/kvpress", "random"])
def test_choices_share_their_whole_prompt(model, monkeypatch, name):
    """Continuations of one prompt are likely as they are apart; the longest decides how much room there is."""
    choices = [prompt(number, seed=number) for number in (2, 7, 4)]
    rows = [Request(CONTEXT, policy(name), BUDGET, continuation=choice) for choice in choices]
    feed = Prompting("one_shot")
    computed, _, together = rows_per_pass(monkeypatch, model, rows, feed, follow=True)
    assert computed[0] == 1
    assert computed[1] == 3
    for row, outcome in zip(rows, together, strict=True):
        (alone,) = Engine(model).follow([row], feed)
        assert outcome.nll == pytest.approx(alone.nll, rel=1e-5)  # fp32: the same sums in other batches
        assert (outcome.greedy, outcome.ledger) == (alone.greedy, alone.ledger)


def test_drawn_answers_share_their_prompt_and_the_oracle_does_not(model, monkeypatch):
    """The oracle keeps what its own answer needs, so it reads the prompt for each."""
    feed = Prompting("blocked", 16)
    for name, expected in (("snapkv", 1), ("oracle", 3)):
        rows = [Request(CONTEXT, policy(name), BUDGET, NEW, temperature=1.0, seed=seed) for seed in range(3)]
        with monkeypatch.context() as patch:
            computed, _, together = rows_per_pass(patch, model, rows, feed)
        assert computed[-NEW - 1] == expected, "the last block"
        alone = [Engine(model).generate([row], feed)[0] for row in rows]
        assert [each.tokens for each in together] == [each.tokens for each in alone]
        assert [each.ledger for each in together] == [each.ledger for each in alone]


def test_simulated_blocks_know_no_later_question():
    with pytest.raises(EngineError, match="prompt=simulated"):
        Prompting(SIMULATED, 16, "context")


def test_unknown_splits_are_named():
    with pytest.raises(EngineError, match="prompt_split=question is not one of whole, context"):
        Prompting("blocked", 16, "question")
