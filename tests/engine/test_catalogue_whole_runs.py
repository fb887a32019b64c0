"""Invariants of policies.md 7 that need a whole run: slots in any order, one prefill for all, hard inputs, GPUs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from raw import run_layer, run_layers
from survivors import ALL, BUDGET, Survivors, able, generated
from tiny import prompt, tiny_model

from harness.engine.attention.model_parts import output_heads
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

BLOCKS, ONE_SHOT = Prompting("blocked", 16), Prompting("one_shot")
LENGTH, NEW = 56, 5


class Shuffling(Survivors):
    """Puts the slots of every uniform layer into another order after every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.draw = torch.Generator().manual_seed(0)

    def evicted(self, work) -> None:
        super().evicted(work)
        layer, order = work.layer, torch.randperm(work.layer.fill, generator=self.draw)
        for stored in (layer.keys, layer.values, layer.positions, *layer.states.values()):
            stored[:, :, : layer.fill] = stored[:, :, order]


@pytest.mark.parametrize("name", [n for n in able(BLOCKS) if ALL[n].uniform and ALL[n].rope == "absolute"])
def test_the_order_of_slots_does_not_matter(name):
    """policies.md T-05: attention and evictions are invariant to a permutation of the slots."""
    straight, expected = generated(ALL[name], BLOCKS, prompt(LENGTH), BUDGET, NEW)
    seen = Shuffling()
    engine = Engine(tiny_model("llama"), watchers=[seen])
    (outcome,) = engine.generate([Request(prompt(LENGTH), ALL[name], BUDGET, NEW)], BLOCKS)
    assert seen.held == straight.held
    assert outcome.tokens == expected.tokens
    for ours, theirs in zip(seen.logits, straight.logits, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


class Dump(Survivors):
    """Keeps what every layer of the first pass attends with."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = []

    def attended(self, work) -> None:
        if not self.held:
            self.inputs.append((work.query[0], work.keys[0], work.values[0]))


FROM_ONE_PREFILL = [
    name
    for name in able(ONE_SHOT)
    if not ALL[name].hindsight and ALL[name].rope == "absolute" and ALL[name].repeats is None
]


@pytest.mark.parametrize("name", FROM_ONE_PREFILL)
def test_one_dense_prefill_serves_all_one_shot_policies(name):
    """policies.md T-12: caches compressed from a dumped dense prefill are those compressed inside the forward."""
    dump, model = Dump(), tiny_model("llama")
    Engine(model, watchers=[dump]).generate([Request(prompt(LENGTH), DENSE, 0, 1)], ONE_SHOT)
    inside, _ = generated(ALL[name], ONE_SHOT, prompt(LENGTH), BUDGET, 1)
    outside = run_layers(
        ALL[name], [[layer] for layer in dump.inputs], BUDGET, 1, ONE_SHOT, tokens=prompt(LENGTH),
        output_heads=partial(output_heads, model),
    )  # fmt: skip
    assert [layer[0].kept for layer in outside] == inside.held[0]


KINDS = ("normal", "ties", "one-hot", "zero keys", "equal values")


def hard(seed: int, sizes: list[int], group: int, kind: str) -> list[tuple[torch.Tensor, ...]]:
    """Chunks of 2 KV heads, full of what breaks selections."""
    rng = np.random.default_rng(seed)
    chunks = []
    for m in sizes:
        query, keys, values = (torch.from_numpy(rng.normal(size=(h, m, 8))).float() for h in (2 * group, 2, 2))
        changed = {
            "ties": (query.round(), keys.round(), values.round()),
            "one-hot": (query * 1e4, keys, values),
            "zero keys": (query, keys * 0, values),
            "equal values": (query, keys, values * 0 + 1),
        }
        chunks.append(changed.get(kind, (query, keys, values)))
    return chunks


def sized(name: str, total: int, block: int) -> tuple[Prompting, list[int]]:
    """How this policy reads a prompt, and its chunks."""
    feed = next(f for f in (Prompting("blocked", block), ONE_SHOT, Prompting("token_fed")) if name in able(f))
    whole = ALL[name].attention_free or feed == ONE_SHOT
    return feed, [total] if whole else [min(block, total - start) for start in range(0, total, block)]


OF_WHOLE_MODELS = ("fastgen", "headkv", "duo_attention")
ON_ONE_LAYER = [
    name for name, each in ALL.items() if not each.hindsight and each.repeats is None and name not in OF_WHOLE_MODELS
]


@pytest.mark.parametrize("name", ON_ONE_LAYER)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data())
def test_hard_inputs_keep_the_promises(name, data):
    """policies.md T-36: shapes, budgets, ties, one-hot attention, zero keys and equal values of any kind."""
    total = data.draw(st.integers(1, 200), "tokens")
    budget = data.draw(st.integers(1, total + 3), "budget")
    kind, group = data.draw(st.sampled_from(KINDS), "kind"), data.draw(st.sampled_from((1, 2, 4, 7)), "group")
    chosen = ALL[name]
    budget = max(budget, chosen.protect.smallest_budget(), 10)
    feed, sizes = sized(name, total, data.draw(st.integers(1, total), "block"))
    chunks = hard(data.draw(st.integers(0, 999), "seed"), sizes + [1] * 3, group, kind)
    before, read = [set(), set()], 0
    for step, chunk in zip(run_layer(chosen, chunks, budget, len(sizes), feed), chunks, strict=True):
        arrived = set(range(read, read + chunk[0].shape[1]))
        read += len(arrived)
        assert step.output.isfinite().all()
        for head in range(2):
            own = step.kept[head]
            assert len(own) == len(set(own))
            assert set(own) <= before[head] | arrived
            before[head] = set(own)
        if chosen.uniform and chosen.schedule.decode != "never":
            assert [len(own) for own in step.kept] == [min(budget, read)] * 2
        if kind == "equal values":
            assert torch.allclose(step.output, torch.ones(()), atol=1e-5)


def readers_of(what: str) -> list[str]:
    """Policies whose scores depend on queries or on keys."""
    blind = ("window", "sink", "random")
    blind += ("lagkv",)  # of the newest tokens, which it always keeps
    blind += ("l2", "keydiff", "cur", "qfilters", "hashevict/released-code") if what == "queries" else ("hashevict",)
    return [name for name in ON_ONE_LAYER if not name.startswith(blind)]


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for what in ("queries", "keys") for name in readers_of(what)], ids=str
)
def test_nan_is_reported(name, what):
    """policies.md T-36: a NaN that a score reads is an error, never a silent choice."""
    feed, sizes = sized(name, LENGTH, 16)
    chunks = hard(5, sizes + [1] * 4, 2, "normal")
    for chunk in chunks[len(sizes) - 1 :]:
        chunk[("queries", "keys").index(what)][:, -1] = torch.nan
    with pytest.raises(AssertionError, match="not-a-number"):
        run_layer(ALL[name], chunks, BUDGET, len(sizes), feed)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_break_ties_alike():
    """policies.md T-08: same survivors on both devices where all tokens, and so all scores, are equal."""
    for name in able(ONE_SHOT):
        held = []
        for device in ("cpu", "cuda"):
            seen = Survivors()
            engine = Engine(tiny_model("llama").to(device), watchers=[seen])
            engine.generate([Request([7] * LENGTH, ALL[name], BUDGET, 1)], ONE_SHOT)
            held.append(seen.held)
        assert held[0] == held[1], name
