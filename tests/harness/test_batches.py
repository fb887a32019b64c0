"""Batches: whole samples under all their cells, bounded by memory; where memory does not suffice nothing is lost."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from composed import composed
from omegaconf import OmegaConf

from harness.config.cell import Cell
from harness.config.model import ModelSpec
from harness.engine.batch.evict import slots_enabled
from harness.engine.decode.logits import NextLogits
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from harness.errors import UserError
from harness.runner import plan as planning
from harness.runner import worker
from harness.runner.memory import WORK_ON_A_PROCESSOR, Footprint, MemoryLoad, allowed_tokens, out_of_memory
from harness.runner.plan import plan
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.store.store import Store
from policies import DENSE

# Prompts that end in different blocks (of 128) are not read together: 300 tokens, more or less, end in the third.
TASK = ["task=niah", "task.lengths=[300]", "task.depths=[50]", "task.repeats=3"]


def cells(*overrides: str) -> list[Cell]:
    configs = [composed(*TASK, *overrides, f"budget={n}") for n in (64, 128)]
    return [Cell.parse(OmegaConf.to_container(config, resolve=True)) for config in configs]


def planned(store, *overrides: str):
    both = cells(*overrides)
    return plan(both[0].model, both, Store(store / "runs"), Prompts())


def test_samples_stay_whole_and_memory_bounds_the_batch(tmp_path):
    work = planned(tmp_path, "task.max_new_tokens=2")  # fewer than blocks: such rows do not come in waves
    (everything,) = work.batches(2**40)
    assert len(everything) == 2 * 3
    load, bytes_of_first = MemoryLoad(work.footprint), []
    for job in everything[:3]:
        load = load.with_row(job.row, job.cell.prompting)
        bytes_of_first.append(load.bytes)
    _, two, three = bytes_of_first
    by_pairs = list(work.batches((two + three) // 2))
    assert [len(batch) for batch in by_pairs] == [2, 2, 2]
    assert all(len({job.sample.id for job in batch}) == 1 for batch in by_pairs)
    assert [len(batch) for batch in work.batches(0)] == [1] * 6  # a single row is always tried


def test_what_reads_its_prompt_at_once_does_not_ride_along_token_by_token(tmp_path):
    """HashEvict's evictions and dense are known before a token-fed prompt is read; random ones go a token at a time."""
    asked = [
        Cell.parse(
            OmegaConf.to_container(composed(*TASK, "prompt=token_fed", f"policy={name}", "budget=64"), resolve=True)
        )
        for name in ("dense", "random", "hashevict/paper")
    ]
    work = plan(asked[0].model, asked, Store(tmp_path / "runs"), Prompts())
    policies = [{job.row.policy.name for job in batch} for batch in work.batches(2**40)]
    assert sorted(policies, key=len) == [{"random"}, {"dense", "hashevict/paper"}]


@pytest.mark.parametrize("new_tokens", [2, 12])
def test_a_batch_on_a_processor_has_so_much_work_and_whole_samples(new_tokens, tmp_path):
    """Whether or not its rows come in waves. One sample stays together even where it has more."""
    work = planned(tmp_path, f"task.max_new_tokens={new_tokens}")
    first = [job for job in work.jobs if job.sample.id == work.jobs[0].sample.id]
    tokens = sum(job.load(work.shape).tokens for job in first)
    assert [len(batch) for batch in work.batches(2**40, tokens=2.2 * tokens)] == [4, 2]
    for few in (1, 0.5 * tokens):
        batches = list(work.batches(2**40, tokens=few))
        assert [len({job.sample.id for job in batch}) for batch in batches] == [1, 1, 1]
        assert [len(batch) for batch in batches] == [2, 2, 2]


def test_the_work_of_a_batch_is_bounded_on_a_processor_alone():
    """A token is fed through every weight of the linear layers once, in a multiplication and an addition."""
    model = ModelSpec("testbed", "bundled/testbed").load("cpu")
    footprint = Footprint.of(model.config, "float32")
    layers = [layer for layer in model.model.layers.modules() if isinstance(layer, torch.nn.Linear)]
    assert footprint.weights == sum(layer.weight.numel() for layer in layers)
    assert allowed_tokens(footprint, torch.device("cpu")) == WORK_ON_A_PROCESSOR / (2 * footprint.weights)
    assert allowed_tokens(footprint, torch.device("cuda")) == float("inf")


def test_what_is_shared_is_counted_once(tmp_path):
    (batch,) = planned(tmp_path).batches(2**40)
    first, second = (job for job in batch if job.sample.id == batch[0].sample.id)
    alone = MemoryLoad(Footprint.of(first.cell.model.config(), "float32")).with_row(first.row, first.cell.prompting)
    both = alone.with_row(second.row, second.cell.prompting)
    assert both.slots == alone.slots + second.row.capacity + first.cell.prompting.block_size
    assert sum(both.shared.values()) == max(sum(alone.shared.values()), 128 + 128)  # up to the block past 128 slots


