"""Continuous batching: rows of a later wave take the places of finished ones, and every row generates and holds what it
does by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from presets import evicting_in, policy
from tiny import prompt, tiny_model

from harness.engine.attention.model_parts import slots_worth_a_pass
from harness.engine.batch.evict import slots_enabled
from harness.engine.decode import decode_batch
from harness.engine.decode.decode_batch import join
from harness.engine.decode.logits import NextLogits
from harness.engine.engine import Engine, Observer
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import Prompting, Request, RequestOutput
from policies import DENSE

BLOCKED, ONCE, FED = Prompting("blocked", 8), Prompting("one_shot"), Prompting("token_fed")
LIMITS = (2, 12, 5, 9, 1, 14, 3, 3, 11, 6, 2)
WAVES = (3, 3, 4, 1)


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def by_itself(model, row: Request, feed: Prompting):
    (outcome,) = Engine(model).generate([row], feed)
    return outcome


@pytest.mark.parametrize(
    "name",
    ["keydiff", "h2o", "scissorhands", "snapkv", "caote_h2o", "hashevict", "ada_snapkv", "fastgen", "sink/buzz", "buzz",
     "random", "oracle", "kvec/testbed", "gemfilter"],
)  # fmt: skip
def test_every_row_generates_and_holds_what_it_does_alone(model, name):
    feed = next(feed for feed in (BLOCKED, ONCE, FED) if name in evicting_in(feed, 40))
    rows = [Request(prompt(48 + n % 5, n), policy(name), 40, limit) for n, limit in enumerate(LIMITS)]
    assert Engine(model).generate(rows, feed, waves=WAVES) == [by_itself(model, row, feed) for row in rows]


class Outcomes(Observer):
    """Each row's outcome by its index, in the order in which rows ended."""

    def __init__(self) -> None:
        self.found: list[tuple[int, RequestOutput]] = []

    def ended(self, index: int, outcome: RequestOutput) -> None:
        self.found.append((index, outcome))


@pytest.mark.parametrize("seconds", [0.0, 1e9])
@pytest.mark.parametrize("name", ["keydiff", "ada_snapkv", "oracle", "gemfilter"])
def test_a_row_that_has_ended_is_told_once_with_its_final_outcome(model, name, seconds, monkeypatch):
    """Whether it has left its batch by then (after 1e9 seconds) or waits in it until half of the rows have ended."""
    monkeypatch.setattr(decode_batch, "OUTCOMES_EVERY", seconds)
    feed = next(feed for feed in (BLOCKED, ONCE) if name in evicting_in(feed, 40))
    rows = [Request(prompt(48 + n % 5, n), policy(name), 40, limit) for n, limit in enumerate(LIMITS)]
    told = Outcomes()
    returned = Engine(model).generate(rows, feed, told, WAVES)
    assert sorted(index for index, _ in told.found) == list(range(len(rows)))
    assert [outcome for _, outcome in sorted(told.found, key=lambda each: each[0])] == returned
    assert returned == [by_itself(model, row, feed) for row in rows]


def test_rows_are_told_in_the_order_in_which_they_end(model, monkeypatch):
    monkeypatch.setattr(decode_batch, "OUTCOMES_EVERY", 0.0)
    rows = [Request(prompt(48, n), policy("keydiff"), 40, limit) for n, limit in enumerate((5, 20, 2, 20, 9, 20, 20))]
    told = Outcomes()
    Engine(model).generate(rows, BLOCKED, told)
    assert [index for index, _ in told.found] == [2, 0, 4, 1, 3, 5, 6]  # the first three while most go on


def test_policies_budgets_and_shared_prompts_of_several_waves(model):
    """Each wave brings its policies in another order, budgets of two sizes, and prompts that rows share."""
    carrying = replace(policy("snapkv"), scorer=replace(policy("snapkv").scorer, window_source="carry"))
    mixed = [*map(policy, ("keydiff", "h2o", "oracle", "tova")), carrying, DENSE]
    rows = [
        Request(prompt(90, wave), chosen, budget, LIMITS[(n + 3 * wave) % len(LIMITS)])
        for wave in range(3)
        for n, chosen in enumerate(mixed[wave:] + mixed[:wave])
        for budget in (36, 70)
    ]
    together = Engine(model).generate(rows, BLOCKED, waves=[12, 12, 12])
    assert together == [by_itself(model, row, BLOCKED) for row in rows]


def test_ragged_rows_of_several_policies(model):
    names = ("ada_snapkv", "pyramidkv", "snapkv/kvec")
    rows = [Request(prompt(48, n), policy(names[n % 3]), 40, limit) for n, limit in enumerate(LIMITS)]
    assert Engine(model).generate(rows, ONCE, waves=WAVES) == [by_itself(model, row, ONCE) for row in rows]


def test_continuations_come_in_waves_too(model):
    rows = [
        Request(prompt(48, n), policy("h2o"), 40, continuation=prompt(limit, 100 + n)) for n, limit in enumerate(LIMITS)
    ]
    together = Engine(model).follow(rows, BLOCKED, waves=WAVES)
    for row, outcome in zip(rows, together, strict=True):
        (alone,) = Engine(model).follow([row], BLOCKED)
        assert outcome.nll == pytest.approx(alone.nll, abs=1e-5)  # of 97 logits from batched products
        assert (outcome.ledger, outcome.greedy) == (alone.ledger, alone.greedy)


