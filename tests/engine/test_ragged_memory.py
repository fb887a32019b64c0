"""Ragged budgets are real: what heads do not keep is not in memory, and the ledger says what tensors say."""

from __future__ import annotations

import pytest
from presets import policy
from tiny import prompt, stored_bytes, tiny_model

from harness.engine import model_runner
from harness.engine.batch import batch
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request

LENGTH, BUDGET, NEW = 120, 40, 6
RAGGED = ["ada_snapkv", "ada_pyramidkv", "pyramidkv", "l2/original", "buzz"]


@pytest.mark.parametrize("name", RAGGED)
def test_stored_bytes_are_those_of_the_slots_kept(name, monkeypatch):
    sizes = []

    class Watched(batch.Batch):
        def finish(self):
            super().finish()
            layers = self.cache.layers
            stored = sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)
            assert stored == sum(int(layer.held().sum()) for layer in layers) * (8 + 8) * 4
            assert stored == stored_bytes(self.cache)
            sizes.append(stored)

    monkeypatch.setattr(model_runner, "Batch", Watched)
    (outcome,) = Engine(tiny_model("llama")).generate(
        [Request(prompt(LENGTH), policy(name), BUDGET, NEW)], Prompting("one_shot")
    )
    assert outcome.ledger.kv_bytes == max(sizes)
    dense = (LENGTH + NEW - 1) * 3 * 2 * (8 + 8) * 4
    assert sizes[0] < dense
    if policy(name).keeps_to_budget:
        assert sizes[0] <= BUDGET * 3 * 2 * (8 + 8) * 4
