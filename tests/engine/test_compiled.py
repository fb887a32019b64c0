"""engine.compile: compiled layers give the tokens and ledgers of plain ones; where compiling fails, nothing changes."""

from __future__ import annotations

import pytest
import torch
from presets import policy
from tiny import prompt, tiny_model
from torch import _dynamo as dynamo

from harness.engine.engine import Engine
from harness.engine.fast_layers import compile_layers
from harness.engine.requests import Prompting, Request

FEED = Prompting("blocked", 8)


def outcomes(model):
    rows = [Request(prompt(24), policy(name), 12, 4) for name in ("keydiff", "h2o")]
    return Engine(model).generate(rows, FEED)


def compiled_graphs():
    return dynamo.utils.counters["stats"]["unique_graphs"]


def compiled_parts(model):
    return [part for part in model.modules() if part._compiled_call_impl is not None]


@pytest.fixture(autouse=True)
def compiler(monkeypatch, tmp_path):
    """A compiler that has seen nothing, and torch as it was afterwards."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    dynamo.reset()
    with dynamo.config.patch(suppress_errors=False):
        yield
    dynamo.reset()


def test_compiled_layers_give_the_same_tokens_and_ledgers():
    model = tiny_model("llama")
    plain = outcomes(model)
    if reason := compile_layers(model):
        pytest.skip(reason)
    assert len(compiled_parts(model)) == 3 * model.config.num_hidden_layers  # two norms and a feed-forward part each
    before = compiled_graphs()
    assert outcomes(model) == plain
    assert compiled_graphs() > before


def test_where_compiling_fails_one_sentence_says_so_and_the_model_stays(monkeypatch):
    def broken(part, *_, **__):
        raise RuntimeError("no compiler was found\nand more lines")

    monkeypatch.setattr(torch.nn.Module, "compile", broken)
    model = tiny_model("llama")
    assert compile_layers(model) == (
        "engine.compile: torch.compile does not work here (no compiler was found); the model runs as it is."
    )
    assert not compiled_parts(model)
