"""Batches: whole samples under all their cells, bounded by memory; where memory does not suffice nothing is lost."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
import torch
from composed import composed
from omegaconf import OmegaConf

from harness.config.cell import Cell
from harness.config.model import ModelSpec
from harness.engine.batch.evict import slots_enabled
from harness.engine.decode import decode_batch
from harness.engine.decode.logits import NextLogits
from harness.engine.engine import Engine
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import Prompting, Request
from harness.errors import UserError
from harness.runner import memory as planned_memory
from harness.runner import plan as planning
from harness.runner import worker
from harness.runner.memory import WORK_ON_A_PROCESSOR, Footprint, MemoryLoad, allowed_tokens, out_of_memory
from harness.runner.plan import RunResult, plan
from harness.runner.process import Usage
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.runner.worker import BatchRun
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


def assert_same_rows(one: RunResult, other: RunResult) -> None:
    columns = ["cell_id", "sample_id", "metric", "value", "prediction", "slots_kept_max", "slots_kept_mean"]
    first, second = (run.rows()[columns].sort_values(columns[:3], ignore_index=True) for run in (one, other))
    pd.testing.assert_frame_equal(first, second)


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


def test_a_sample_is_parted_only_where_it_does_not_fit_and_then_into_rows_that_share_most(tmp_path):
    """The oracle's rows first, which look ahead together; then by budget, as prompts are shared until they evict."""
    words = ("task.max_new_tokens=2", "task.repeats=2")
    asked = [
        Cell.parse(OmegaConf.to_container(composed(*TASK, *words, f"policy={name}", f"budget={slots}"), resolve=True))
        for name in ("keydiff", "oracle", "window")
        for slots in (128, 64)
    ]
    work = plan(asked[0].model, asked, Store(tmp_path / "runs"), Prompts())

    def order(batch):
        return [(job.cell.policy.name, job.row.budget) for job in batch]

    sample = [("oracle", 64), ("oracle", 128), ("keydiff", 64), ("window", 64), ("keydiff", 128), ("window", 128)]
    (everything,) = work.batches(2**40)
    assert order(everything) == 2 * sample
    assert [order(batch) for batch in work.batches(2**40, rows=9)] == [sample, sample]
    assert [order(batch) for batch in work.batches(2**40, rows=4)] == [sample[:4], sample[4:] + sample[:2], sample[2:]]


@pytest.mark.parametrize(
    ("memory", "threads", "allowed"), [(4, 4, 2), (16, 4, 4), (16, 2, 3.2), (16, 1, 2), (16, 9, 4), (1000, 1, 4)]
)
def test_a_run_on_a_processor_counts_on_as_much_memory_as_it_has_cores(memory, threads, allowed, monkeypatch):
    """GiB of four cores; at least 2, and 4 at most."""
    monkeypatch.setattr(planned_memory, "physical_bytes", lambda: memory * 2**30)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(planned_memory.os, "cpu_count", lambda: 4)
    assert planned_memory.allowed_bytes(torch.device("cpu")) == int(allowed * 2**30)


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
    batch = engine.runner.new_batch([row], prompting)
    load = MemoryLoad(Footprint.of(model.config, "float32")).with_row(row, prompting)
    with torch.inference_mode(), slots_enabled(model):
        engine.runner.read_prompts(batch, NextLogits.of(1))
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
    assert_same_rows(found[4], found[64])


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"workers": 1}, [8]),
        ({"workers": 2}, [4, 4]),
        ({"workers": 9}, [2, 2, 2, 2]),  # a sample stays whole
        ({"workers": 2, "deterministic": True}, [8]),  # bits depend on a row's company
    ],
)
def test_every_worker_has_a_share_of_a_small_sweep(settings, rows, tmp_path, monkeypatch):
    """Four samples under two cells, seen in the batches of one worker that computes all of them."""
    asked, generate = [], Engine.generate

    def counted(self, of_batch, *rest):
        asked.append(len(of_batch))
        return generate(self, of_batch, *rest)

    monkeypatch.setattr(Engine, "generate", counted)
    both = cells("task.repeats=4", "task.max_new_tokens=12")
    worker.run(both, tmp_path, "cpu", Prompts(), Progress(shown=False), RunSettings(**settings))
    assert asked == rows


