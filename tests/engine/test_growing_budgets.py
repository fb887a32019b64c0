"""`Request.so_far`: after the prompt a budget grows to a share of all tokens fed, and is as hard as one that stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tape
from presets import evicting_in, policy
from survivors import Survivors
from tiny import prompt, tiny_model

from harness.config.budget import Budget
from harness.engine.cuda_graphs import CudaGraphRunner
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

FEEDS = [Prompting("blocked", 8), Prompting("one_shot"), Prompting("token_fed")]
LENGTH, NEW, SHARE = 90, 13, 0.5
BUDGET = 45


def growing(name: str, seed: int = 0, new: int = NEW, share: float = SHARE) -> Request:
    """The budget of its prompt is what `Budget` gives."""
    budget = Budget.parse(f"{100 * share:g}%", "so_far")
    slots = budget.slots_for(LENGTH, new, [LENGTH])
    return Request(prompt(LENGTH, seed), policy(name), slots, new, so_far=budget.so_far)


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def test_a_window_holds_the_newest_half_of_all_tokens_after_every_step(model):
    """Worked out by hand: after n tokens the n / 2 newest, rounded half up; a step in which that grows evicts none."""
    seen = Survivors()
    Engine(model, watchers=[seen]).generate([growing("window")], Prompting("one_shot"))
    decoded = seen.held[1:]  # the first pass is the prompt
    assert len(decoded) == NEW - 1
    for step, layers in enumerate(decoded, start=1):
        fed = LENGTH + step
        may = (fed + 1) // 2
        assert all(head == list(range(fed - may, fed)) for layer in layers for head in layer)


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_every_preset_holds_its_share_and_never_more(model, feed):
    """At the end 102 tokens are fed, so 51 slots; who never evicts in decode holds the prompt's 45 and the rest."""
    names = [name for name in evicting_in(feed, BUDGET) if policy(name).keeps_to_budget and policy(name).uniform]
    for name in names:
        (outcome,) = Engine(model).generate([growing(name)], feed)
        ledger, schedule = outcome.ledger, policy(name).schedule
        assert ledger.invalid == "", name
        assert ledger.slots_requested == BUDGET
        if policy(name).token_filter is None:
            held = BUDGET + NEW - 1 if schedule.decode == "never" else 51
            assert ledger.slots_kept_max == held + policy(name).slack * (schedule.decode != "never"), name


def test_a_row_does_not_depend_on_whether_others_grow(model):
    feed = Prompting("blocked", 8)
    rows = [
        growing("keydiff"),
        replace(growing("keydiff", 1), so_far=0.0),
        growing("keydiff", 2, new=5),
        growing("h2o"),
        Request(prompt(70), DENSE, 0, NEW),
    ]
    together = Engine(model).generate(rows, feed)
    assert together == [Engine(model).generate([row], feed)[0] for row in rows]
    stays = together[1].ledger
    assert stays.slots_kept_max == BUDGET


def test_the_prompt_is_read_under_the_share_of_the_prompt(model):
    """Growth begins after it: the same survivors as under a budget that stays."""
    stays, grows = Survivors(), Survivors()
    feed = Prompting("blocked", 8)
    Engine(model, watchers=[stays]).generate([replace(growing("h2o"), so_far=0.0)], feed)
    Engine(model, watchers=[grows]).generate([growing("h2o")], feed)
    passes = len(growing("h2o").chunks(feed))
    assert grows.held[:passes] == stays.held[:passes]
    assert grows.held[passes:] != stays.held[passes:]


def test_recorded_passes_give_the_same(model):
    rows = [growing(name, seed) for name in ("keydiff", "window", "tova") for seed in (0, 1)]
    replaying = Engine(model, graphs=CudaGraphRunner(tape.record, lambda text: None))
    assert replaying.generate(rows, Prompting("blocked", 8)) == Engine(model).generate(rows, Prompting("blocked", 8))


def test_a_share_of_everything_is_dense(model):
    (all_of_it,) = Engine(model).generate([growing("keydiff", share=1.0)], Prompting("blocked", 8))
    (dense,) = Engine(model).generate([Request(prompt(LENGTH), DENSE, 0, NEW)], Prompting("blocked", 8))
    assert all_of_it.tokens == dense.tokens
    assert all_of_it.ledger.tokens_evicted == 0


def test_only_shares_of_all_tokens_grow():
    assert Budget.parse("25%", "so_far").so_far == 0.25
    assert Budget.parse("25%", "prompt").so_far == Budget.parse("256", "so_far").so_far == 0.0
    assert Budget.parse("25%", "so_far").slots_for(90, 13, [90]) == Budget.parse("25%").slots_for(90, 13, [90])