def test_rows_that_wait_are_not_mistaken_for_others_once_their_widest_has_left(model):
    """Dense rows wait for others to merge with, beside evicting rows that need about as many slots as they do."""
    ends = [lambda tokens: len(tokens) == 2, None]  # the row of the most slots ends early
    rows = [
        row
        for wave in range(3)
        for n, until in enumerate(ends)
        for row in (
            Request(prompt(52, 2 * wave + n), DENSE, 0, 14 if until else 11, until=until),
            Request(prompt(52, 2 * wave + n), policy("keydiff"), 40, 5 + 3 * n),
        )
    ]
    assert Engine(model).generate(rows, BLOCKED, waves=[4, 4, 4]) == [by_itself(model, row, BLOCKED) for row in rows]


@pytest.mark.parametrize("name", ["keydiff", "random", "oracle", "dense"])
def test_rows_that_wait_until_the_end_evict_until_the_end(model, name):
    """The first wave waits for others like it, and none comes: it decodes when no prompt is left to read."""
    waiting = DENSE if name == "dense" else policy(name)
    rows = [Request(prompt(48, n), waiting, 0 if name == "dense" else 40, 14) for n in range(4)]
    rows += [Request(prompt(20, n), policy("h2o"), 12, 2) for n in range(4, 8)]
    assert Engine(model).generate(rows, ONCE, waves=[4, 4]) == [by_itself(model, row, ONCE) for row in rows]


def passes(model, monkeypatch, rows, waves):
    """Rows in each decode pass, the waiting ones included."""
    widths = []
    step = ModelRunner.step
    with monkeypatch.context() as patch:
        patch.setattr(
            ModelRunner, "step", lambda self, batch, rows: widths.append(len(rows)) or step(self, batch, rows)
        )
        Engine(model).generate(rows, BLOCKED, waves=waves)
    return widths


def test_places_are_taken_at_once_and_two_waves_are_held_at_most(model, monkeypatch):
    rows = [Request(prompt(48, n), policy("keydiff"), 40, limit) for n, limit in enumerate((2, 2, 2, 20) * 4)]
    each_alone = sum(len(passes(model, monkeypatch, rows[n : n + 4], ())) for n in range(0, 16, 4))
    widths = passes(model, monkeypatch, rows, [4, 4, 4, 4])
    assert max(widths) == 8
    assert each_alone == 4 * 19
    assert len(widths) < 30  # the long rows of all waves decode side by side


def test_what_has_most_rows_decodes_and_the_few_wait_for_company(model, monkeypatch):
    """A row with positions inside the cache cannot join the others. One comes with each wave; all decode at last."""
    few = [Request(prompt(48, 30 + n), policy("window/buzz"), 40, 14) for n in range(4)]
    rows = [row for own in few for row in (*(Request(prompt(48, n), policy("keydiff"), 40, 2) for n in range(6)), own)]
    widths = passes(model, monkeypatch, rows, [7, 7, 7, 7])
    assert widths.count(4) == 13  # of 14 tokens each, the first of which follows from the prompt itself
    assert len(widths) <= 13 + 4


@dataclass
class Waiting:
    """What `join` looks at: rows that go on, and slots of each."""

    active: range
    width: int


@pytest.mark.parametrize(
    ("slots_worth_a_pass", "together"),
    [
        (63, [64]),  # two rows of 32 would attend over as many empty slots, 64 together
        (64, [64, 32]),
        (103, [64, 32]),  # three rows of 16 over 144 more: 208 for two passes that are saved
        (104, [64, 32, 16]),
    ],
)
def test_batches_decode_together_where_empty_slots_cost_less_than_passes(slots_worth_a_pass, together):
    parts = [Waiting(range(3), 16), Waiting(range(2), 32), Waiting(range(4), 64)]
    joined, others = join(parts, slots_worth_a_pass)
    assert [part.width for part in joined] == together
    assert {part.width for part in others} == {16, 32, 64} - set(together)


def test_empty_slots_are_never_more_than_those_in_use():
    """However heavy the weights are: they take memory."""
    joined, _ = join([Waiting(range(9), 16), Waiting(range(1), 64)], 10**9)
    assert len(joined) == 1


def test_a_pass_is_worth_the_slots_that_are_as_many_numbers_as_the_weights(model):
    weights = sum(weight.numel() for weight in model.parameters()) + model.model.rotary_emb.inv_freq.numel() * 2
    assert slots_worth_a_pass(model) == weights // (3 * 2 * 2 * 8)  # layers, KV heads, keys and values, head dimension


def test_rows_of_several_budgets_decode_side_by_side_and_dense_ones_by_themselves(model, monkeypatch):
    rows = [Request(prompt(60, 1), policy(name), budget, 9) for name in ("keydiff", "h2o") for budget in (24, 33, 40)]
    dense = Request(prompt(60, 1), DENSE, 0, 9)
    widths = passes(model, monkeypatch, [*rows, dense], ())
    assert sorted(widths) == [1] * 8 + [6] * 8  # the first of 9 tokens follows from the prompt
    assert Engine(model).generate([*rows, dense], BLOCKED) == [by_itself(model, row, BLOCKED) for row in [*rows, dense]]


def test_the_mask_of_rows_that_hold_different_numbers_of_slots_lasts_until_one_ends(model):
    """At their budgets, with as many tokens fed in each step."""
    rows = [Request(prompt(60, budget), policy("keydiff"), budget, 9) for budget in (24, 40)]
    engine = Engine(model)
    batch = engine.runner.new_batch(rows, BLOCKED)
    masks = []
    with torch.inference_mode(), slots_enabled(model):
        engine.runner.read_prompts(batch, NextLogits.of(2))
        for pieces in ([[1], [1]], [[2], [2]], [[], [3]], [[], [4]]):
            engine.runner.step(batch, pieces)
            masks.append(batch.mask)
    assert [mask is masks[0] for mask in masks] == [True, True, False, False]
    assert masks[2] is masks[3]
