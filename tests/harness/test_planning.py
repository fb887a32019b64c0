"""What a plan says of a sweep on the testbed is what the sweep then does; what is not here is said to be assumed."""

from __future__ import annotations

import pytest
from composed import composed

from harness.cli.plan import planned, show
from harness.cli.run import sweep
from harness.config.model import ModelSpec
from harness.config.model_files import BUNDLED
from harness.engine.requests import Prompting, Request
from harness.errors import UserError
from harness.runner.estimate import Pace, WorkEstimate, estimate_work, parameters, published_lengths
from harness.store.loading import load_rows
from policies import build

SMALL = ("task=niah", "task.lengths=[256]", "task.depths=[50]", "task.repeats=2", "block_size=32", "limit=2")


def configs(*sets):
    return [composed(*each) for each in sets]


def test_samples_and_prompt_tokens_of_a_plan_are_those_of_the_run(tmp_path):
    jobs = configs(*([*SMALL, f"policy={policy}", f"results_dir={tmp_path}"] for policy in ("sink", "keydiff")))
    (part,) = planned(jobs)
    assert (part.cells, part.samples, part.present) == (5, 10, 0)
    sweep(jobs)
    rows = load_rows(tmp_path)
    assert (len(rows), rows["prompt_tokens"].sum()) == (part.samples, part.work.prompt)
    (after,) = planned(jobs)
    assert (after.samples, after.present, after.work.shared) == (0, 10, 0)


def test_shared_work_reads_a_prompt_once_up_to_the_first_eviction():
    sink, dense = build({"name": "sink", "scorer": "recency"}), build({"name": "dense"})
    rows = [Request(list(range(100)), dense), Request(list(range(100)), sink, 40)]
    found = estimate_work((row, Prompting("blocked", 20)) for row in rows)
    # The row of 40 slots is dense until its third block of 20, that block included.
    assert (found.rows, found.prompt, found.alone, found.shared) == (2, 200, 200, 140)
    assert found.passes == 5 + 2  # five dense ones, and those of the fourth and fifth block without the others


def test_questions_about_one_context_read_and_compress_it_once():
    sink = build({"name": "sink", "scorer": "recency"})
    rows = [Request(list(range(100)), sink, 40, 5, question=list(range(number))) for number in (3, 8)]
    found = estimate_work((row, Prompting("blocked", 20, "context")) for row in rows)
    assert (found.rows, found.prompt, found.alone) == (2, 211, 221)
    assert found.shared == 100 + (3 + 5) + (8 + 5)


def test_time_is_that_of_passes_and_tokens_at_the_pace_that_was_measured():
    pace = Pace(begin=10.0, per_pass=0.01, per_token=1e-4, gflops=50.0, conditions="made up")
    done = WorkEstimate(passes=100, shared=1000)
    assert pace.seconds(done, 50e9) == pytest.approx(10 + 1 + 0.1)
    assert pace.seconds(done, 25e9) == pytest.approx(10 + 2 * 1.1)  # half as fast


def test_a_plan_tells_a_time_where_the_model_was_measured_and_a_lower_bound_elsewhere(tmp_path, capsys):
    show(configs([*SMALL, "policy=sink", f"results_dir={tmp_path}"]))
    assert "minutes with all cores" in capsys.readouterr().out
    show(configs(["model=llama3.1-8b", "task=longbench/qasper", "policy=sink", "budget=2k", f"results_dir={tmp_path}"]))
    assert "minutes at least" in capsys.readouterr().out


def test_a_small_model_that_no_sweep_was_measured_of_is_timed_now(tmp_path, capsys):
    """The testbed under another name is such a model."""
    as_folder = ["model=hf", f"model.path={BUNDLED / 'testbed'}", "model.name=other", "model.dtype=float32"]
    show(configs([*SMALL, *as_folder, "policy=sink", f"results_dir={tmp_path}"]))
    said = capsys.readouterr().out
    assert "minutes with all cores: just now a pass of 128 tokens took" in " ".join(said.split())
    assert "minutes at least" not in said


def test_all_parameters_are_counted_the_tables_too():
    spec = ModelSpec.parse({"name": "testbed", "path": "bundled/testbed"})
    numel = sum(weight.numel() for weight in spec.load("cpu").parameters())
    assert parameters(spec.config()) == pytest.approx(numel, rel=0.01)


def test_a_model_and_data_that_are_not_here_are_assumed_and_said_to_be(tmp_path):
    (job,) = configs(["model=llama3.1-8b", "task=longbench/qasper", "budget=2k", f"results_dir={tmp_path}"])
    (part,) = planned([job])
    samples, tokens = published_lengths("longbench/qasper")
    assert part.samples == 3 * samples  # keydiff, dense, random
    assert part.work.prompt == 3 * samples * tokens
    assert all("as published" in words for words in part.assumed)


def test_what_cannot_fit_is_refused_with_what_to_change(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.cli.plan._room", lambda device: 1000)
    with pytest.raises(UserError, match="choose a smaller model"):
        show(configs([*SMALL, f"results_dir={tmp_path}"]))


def test_a_task_of_unknown_length_is_one_sentence():
    with pytest.raises(UserError, match="fetch it"):
        published_lengths("nowhere")
