"""Decode: eviction in all layers at once equals eviction layer by layer; rows that finish leave and change nothing for
the others; stops, least lengths and continuations do what `Request` says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from presets import evicting_in, policy
from tiny import prompt, tiny_model

from harness.engine.attention.mask import AttentionMask
from harness.engine.batch.batch import Batch
from harness.engine.batch.feed import Feed
from harness.engine.batch.layer_batch import LayerBatch, evicts_late, layers_are_rows
from harness.engine.decode import decode_batch
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE, Policy, PolicyError
from policies.baselines import Random

BLOCKED, ONCE = Prompting("blocked", 8), Prompting("one_shot")
NEW = 9


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture
def layer_by_layer(monkeypatch):
    monkeypatch.setattr(LayerBatch, "of", staticmethod(lambda batch: None))


def rows_of(name: str) -> list[Request]:
    """Rows of unequal length and budget: some evict from the first step on, some later, some never."""
    return [
        Request(prompt(length), policy(name), budget, NEW)
        for length, budget in ((50, 40), (41, 44), (50, 64), (37, 40))
    ]


PRESETS = sorted({*evicting_in(BLOCKED, 40), *evicting_in(ONCE, 40)})
LATE = [name for name in PRESETS if policy(name).uniform and evicts_late(policy(name))]


def test_which_policies_evict_in_all_layers_at_once():
    """Nearly all policies select once for all layers, those that look at the layer at each, and both are stored at
    once; those that evict before attention or move positions are not."""
    one_by_one = {name for name in LATE if not layers_are_rows(policy(name))}
    assert one_by_one == {"kvec/testbed", "kvzip/uniform"}
    assert {"keydiff", "caote_snapkv", "random", "oracle", "criticalkv", "rkv", "expected_attention"} <= set(LATE)
    assert not {"hashevict", "sink/buzz", "ada_snapkv"} & set(LATE)


@pytest.mark.parametrize("name", ["keydiff", "caote_snapkv"])
def test_the_mask_is_made_once_for_equal_passes(model, name, monkeypatch):
    """Once for each number of filled slots, and once more for steps: not for each pass."""
    made: list[AttentionMask] = []
    make = Feed.mask
    monkeypatch.setattr(Feed, "mask", lambda *args, **kwargs: made.append(make(*args, **kwargs)) or made[-1])
    Engine(model).generate([Request(prompt(64), policy(name), 40, NEW)], BLOCKED)
    assert [(mask.fill, mask.chunk) for mask in made] == [*((fill, 8) for fill in range(0, 41, 8)), (40, 1)]
    known = Engine(model).generate(rows_of(name), BLOCKED)
    monkeypatch.setattr(Batch, "_mask_is_unchanged", lambda batch: False)
    for a, b in zip(known, Engine(model).generate(rows_of(name), BLOCKED), strict=True):
        assert (a.tokens, a.ledger) == (b.tokens, b.ledger)


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("feed", [BLOCKED, ONCE], ids=str)
def test_all_layers_at_once_equal_one_by_one(model, name, feed, request):
    if name not in evicting_in(feed, 40):
        pytest.skip("not in this regime")
    rows = rows_of(name)
    at_once = Engine(model).generate(rows, feed)
    request.getfixturevalue("layer_by_layer")
    assert at_once == Engine(model).generate(rows, feed)


class RandomOneByOne(Random):
    layers_as_rows = False


def test_policies_of_both_kinds_evict_in_all_layers_together(model, monkeypatch, request):
    """Prompts of their own, so that nothing is shared and all blocks are read in this batch."""
    snapkv = policy("snapkv")
    carrying = replace(snapkv, name="carrying", scorer=replace(snapkv.scorer, window_source="carry"))
    one_by_one = [Policy("mine", RandomOneByOne(seed)) for seed in (0, 1)]
    mixed = [*map(policy, ("keydiff", "h2o", "oracle", "snapkv")), *one_by_one, carrying, policy("caote_h2o"), DENSE]
    rows = [Request(prompt(45 + n, n), chosen, 40, NEW) for n, chosen in enumerate(mixed)]
    made, of = [], LayerBatch.of
    monkeypatch.setattr(
        LayerBatch, "of", staticmethod(lambda batch: made.append((batch.phase, of(batch))) or made[-1][1])
    )
    at_once = Engine(model).generate(rows, BLOCKED)
    assert {phase for phase, layers in made if layers and len(layers.early) == 2} == {"prompt", "decode"}
    request.getfixturevalue("layer_by_layer")
    assert at_once == Engine(model).generate(rows, BLOCKED)


def test_dense_rows_store_in_all_layers_at_once(model, request):
    rows = [Request(prompt(length), DENSE, 0, NEW) for length in (50, 44)]
    at_once = Engine(model).generate(rows, BLOCKED)
    request.getfixturevalue("layer_by_layer")
    assert at_once == Engine(model).generate(rows, BLOCKED)


@pytest.mark.parametrize("name", ["keydiff", "h2o", "scissorhands", "snapkv", "hashevict", "ada_snapkv", "random"])
def test_rows_that_finish_leave_and_change_nothing(model, name, monkeypatch):
    """Rows with limits from 1 to 12 tokens in one batch, against each by itself."""
    feed = next(feed for feed in (BLOCKED, ONCE, Prompting("token_fed")) if name in evicting_in(feed, 40))
    limits = (1, 12, 3, 2, 7, 1, 5)
    rows = [Request(prompt(48 + n % 3), policy(name), 40, limit) for n, limit in enumerate(limits)]
    widths = []
    merge = decode_batch.merge_batches
    monkeypatch.setattr(decode_batch, "merge_batches", lambda part: widths.append(len(part[1])) or merge(part))
    together = Engine(model).generate(rows, feed)
    assert widths == sorted(widths, reverse=True)
    assert len(widths) >= 2
    for row, outcome in zip(rows, together, strict=True):
        (alone,) = Engine(model).generate([row], feed)
        assert outcome.tokens == alone.tokens
        assert outcome.ledger == alone.ledger


def test_several_policies_leave_a_batch_one_by_one(model):
    names = ("keydiff", "h2o", "tova", "random", "snapkv")
    rows = [Request(prompt(48), policy(name), 40, limit) for name in names for limit in (2, 9, 4)]
    together = Engine(model).generate(rows, BLOCKED)
    for row, outcome in zip(rows, together, strict=True):
        (alone,) = Engine(model).generate([row], BLOCKED)
        assert (outcome.tokens, outcome.ledger) == (alone.tokens, alone.ledger)


@pytest.mark.parametrize("first", [("ada_snapkv", "pyramidkv"), ("keydiff", "snapkv")], ids="-".join)
def test_uniform_rows_outlive_ragged_ones_and_the_other_way_round(model, first):
    """Once half of a batch has finished, the rest may be of one kind only."""
    names = ("ada_snapkv", "pyramidkv", "keydiff", "snapkv")
    # Prompts of their own: rows that share one lie in a batch of one kind from the start.
    rows = [Request(prompt(48, n), policy(name), 40, 2 if name in first else 9) for n, name in enumerate(names)]
    together = Engine(model).generate(rows, ONCE)
    for row, outcome in zip(rows, together, strict=True):
        (alone,) = Engine(model).generate([row], ONCE)
        assert (outcome.tokens, outcome.ledger) == (alone.tokens, alone.ledger)


def test_a_stop_of_the_row_ends_it_and_is_not_returned(model):
    (free,) = Engine(model).generate([Request(prompt(30), DENSE, 0, NEW)], BLOCKED)
    stop = free.tokens[3]
    first = free.tokens.index(stop)
    (stopped,) = Engine(model).generate([Request(prompt(30), DENSE, 0, NEW, stops=frozenset({stop}))], BLOCKED)
    assert stopped.tokens == free.tokens[:first]


@pytest.mark.parametrize("at_least", [1, 4])
def test_no_stop_is_chosen_among_the_first_tokens(model, at_least):
    """The next best token is taken instead, as transformers does with ``min_new_tokens``."""
    (free,) = Engine(model).generate([Request(prompt(30), DENSE, 0, NEW)], BLOCKED)
    stop = free.tokens[0]
    theirs = model.generate(
        torch.tensor([prompt(30)]), min_new_tokens=at_least, max_new_tokens=NEW, do_sample=False, eos_token_id=stop,
        pad_token_id=0,
    )[0, 30:].tolist()  # fmt: skip
    (ours,) = Engine(model, [stop]).generate([Request(prompt(30), DENSE, 0, NEW, at_least)], BLOCKED)
    assert ours.tokens == [token for token in theirs if token != stop]
    assert len(ours.tokens) >= at_least


def test_until_ends_a_generation(model):
    (free,) = Engine(model).generate([Request(prompt(30), DENSE, 0, NEW)], BLOCKED)
    row = Request(prompt(30), DENSE, 0, NEW, until=lambda tokens: len(tokens) == 4)
    (ended,) = Engine(model).generate([row], BLOCKED)
    assert ended.tokens == free.tokens[:4]


def test_the_greedy_continuation_is_greedy(model):
    """What a policy generates is what it finds most likely, token by token, in the same state of its cache."""
    for name in ("keydiff", "tova", "h2o"):
        row = Request(prompt(50), policy(name), 40, 6)
        (free,) = Engine(model).generate([row], BLOCKED)
        other = [*free.tokens[:-1], (free.tokens[-1] + 1) % model.config.vocab_size]
        follows = Engine(model).follow([replace(row, continuation=c) for c in (free.tokens, other)], BLOCKED)
        assert [each.greedy for each in follows] == [True, False]
        assert [len(each.nll) for each in follows] == [6, 6]
        assert follows[0].nll[:5] == pytest.approx(follows[1].nll[:5], abs=1e-5)
        assert follows[0].nll[5] < follows[1].nll[5]


@torch.inference_mode()
def test_the_likelihood_of_a_dense_continuation_is_the_models_own(model):
    text, rest = prompt(40), prompt(52)[40:]
    logits = model(torch.tensor([[*text, *rest]])).logits[0].log_softmax(-1)
    expected = [-float(logits[39 + n, token]) for n, token in enumerate(rest)]
    (ours,) = Engine(model).follow([Request(text, DENSE, continuation=rest)], BLOCKED)
    assert ours.nll == pytest.approx(expected, abs=1e-4)  # fp32, other order of sums


# `schedule.every`: in decode eviction waits until so many tokens have come.


def waiting(every: int, name: str = "keydiff"):
    return replace(policy(name), schedule=replace(policy(name).schedule, every=every))


@pytest.mark.parametrize("name", ["keydiff", "h2o/keydiff", "rkv", "snapkv/keydiff"])
@pytest.mark.parametrize("feed", [BLOCKED, ONCE], ids=str)
def test_between_evictions_the_slack_is_held_and_no_more(model, feed, name):
    """Budget 40, every 4 tokens: 40, 41, 42, 43, and with the fourth token back to 40; prompts keep to the budget."""
    held = []

    class Watched:
        def attended(self, work):
            pass

        def evicted(self, work):
            if work.index == 0:
                held.append(int((work.layer.slot_positions[0, 0] >= 0).sum()))

        def predicted(self, batch, logits):
            pass

    row = Request(prompt(50), waiting(4, name), 40, NEW)
    (outcome,) = Engine(model, watchers=[Watched()]).generate([row], feed)
    passes = len(row.chunks(feed))
    assert held[passes - 1] == 40
    assert held[passes:] == [41, 42, 43, 40, 41, 42, 43, 40]
    assert outcome.ledger.invalid == ""
    assert outcome.ledger.slots_kept_max == row.capacity == 43
    assert outcome.ledger.slots_peak <= 40 + max(8, 4) if feed is BLOCKED else outcome.ledger.slots_peak == 50


def test_every_token_is_the_default(model):
    (one,), (same,) = (
        Engine(model).generate([Request(prompt(50), chosen, 40, NEW)], BLOCKED)
        for chosen in (policy("h2o/keydiff"), waiting(1, "h2o/keydiff"))
    )
    assert (one.tokens, one.ledger) == (same.tokens, same.ledger)


def test_rows_that_wait_for_their_eviction_are_independent(model):
    """Rows of other lengths, budgets and slacks evict at other steps of the same batch."""
    rows = [
        Request(prompt(length), waiting(every, name), budget, NEW)
        for name in ("h2o/keydiff", "keydiff", "tova/keydiff")
        for length, budget, every in ((50, 40, 4), (41, 44, 1), (37, 40, 3), (50, 64, 2))
    ]
    together = Engine(model).generate(rows, BLOCKED)
    for row, outcome in zip(rows, together, strict=True):
        (alone,) = Engine(model, share_prompts=False).generate([row], BLOCKED)
        assert (outcome.tokens, outcome.ledger) == (alone.tokens, alone.ledger)
        assert outcome.ledger.invalid == ""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hashevict", "evict_first=false"),
        ("snapkv/kvpress", "decode=each_step"),
        ("buzz", "different sizes"),
        ("l2/original", "different sizes"),
    ],
)
def test_slack_is_refused_where_it_means_nothing(name, sentence):
    with pytest.raises(PolicyError, match=sentence):
        waiting(8, name)
    with pytest.raises(PolicyError, match=r"schedule\.every=0 must be at least 1"):
        waiting(0)
