"""Decode on a CPU: probabilities are kept for policies that read attention statistics, and only for them."""

from __future__ import annotations

import pytest
import tiny
from presets import policy

from harness.engine.batch import layer_batch
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request

BLOCKS, BUDGET, NEW = Prompting("blocked", 8), 40, 9


def generated(*names):
    rows = [Request(tiny.prompt(70, seed), policy(name), BUDGET, NEW) for name in names for seed in (0, 1)]
    return Engine(tiny.tiny_model("llama")).generate(rows, BLOCKS)


@pytest.fixture
def opened(monkeypatch):
    """Calls of `attend_with_sums`, one for each layer and step."""
    calls, real = [], layer_batch.attend_with_sums

    def counted(*args):
        calls.append(args[0].shape)
        return real(*args)

    monkeypatch.setattr(layer_batch, "attend_with_sums", counted)
    return calls


@pytest.mark.parametrize("name", ["h2o", "tova", "snapkv", "caote_snapkv"])
def test_tokens_and_ledgers_are_those_of_the_fused_kernel(name, opened, monkeypatch):
    in_the_open = generated(name)
    assert len(opened) >= 3 * (NEW - 2)  # of three layers; the last token is not fed
    assert all(shape[2] == 1 for shape in opened)
    monkeypatch.setattr(layer_batch, "sums_come_with", lambda query, keys: False)
    assert generated(name) == in_the_open


@pytest.mark.parametrize("name", ["dense", "window", "keydiff", "random"])
def test_policies_that_read_no_attention_keep_the_fused_kernel(name, opened):
    generated(name)
    assert not opened
