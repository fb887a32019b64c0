"""The oracle sees the dense run's future, and only that."""

from __future__ import annotations

import pytest
import torch
from presets import policy
from tiny import generated_by_transformers, prompt, tiny_model

from harness.engine import model_runner
from harness.engine.batch import batch
from harness.engine.batch.evict import slots_enabled
from harness.engine.decode import look_ahead
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request

LENGTH, NEW, BUDGET = 50, 6, 20


def dense_attention(model, tokens):
    """(L, H, T, T) probabilities of transformers' eager attention, averaged over the query group of 2."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(torch.tensor([tokens]), output_attentions=True).attentions
    return torch.stack([a[0].view(2, 2, *a.shape[2:]).mean(1) for a in layers])


@pytest.mark.parametrize(
    ("feed", "seen"), [(Prompting("blocked", 30), 30), (Prompting("one_shot"), LENGTH)], ids=["blocked", "one_shot"]
)
def test_at_its_first_eviction_it_keeps_what_later_queries_of_the_dense_run_attend_to(feed, seen, monkeypatch):
    held = []

    class Watched(batch.Batch):
        def finish(self):
            super().finish()
            if self.rows[0].policy.hindsight:
                held.append([layer.positions[0].clone() for layer in self.cache.layers])

    monkeypatch.setattr(model_runner, "Batch", Watched)
    model, tokens = tiny_model("llama"), prompt(LENGTH)
    Engine(model).generate([Request(tokens, policy("oracle"), BUDGET, NEW)], feed)
    # The last generated token is never fed, so it attends to nothing.
    whole = tokens + generated_by_transformers(model, tokens, NEW)[:-1]
    attention = dense_attention(model, whole)
    for layer, positions in enumerate(held[0]):
        for head, slots in enumerate(positions):
            future = attention[layer, head, seen:, :seen].sum(0)
            assert sorted(slots[slots >= 0].tolist()) == sorted(future.topk(BUDGET).indices.tolist())


def test_it_runs_in_every_regime_and_keeps_its_budget():
    engine = Engine(tiny_model("llama"))
    for feed in (Prompting("blocked", 8), Prompting("one_shot"), Prompting("token_fed")):
        rows = [Request(prompt(LENGTH), policy(name), BUDGET, NEW) for name in ("oracle", "keydiff")]
        for outcome in engine.generate(rows, feed):
            assert outcome.ledger.invalid == ""
            assert outcome.ledger.slots_kept_max == BUDGET


def test_it_changes_nothing_for_its_neighbours():
    engine, feed = Engine(tiny_model("llama")), Prompting("blocked", 8)
    row = Request(prompt(LENGTH, 2), policy("h2o"), BUDGET, NEW)
    both = engine.generate([Request(prompt(LENGTH), policy("oracle"), BUDGET, NEW), row], feed)
    assert both[1].tokens == engine.generate([row], feed)[0].tokens


def test_a_prompt_that_is_fed_token_by_token_is_looked_ahead_in_blocks(monkeypatch):
    """After every token the future is that of a dense run token by token; one run serves all budgets of a prompt."""
    feed, engine = Prompting("token_fed"), Engine(tiny_model("llama"))
    rows = [
        Request(prompt(LENGTH + 90 * longer, longer), policy("oracle"), budget, NEW)
        for longer in (0, 1)
        for budget in (BUDGET, BUDGET + 9)
    ]
    assert [row.budget for row in look_ahead.dense_runs(rows, feed)] == [BUDGET, BUDGET]

    def futures():
        with torch.inference_mode(), slots_enabled(engine.model):
            return look_ahead.FutureOfRows(look_ahead.look_ahead(engine.runner, rows, feed), (0, 1))

    in_blocks = futures()
    monkeypatch.setattr(look_ahead, "TOKENS_AT_ONCE", 1)
    by_token = futures()
    for row, request in enumerate((rows[0], rows[2])):
        for length in range(BUDGET, request.total_tokens - 1):
            found, expected = in_blocks.of([row], [length]), by_token.of([row], [length])
            assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)
            assert expected[..., :length].any()
