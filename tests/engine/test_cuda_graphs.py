"""CUDA graphs: replayed passes give the tokens, ledgers and likelihoods of computed ones, and freeze no number."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import pytest
import tape
import torch
from presets import evicting_in, policy
from tiny import ARCHITECTURES, prompt, tiny_model

from harness.engine.cuda_graphs import CudaGraphRunner, _no_garbage_collection, on_gpu
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies.baselines import Recency

BLOCKS = Prompting("blocked", 8)
BUDGET, NEW = 40, 9
UNIFORM = [name for name in evicting_in(BLOCKS, BUDGET) if policy(name).uniform]
# What the papers compare most: these must really be replayed, prompts and generated text.
REPLAYED = (
    "window", "sink", "h2o", "h2o/original", "tova", "snapkv", "keydiff", "keydiff/recent", "caote_snapkv", "caote_h2o",
    "fastcaote_tova", "random", "lagkv/testbed", "cur", "chunkkv", "rkv", "dropkv", "expected_attention", "criticalkv",
)  # fmt: skip


def rows_of(*names, budget=BUDGET, new=NEW):
    return [Request(prompt(99, seed), policy(name), budget, new) for name in names for seed in (0, 1)]


def engines(model=None, record=tape.record):
    model = model or tiny_model("llama")
    messages = []
    return Engine(model), Engine(model, graphs=CudaGraphRunner(record, messages.append)), messages


@pytest.mark.parametrize("name", UNIFORM)
def test_replayed_passes_give_the_tokens_and_ledgers_of_computed_ones(name):
    plain, replaying, _ = engines()
    rows = rows_of(name)
    assert replaying.generate(rows, BLOCKS) == plain.generate(rows, BLOCKS)
    assert name not in REPLAYED or replaying.runner.graphs.replayed > NEW  # of blocks, and of the text after them


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_on_every_architecture(kind):
    plain, replaying, messages = engines(tiny_model(kind))
    rows = rows_of("keydiff", "h2o", "caote_snapkv")
    assert replaying.generate(rows, BLOCKS) == plain.generate(rows, BLOCKS)
    assert replaying.runner.graphs.replayed > NEW
    assert not messages


def test_likelihoods_of_every_token_are_those_of_computed_passes():
    plain, replaying, _ = engines()
    rows = rows_of("keydiff", "tova", new=0)
    for computed, replayed in zip(plain.perplexity(rows, BLOCKS), replaying.perplexity(rows, BLOCKS), strict=True):
        assert replayed.ledger == computed.ledger
        assert replayed.nll == pytest.approx(computed.nll, abs=1e-5)  # a product may round by where its tensors lie
    assert replaying.runner.graphs.replayed


def test_rows_that_end_early_leave_the_others_as_they_are():
    plain, replaying, _ = engines()
    rows = [
        replace(row, max_new_tokens=new) for row, new in zip(rows_of("keydiff", "sink"), (4, 20, 9, 14), strict=True)
    ]
    assert replaying.generate(rows, BLOCKS) == plain.generate(rows, BLOCKS)
    assert replaying.runner.graphs.replayed > 10


def test_dense_rows_grow_and_are_never_replayed():
    plain, replaying, messages = engines()
    rows = rows_of("dense")
    assert replaying.generate(rows, BLOCKS) == plain.generate(rows, BLOCKS)
    assert not replaying.runner.graphs.replayed
    assert not messages


@dataclass(frozen=True)
class CountsOnTheHost(Recency):
    """Keeps tokens whose position has the parity of the text's length."""

    def score(self, view):
        return ((view.positions + view.lengths[0]) % 2).float()


@dataclass(frozen=True)
class AsksTheDevice(Recency):
    """Reads a number from the device."""

    def score(self, view):
        return view.positions.float() * (1 if view.positions.max().item() else -1)


@pytest.mark.parametrize(("scorer", "why"), [(CountsOnTheHost(), "view.lengths"), (AsksTheDevice(), "capturing")])
def test_a_policy_that_needs_the_host_is_computed_and_one_sentence_says_so(scorer, why):
    plain, replaying, messages = engines()
    rows = [replace(row, policy=replace(row.policy, scorer=scorer)) for row in rows_of("window")]
    assert replaying.generate(rows, BLOCKS) == plain.generate(rows, BLOCKS)
    assert not replaying.runner.graphs.replayed
    assert len(messages) == 1
    assert why in messages[0]
    assert "results are the same" in messages[0]


def test_a_tape_really_freezes_what_a_graph_freezes():
    numbers = torch.arange(4)
    replay = tape.record(lambda: numbers * 2 + 1)
    assert replay().tolist() == [1, 3, 5, 7]
    numbers.fill_(3)
    assert replay().tolist() == [7] * 4
    for compute in (lambda: torch.tensor([1.0]), lambda: numbers[numbers > 0], lambda: numbers * int(numbers[0])):
        with pytest.raises(RuntimeError, match="capturing"):
            tape.record(compute)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", REPLAYED)
def test_cuda_graphs_give_the_tokens_and_ledgers_of_computed_passes(name):
    plain, replaying, messages = engines(tiny_model("llama").cuda(), on_gpu())
    rows = rows_of(name)
    assert replaying.generate(rows, BLOCKS) == plain.generate(rows, BLOCKS)
    assert replaying.runner.graphs.replayed
    assert not messages


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_are_recorded_again_after_all_batches_are_gone():
    _, replaying, messages = engines(tiny_model("llama").cuda(), on_gpu())
    for _ in range(3):
        before = replaying.runner.graphs.replayed
        replaying.generate(rows_of("keydiff"), BLOCKS)
        assert replaying.runner.graphs.replayed > before
    assert not messages


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_of_finished_batches_are_not_freed_while_another_is_recorded():
    plain, replaying, messages = engines(tiny_model("llama").cuda(), on_gpu())
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)  # collect at nearly every allocation
    try:
        for _ in range(4):
            assert replaying.generate(rows_of("keydiff"), BLOCKS) == plain.generate(rows_of("keydiff"), BLOCKS)
    finally:
        gc.set_threshold(*before)
    assert not messages


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_after_a_recording_that_failed_the_next_one_succeeds():
    record, numbers = on_gpu(), torch.arange(4, device="cuda")
    with pytest.raises(RuntimeError):
        record(lambda: numbers * int(numbers[1]))
    replay = record(lambda: numbers * 2)
    assert replay().tolist() == [0, 2, 4, 6]


def test_recording_leaves_the_garbage_collector_as_it_was():
    assert gc.isenabled()
    with _no_garbage_collection():
        assert not gc.isenabled()
        with _no_garbage_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
