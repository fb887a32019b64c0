"""What a plan says of a sweep on the testbed is what the sweep then does; what is not here is said to be assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from composed import composed

from harness.cli.plan import planned, show
from harness.cli.run import sweep
from harness.config.compose import resolved
from harness.config.model import ModelSpec
from harness.config.model_files import BUNDLED
from harness.engine.batch.evict import slots_enabled
from harness.engine.decode.look_ahead import look_ahead
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import Prompting, RepeatPrompt, Request
from harness.errors import UserError
from harness.runner.estimate import Pace, WorkEstimate, estimate_work, parameters, published_lengths, work_ahead
from harness.store.loading import load_rows
from policies import build

ORACLE = build({"name": "oracle", "scorer": "oracle", "hindsight": True})
ONCE = {"prompt": "after_prompt", "decode": "never"}
REPEATING = build({"name": "kvzip", "scorer": {"name": "kvzip", "chunk": 40}, "schedule": ONCE})
ASKED = RepeatPrompt(first=(5, 6, 7), later=(8, 9), answer=(10,))
SMALL = ("task=niah", "task.lengths=[256]", "task.depths=[50]", "task.repeats=2", "block_size=32", "limit=2")


def configs(*sets):
    return [resolved(composed(*each)) for each in sets]


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


@pytest.mark.parametrize("prompting", [Prompting("one_shot"), Prompting("blocked", 20)])
@pytest.mark.parametrize("name", ["oracle", "kvzip"])
def test_what_is_fed_ahead_of_a_policy_is_counted_once_for_all_its_budgets(name, prompting):
    """Of the oracle's dense run and KVzip's repetition, against what the model is fed."""
    policy = ORACLE if name == "oracle" else REPEATING
    rows = [Request(list(range(100)), policy, budget, 5, repeat=ASKED) for budget in (20, 40)]
    model, fed = ModelSpec("testbed", "bundled/testbed").load("cpu"), []
    model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: fed.append(inputs[0].numel()))
    with slots_enabled(model):
        look_ahead(ModelRunner(model), rows, prompting)

    ahead = work_ahead(rows, prompting)
    # A plan counts the last token that is generated, which is not fed.
    last = 1 if name == "oracle" else 0
    assert (ahead.shared, ahead.passes) == (sum(fed) + last, len(fed) + last)
    sinks = [replace(row, policy=build({"name": "sink", "scorer": "recency"})) for row in rows]
    assert work_ahead(sinks, prompting) == WorkEstimate()
    alone = [estimate_work((row, prompting) for row in each).alone for each in (rows, sinks)]
    assert alone[0] - alone[1] == 2 * ahead.shared


def test_a_sweeps_work_holds_what_is_fed_ahead():
    """Those of five samples are one batch: five blocks and five new tokens."""
    whole = Prompting("blocked", 20)
    rows = [Request(list(range(start, start + 100)), ORACLE, 40, 5) for start in range(5)]
    found, plain = (
        estimate_work((replace(row, policy=replace(ORACLE, hindsight=ahead)), whole) for row in rows)
        for ahead in (True, False)
    )
    assert (found.shared - plain.shared, found.passes - plain.passes) == (5 * 105, 5 + 5)


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


@pytest.mark.parametrize(
    ("model", "name"), [("llama3.1-8b", "duo_attention"), ("testbed", "headkv_r"), ("smollm2-135m", "qfilters")]
)
def test_a_policy_with_a_file_of_its_model_is_planned_where_model_or_data_are_not_here(model, name, tmp_path):
    """Whether the file fits is asked when it is run. The weights of SmolLM2 are the testbed's, under its name."""
    chosen = ["model=hf", f"model.path={BUNDLED / 'testbed'}", f"model.name={model}", "model.dtype=float32"]
    chosen = chosen if model == "smollm2-135m" else [f"model={model}"]
    data = f"data={tmp_path}"
    (job,) = configs([*chosen, f"policy={name}", "prompt=one_shot", "task=longbench/qasper", "budget=2k", data])
    (part,) = planned([job])
    assert (part.cells, part.model.name) == (3, model)


def test_what_cannot_fit_is_refused_with_what_to_change(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.cli.plan._room", lambda device: 1000)
    with pytest.raises(UserError, match="choose a smaller model"):
        show(configs([*SMALL, f"results_dir={tmp_path}"]))


def test_a_task_of_unknown_length_is_one_sentence():
    with pytest.raises(UserError, match="fetch it"):
        published_lengths("nowhere")
