"""Prefix sharing changes nothing: rows that fork off a shared prompt yield what they yield by themselves, with every
preset and regime, several budgets and prompts of different lengths; and each shared pass runs once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from presets import evicting_in, policy
from tiny import prompt, tiny_model

from harness.engine.batch.prefix_sharing import PrefixBatch, last_shared_pass, plan_sharing
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

FEEDS = (Prompting("blocked", 8), Prompting("blocked", 1), Prompting("one_shot"), Prompting("token_fed"))
BUDGETS = (40, 42, 64)  # within the prompts, but for the last
LENGTHS = (50, 45)
NEW = 3
TOKEN_BY_TOKEN = {
    "caote_h2o",
    "hashevict",
    "keydiff",
    "oracle",
    "scissorhands",
    "sink/buzz",
}  # one of each kind of state


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def rows_under(feed: Prompting) -> list[Request]:
    by_token = feed.regime == "token_fed" or feed.block_size == 1
    rows = [
        Request(prompt(length), policy(name), budget, NEW)
        for budget in BUDGETS
        for name in evicting_in(feed, budget)
        if not by_token or name in TOKEN_BY_TOKEN
        for length in LENGTHS
    ]
    return [*rows, *(Request(prompt(length), DENSE, 0, NEW) for length in LENGTHS)]


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_shared_equals_separate(model, feed):
    """Tokens and ledgers: what was kept, evicted, covered and held is the same to the slot."""
    rows = rows_under(feed)
    together = Engine(model).generate(rows, feed)
    apart = Engine(model, share_prompts=False).generate(rows, feed)
    for row, a, b in zip(rows, together, apart, strict=True):
        assert a.tokens == b.tokens, (row.policy.name, row.budget, len(row.tokens))
        assert a.ledger == b.ledger, (row.policy.name, row.budget, len(row.tokens))


@pytest.mark.parametrize("feed", FEEDS[::3], ids=str)
def test_shared_perplexity_equals_separate(model, feed):
    rows = [replace(row, max_new_tokens=0) for row in rows_under(feed)]
    together = Engine(model).perplexity(rows, feed)
    apart = Engine(model, share_prompts=False).perplexity(rows, feed)
    for row, a, b in zip(rows, together, apart, strict=True):
        # fp32 rounding of differently batched products, in nats of a model whose losses are of size 5
        assert a.nll == pytest.approx(b.nll, abs=2e-3), (row.policy.name, row.budget)
        assert len(a.nll) == len(row.tokens) - 1


@pytest.mark.parametrize("feed", FEEDS[:1] + FEEDS[2:3], ids=str)
def test_every_row_reads_the_shared_passes_once(model, feed):
    """Counted where the tokens enter the model."""
    rows = [
        Request(prompt(90), policy(name), budget, 0) for name in ("keydiff", "window", "tova") for budget in (33, 64)
    ]
    fed: list[int] = []
    hook = model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    Engine(model).generate(rows, feed)
    hook.remove()
    if feed.regime == "one_shot":
        assert sum(fed) == 90
    else:  # budgets of 33 leave after the block that ends at 40, those of 64 after the one that ends at 72
        assert sum(fed) == 72 + 3 * (90 - 40) + 3 * (90 - 72)


@pytest.mark.parametrize("feed", FEEDS[:1] + FEEDS[2:3], ids=str)
def test_the_output_head_waits_for_the_end_of_a_prompt(model, feed):
    """The logits after a block in the middle of a prompt are not needed."""
    rows = [Request(prompt(length), policy("keydiff"), 33, 4) for length in (90, 70)]
    heads: list[int] = []
    hook = model.get_output_embeddings().register_forward_hook(lambda *_: heads.append(1))
    Engine(model, share_prompts=False).generate(rows, feed)
    hook.remove()
    ends = 2 if feed.regime == "blocked" else 1  # blocks of 8: the prompts end in different passes
    assert len(heads) == ends + 3


def test_rows_leave_with_their_first_eviction():
    row = Request(prompt(90), policy("keydiff"), 33, 2)
    assert last_shared_pass(row, Prompting("blocked", 8)) == 4  # tokens 32 to 40
    assert last_shared_pass(replace(row, budget=90), Prompting("blocked", 8)) == 11  # never in the prompt
    assert last_shared_pass(row, Prompting("token_fed")) == 1
    assert last_shared_pass(replace(row, policy=DENSE), Prompting("blocked", 8)) == 11
    first = replace(row, policy=policy("hashevict"))
    assert last_shared_pass(first, Prompting("blocked", 1)) == 32  # before the token that needs room
    assert last_shared_pass(first, Prompting("token_fed")) is None  # read in one pass, its evictions known before


def test_single_tokens_go_through_the_model_with_as_many_rows_as_can():
    """Under several budgets too: one pass for the tokens that fill the smallest cache, and one for each later token."""
    names = ("h2o/buzz", "sink/buzz", "window/buzz")
    rows = [Request(prompt(60), policy(name), budget) for name in names for budget in (30, 33)]
    plan = plan_sharing(rows, Prompting("token_fed"))
    assert not plan.prefix_groups
    assert plan.passes([len(row.chunks(Prompting("token_fed"))) for row in rows]) == 1 + 60 - 30
    same = [Request(prompt(60), policy("h2o/buzz"), 30) for _ in range(2)]
    assert plan_sharing(same, Prompting("token_fed")).prefix_groups  # as many passes, and the first tokens once


def test_who_is_alone_shares_nothing():
    rows = [Request(prompt(30, seed), policy("keydiff"), 16, 2) for seed in range(3)]
    assert not plan_sharing(rows, Prompting("blocked", 8)).prefix_groups
    assert plan_sharing([*rows, rows[0]], Prompting("blocked", 8)).prefix_groups[0].prompts == (0,)


@pytest.mark.parametrize(
    ("name", "groups"), [("h2o", 1), ("rkv", 1), ("expected_attention", 1), ("criticalkv", 1), ("scissorhands", 2)]
)
def test_budgets_share_the_state_of_a_prompt_where_it_does_not_depend_on_them(model, name, groups, monkeypatch):
    made: list[PrefixBatch] = []
    begin = PrefixBatch.begin
    monkeypatch.setattr(PrefixBatch, "begin", lambda batch, *args: made.append(batch) or begin(batch, *args))
    rows = [Request(prompt(50), policy(name), budget, NEW) for budget in (40, 42)]
    feed = FEEDS[2] if name == "scissorhands" else FEEDS[0]
    together = Engine(model).generate(rows, feed)
    assert {sum(group.state_only for group in batch.groups) for batch in made} == {groups}
    assert together == Engine(model, share_prompts=False).generate(rows, feed)