def test_slots_of_the_plan_are_the_bytes_that_are_allocated():
    """The formula's slots against `tensor.nbytes`: K, V and positions of N + B slots in every layer."""
    model = cells()[0].model.load("cpu")
    engine = Engine(model)
    row, prompting = Request(list(range(3, 43)), DENSE, 0, 8), Prompting("blocked", 16)
    batch = engine.new_batch([row], prompting)
    load = MemoryLoad(Footprint.of(model.config, "float32")).with_row(row, prompting)
    with torch.inference_mode(), slots_enabled(model):
        engine.read_prompts(batch, NextLogits.of(1))
    held = sum(t.nbytes for layer in batch.cache.layers for t in (layer.keys, layer.values, layer.positions))
    assert held == load.slots * load.footprint.slot


def test_a_batch_that_does_not_fit_is_halved_and_loses_nothing(tmp_path, monkeypatch):
    both = cells()
    asked: list[int] = []
    whole = Engine.generate

    def short_of_memory(self, rows, *rest):
        asked.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return whole(self, rows, *rest)

    untroubled = worker.run(both, tmp_path / "a", "cpu", Prompts(), Progress(shown=False)).rows()
    monkeypatch.setattr(Engine, "generate", short_of_memory)
    troubled = worker.run(both, tmp_path / "b", "cpu", Prompts(), Progress(shown=False)).rows()
    assert asked[:3] == [6, 3, 1]
    columns = ["cell_id", "sample_id", "metric", "value", "prediction", "slots_kept_max"]
    sort = ["cell_id", "sample_id", "metric"]
    pd.testing.assert_frame_equal(
        untroubled[columns].sort_values(sort, ignore_index=True), troubled[columns].sort_values(sort, ignore_index=True)
    )


def test_rows_that_may_speak_long_come_in_waves_of_half_the_room(tmp_path, monkeypatch):
    """Two waves fit where one batch would; results are those of a run in which everything fits."""
    both = cells("task.repeats=5", "task.max_new_tokens=12")
    work = plan(both[0].model, both, Store(tmp_path / "runs"), Prompts())
    assert all(job.load(work.shape).may_decode_long for job in work.jobs)  # 12 tokens after 3 blocks
    (everything,) = work.batches(2**40)
    assert [len(wave) for wave in work.with_jobs(everything).waves(2**40)] == [10]
    (batch,) = work.batches(2**40, rows=4)
    assert batch == everything
    assert [len(wave) for wave in work.with_jobs(batch).waves(2**40, rows=4)] == [2] * 5
    monkeypatch.setattr(planning, "WAVES_AT_ONCE", 2)
    assert [len(batch) for batch in work.batches(2**40, rows=4)] == [4, 4, 2]


def test_rows_in_waves_are_those_of_one_batch(tmp_path, monkeypatch):
    both = cells("task.repeats=5", "task.max_new_tokens=12")
    asked = []
    generate = Engine.generate
    monkeypatch.setattr(
        Engine, "generate", lambda *call: asked.append(call[4] if len(call) > 4 else ()) or generate(*call)
    )
    found = {
        rows: worker.run(
            both, tmp_path / f"{rows}", "cpu", Prompts(), Progress(shown=False), RunSettings(batch_rows=rows)
        )
        for rows in (4, 64)
    }
    assert asked == [[2] * 5, [10]]
    columns = ["cell_id", "sample_id", "metric", "value", "prediction", "slots_kept_max", "slots_kept_mean"]
    one, other = (run.rows()[columns].sort_values(columns[:3], ignore_index=True) for run in (found[4], found[64]))
    pd.testing.assert_frame_equal(one, other)


def test_a_single_row_that_does_not_fit_is_one_sentence(tmp_path, monkeypatch):
    def never(self, rows, *rest):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(Engine, "generate", never)
    with pytest.raises(UserError, match="does not fit into memory"):
        worker.run(cells()[:1], tmp_path, "cpu", Prompts(), Progress(shown=False))


def test_other_errors_are_not_taken_for_missing_memory():
    assert not out_of_memory(RuntimeError("shapes do not match"))
    assert out_of_memory(MemoryError())


def test_batches_of_many_passes_come_first(tmp_path):
    both = [*cells("policy=sink", "prompt=blocked"), *cells("policy=sink", "prompt=token_fed")]
    work = plan(both[0].model, both, Store(tmp_path / "runs"), Prompts())
    passes = [max(job.load(work.shape).passes for job in batch) for batch in work.batches(2**40)]
    assert passes == sorted(passes, reverse=True)
    assert len(passes) == 2