@pytest.fixture
def at_once(monkeypatch):
    """What has ended is stored after the pass in which it did, not half a minute later."""
    monkeypatch.setattr(worker, "HANDED_ON_EVERY", 0.0)
    monkeypatch.setattr(decode_batch, "OUTCOMES_EVERY", 0.0)


def test_what_has_ended_is_stored_though_its_batch_goes_on_and_a_stop_loses_only_the_rest(
    tmp_path, monkeypatch, at_once
):
    both, limits = cells("task.repeats=5", "task.max_new_tokens=12"), RunSettings(batch_rows=4)  # in five waves
    whole = worker.run(both, tmp_path / "whole", "cpu", Prompts(), Progress(shown=False), limits)
    store, step = Store(tmp_path / "stopped" / "runs"), ModelRunner.step

    def stored() -> int:
        return sum(len(store.finished(cell.id)) for cell in both)

    def stop_after_the_first(*call):
        if stored():
            raise KeyboardInterrupt
        return step(*call)

    monkeypatch.setattr(ModelRunner, "step", stop_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        worker.run(both, tmp_path / "stopped", "cpu", Prompts(), Progress(shown=False), limits)
    assert 0 < stored() < 10
    monkeypatch.setattr(ModelRunner, "step", step)
    resumed = worker.run(both, tmp_path / "stopped", "cpu", Prompts(), Progress(shown=False), limits)
    assert_same_rows(whole, resumed)


def test_likelihoods_are_stored_branch_by_branch(tmp_path, monkeypatch, at_once):
    """A batch of windows under two budgets: the smaller one leaves the shared prompt first."""
    words = ["task=book_perplexity/short", "limit=2", "policy=keydiff"]
    both = [
        Cell.parse(OmegaConf.to_container(composed(*words, f"budget={slots}"), resolve=True)) for slots in (64, 256)
    ]
    parts: list[int] = []
    finished = Progress.finished
    monkeypatch.setattr(Progress, "finished", lambda self, jobs: parts.append(len(jobs)) or finished(self, jobs))
    worker.run(both, tmp_path, "cpu", Prompts(), Progress(shown=False))
    assert parts == [2, 2]


def test_the_cost_of_a_batch_is_shared_by_all_its_samples_though_they_are_stored_one_after_another(
    tmp_path, monkeypatch, at_once
):
    clock = itertools.count()
    monkeypatch.setattr(worker.process, "usage_now", lambda device: Usage(n := float(next(clock)), 2 * n, None))
    both = cells("task.repeats=5", "task.max_new_tokens=12")
    done = worker.run(both, tmp_path, "cpu", Prompts(), Progress(shown=False), RunSettings(batch_rows=4))
    spent = [part.spent for cell in both for part in done.store.parts(cell.id)]
    assert len(spent) > 2  # more than one for each cell
    assert sum(part["wall_seconds"] for part in spent) == pytest.approx(next(clock) - 1)
    assert sum(part["device_seconds"] for part in spent) == pytest.approx(2 * (next(clock) - 2))
    assert {part["batch_rows"] for part in spent} == {10}


def test_a_batch_that_runs_out_of_memory_half_way_goes_on_with_what_has_not_ended(tmp_path, monkeypatch, at_once):
    both = cells("task.repeats=5", "task.max_new_tokens=12")
    whole = worker.run(both, tmp_path / "whole", "cpu", Prompts(), Progress(shown=False), RunSettings(batch_rows=4))
    asked: list[int] = []
    generate = Engine.generate

    class Short(BatchRun):
        def ended(self, index, outcome):
            super().ended(index, outcome)
            if len(asked) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(worker, "BatchRun", Short)
    monkeypatch.setattr(
        Engine, "generate", lambda self, rows, *rest: asked.append(len(rows)) or generate(self, rows, *rest)
    )
    progress = Progress(shown=False)
    halved = worker.run(both, tmp_path / "halved", "cpu", Prompts(), progress, RunSettings(batch_rows=4))
    assert asked[0] == 10
    assert sum(asked[1:]) == 9
    assert (progress.count.samples, progress.count.done) == (10, progress.count.planned)
    assert_same_rows(whole, halved)


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
