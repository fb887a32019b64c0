"""T-10 of policies.md: positions inside the cache are exact, against recomputation from unrotated keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from presets import policy
from raw import run_layer
from reference.engine import simulate
from reference.presets import make
from tiny import generated_by_transformers, prompt, tiny_model

from harness.engine.attention.model_parts import CacheRope
from harness.engine.engine import Engine
from harness.engine.requests import EngineError, Prompting, Request
from policies import DENSE

MODELS = ("llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2")


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("feed", [Prompting("blocked", 7), Prompting("one_shot")], ids=str)
def test_before_the_first_eviction_it_is_the_dense_model(kind, feed):
    """policies.md T-10."""
    model, tokens = tiny_model(kind), prompt(40)
    inside = [Request(tokens, replace(policy(name), rope="cache"), 60, 12) for name in ("sink", "h2o")]
    dense = Request(tokens, replace(DENSE, rope="cache"), 0, 12)
    expected = generated_by_transformers(model, tokens, 12)
    assert [outcome.tokens for outcome in Engine(model).generate([*inside, dense], feed)] == [expected] * 3


class Table(CacheRope):
    """A rotary table of its own, 4 frequencies."""

    def __init__(self, indices: int) -> None:
        angles = torch.arange(indices)[:, None] * 10.0 ** -torch.arange(4)
        self.cos, self.sin = angles.cos(), angles.sin()


def rotate(vector: np.ndarray, index: int) -> np.ndarray:
    angles = index * 10.0 ** -np.arange(4)
    first, second = vector[:4], vector[4:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin])


@pytest.mark.parametrize(("name", "reference"), [("sink", "sink"), ("window", "window"), ("h2o", "h2o/keydiff")])
def test_after_evictions_it_is_recomputation_from_unrotated_keys(name, reference):
    """policies.md T-10."""
    rng = np.random.default_rng(3)
    sizes = [9, 9, 5] + [1] * 8
    chunks = [tuple(rng.normal(size=(h, m, 8)).astype(np.float32) for h in (4, 2, 2)) for m in sizes]
    slow = simulate(make(reference), chunks, 11, prompt_chunks=3, rotate=rotate)
    inside = replace(policy(name), rope="cache")
    fast = run_layer(inside, [tuple(map(torch.from_numpy, c)) for c in chunks], 11, 3, rope=Table(40))
    for expected, got in zip(slow, fast, strict=True):
        assert got.kept == expected.kept
        np.testing.assert_allclose(got.output.numpy(), expected.output, atol=1e-4)


@pytest.mark.parametrize(("old", "new"), [(9, 4), (30, 0), (7, 7), (0, 31)])
def test_rotating_by_the_difference_equals_rotating_anew(old, new):
    """policies.md T-10: delta rotation equals rebuilding from unrotated keys within 1e-5."""
    keys = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    table, at = Table(40), torch.full((5,), 1)
    if new >= old:
        turned = table.rotate(table.rotate(keys, at * old), at * (new - old))
        torch.testing.assert_close(turned, table.rotate(keys, at * new), rtol=0, atol=1e-5)
    else:  # back by the difference, from where the token lies now
        turned = table.rotate(table.rotate(keys, at * new), at * (old - new))
        torch.testing.assert_close(turned, table.rotate(keys, at * old), rtol=0, atol=1e-5)


def test_both_kinds_of_positions_may_run_together():
    """Each row yields what it yields alone."""
    rows = [
        Request(prompt(20), policy("sink"), 10, 6),
        Request(prompt(20), replace(policy("sink"), rope="cache"), 10, 6),
    ]
    engine, feed = Engine(tiny_model("llama")), Prompting("blocked", 8)
    alone = [engine.generate([row], feed)[0] for row in rows]
    assert engine.generate(rows, feed) == alone
    assert alone[0].tokens != alone[1].tokens


def test_a_model_without_a_plain_table_is_refused():
    row = Request(prompt(20), replace(policy("sink"), rope="cache"), 10)
    with pytest.raises(EngineError, match="choose a policy with rope=absolute"):
        Engine(tiny_model("gemma3_text")).generate([row], Prompting("blocked", 8))
