"""Promise 2: slots never exceed N + B, counted on the tensors, and a policy that cheats is caught."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from presets import evicting_in, policy
from tiny import prompt, stored_bytes, tiny_model

from harness.engine import model_runner
from harness.engine.batch import batch
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import Policy, Schedule
from policies.scorer import Stateless
from policies.tova import TOVA

FEEDS = [Prompting("blocked", 1), Prompting("blocked", 16), Prompting("one_shot"), Prompting("token_fed")]
LENGTH, NEW = 70, 6


@pytest.fixture(scope="module")
def engine():
    return Engine(tiny_model("llama"))


@pytest.fixture
def caches(monkeypatch):
    """Every cache that a run allocates, with the most slots ever seen in use."""
    seen = []

    class Watched(batch.Batch):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.most = 0
            seen.append(self)

        def finish(self):
            super().finish()
            for layer in self.cache.layers:
                self.most = max(self.most, int((layer.positions >= 0).sum(-1).max()))

    monkeypatch.setattr(model_runner, "Batch", Watched)
    return seen


BYTES_PER_SLOT = 3 * 2 * (8 + 8) * 4  # 3 layers, 2 heads, 8 numbers for K and for V, 4 bytes
GRID = [(name, feed) for feed in FEEDS[1:] for name in evicting_in(feed, 64)]


@pytest.mark.parametrize(("name", "feed"), GRID, ids=str)
def test_no_policy_in_any_regime_holds_more_than_it_may(engine, caches, name, feed):
    """policies.md T-03."""
    chosen = policy(name)
    budget = 64 if chosen.protect.smallest_budget() > 40 else 40
    (outcome,) = engine.generate([Request(prompt(LENGTH), chosen, budget, NEW)], feed)
    ledger = outcome.ledger
    assert ledger.invalid == ""
    assert ledger.slots_requested == budget
    grown = NEW - 1 if chosen.schedule.decode == "never" else 0  # the last token is never fed
    if chosen.keeps_to_budget:
        assert ledger.kv_bytes <= (budget + grown) * BYTES_PER_SLOT
    if not chosen.uniform or chosen.token_filter is not None:
        return
    run = caches[0]
    assert run.most == budget + grown == ledger.slots_kept_max
    assert ledger.slots_kept_mean == budget + grown
    assert budget <= ledger.slots_peak <= budget + feed.widest(LENGTH, budget)
    if chosen.schedule.evict_first and feed.regime == "token_fed":
        assert ledger.slots_peak == budget
    assert ledger.tokens_evicted == LENGTH + NEW - 1 - budget - grown
    assert ledger.kv_bytes == (budget + grown) * BYTES_PER_SLOT
    tail = 1 if feed.regime in ("one_shot", "token_fed") else feed.block_size
    capacity = budget + (NEW if chosen.schedule.decode == "never" else 0)
    assert stored_bytes(run.cache) == (capacity + tail) * BYTES_PER_SLOT


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_dense_holds_everything(engine, caches, feed):
    """policies.md 3.1, T-03."""
    (outcome,) = engine.generate([Request(prompt(LENGTH), policy("dense"), 0, NEW)], feed)
    assert caches[0].most == LENGTH + NEW - 1 == outcome.ledger.slots_kept_max
    assert outcome.ledger.slots_requested == -1
    assert outcome.ledger.invalid == ""


@pytest.mark.parametrize(("name", "feed"), GRID[::3], ids=str)
def test_positions_stay_unique_and_in_range(engine, caches, name, feed):
    """policies.md T-04."""
    engine.generate([Request(prompt(LENGTH), policy(name), 64, NEW)], feed)
    for layer in caches[0].cache.layers:
        for head in layer.slot_positions[0]:
            held = head[head >= 0]
            assert len(held.unique()) == len(held)
            assert held.max() < LENGTH + NEW


@dataclass(frozen=True)
class Hoarder(Policy):
    """Keeps everything, whatever the budget says."""

    def keep(self, view):
        return view.filled, torch.zeros(len(view.budgets), dtype=torch.bool)


@dataclass(frozen=True)
class Miser(Policy):
    """Drops one slot more than it has to."""

    def keep(self, view):
        kept, broken = super().keep(view)
        return kept & (view.positions != view.positions.masked_fill(~kept, -1).amax(-1, keepdim=True)), broken


@dataclass(frozen=True)
class NotANumber(Stateless):
    """Scores that cannot be compared."""

    def score(self, view):
        return torch.full(view.positions.shape, torch.nan)


@pytest.mark.parametrize(
    ("cheat", "sentence"),
    [
        (Hoarder("hoarder", policy("keydiff").scorer), "more than its budget of 20"),
        (Miser("miser", policy("keydiff").scorer), "fewer than the budget allows"),
        (Policy("nan", NotANumber()), "not-a-number"),
    ],
    ids=["hoarder", "miser", "nan"],
)
@pytest.mark.parametrize("feed", FEEDS[1:], ids=str)
def test_a_broken_policy_is_caught_and_its_neighbour_is_not_harmed(engine, cheat, sentence, feed):
    honest = Request(prompt(LENGTH, 5), policy("keydiff"), 20, NEW)
    alone = engine.generate([honest], feed)[0]
    caught, neighbour = engine.generate([Request(prompt(LENGTH), cheat, 20, NEW), honest], feed)
    assert sentence in caught.ledger.invalid
    assert neighbour.tokens == alone.tokens
    assert neighbour.ledger == replace(alone.ledger)


def test_state_is_charged_to_policies_that_carry_it(engine):
    rows = [Request(prompt(LENGTH), policy(name), 40, NEW) for name in ("h2o", "caote_h2o", "tova")]
    charged = [outcome.ledger.state_bytes for outcome in engine.generate(rows, FEEDS[1])]
    assert charged == [40 * 3 * 2 * 4, 40 * 3 * 2 * 4, 0]


def test_coverage_counts_prompt_tokens_held_anywhere(engine):
    """policies.md T-35."""
    window, keydiff = engine.generate(
        [Request(prompt(80), policy(name), 20, 1) for name in ("window", "keydiff")], Prompting("one_shot")
    )
    assert window.ledger.coverage == pytest.approx(20 / 80)
    assert 20 / 80 < keydiff.ledger.coverage <= 1


def test_a_prompt_read_whole_shrinks_to_the_budget_with_the_first_generated_token(engine):
    """policies.md 1.2: prompt eviction `none`, decode eviction `every_step`: one selection from T + 1 to N slots."""
    whole = Policy("late", TOVA(), schedule=Schedule(prompt="never"))
    rows = [Request(prompt(36), whole, budget, 6) for budget in (20, 12, 64)]
    for row, outcome in zip(rows, engine.generate(rows, Prompting("blocked", 8)), strict=True):
        assert outcome.ledger.invalid == ""
        assert outcome.ledger.slots_kept_mean == min(row.budget, 36 + 5)
        assert outcome.tokens == engine.generate([row], Prompting("blocked", 8))[0].tokens
