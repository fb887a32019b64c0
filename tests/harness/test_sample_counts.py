"""Every cell of a sweep runs its own number of samples, and its budget does not depend on that number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from composed import composed

from harness.cli.plan import planned
from harness.cli.run import sweep
from harness.config.cell import Cell
from harness.config.compose import resolved
from harness.errors import UserError
from harness.runner import plan as plan_module
from harness.runner.plan import plan, unique_cells
from harness.runner.samples import Prompts
from harness.store.loading import load_rows
from harness.store.store import Store

SMALL = ("task=niah", "task.lengths=[192,256]", "task.depths=[50]", "task.repeats=4", "block_size=32", "budget=48")


def configs(*sets):
    return [resolved(composed(*SMALL, *each)) for each in sets]


def cell(*words):
    (config,) = configs(words)
    return Cell.parse(config)


def counts(results_dir):
    rows = load_rows(results_dir)
    return rows.groupby(["policy", "budget"])["sample_id"].nunique().to_dict()


def test_each_cell_runs_the_most_samples_that_are_asked_of_it_and_dense_as_many_as_any(tmp_path):
    there = f"results_dir={tmp_path}"
    jobs = configs(
        ["policy=sink", "limit=2", "baseline_limit=1", there],
        ["policy=keydiff", "limit=5", "baseline_limit=3", there],
        ["policy=sink", "limit=4", "baseline_limit=1", there],
        ["policy=sink", "budget=64", "limit=6", "references=[dense]", there],
    )
    (part,) = planned(jobs)
    sweep(jobs)
    expected = {
        ("sink", "48"): 4, ("keydiff", "48"): 5, ("sink", "64"): 6, ("dense", "full"): 6,
        ("random", "48"): 3, ("oracle", "48"): 3,
    }  # fmt: skip
    assert counts(tmp_path) == expected
    assert part.samples == sum(expected.values())


def test_more_samples_of_a_cell_are_added_to_those_that_are_there(tmp_path):
    for limit in (2, 3):
        sweep(configs(["policy=sink", f"limit={limit}", "references=[]", f"results_dir={tmp_path}"]))
    rows = load_rows(tmp_path)
    assert (rows["cell_id"].nunique(), rows["sample_id"].nunique(), len(rows)) == (1, 3, 3)


def test_one_cell_with_several_numbers_of_samples_is_one_cell_with_the_greatest():
    few, all_of_them = cell("policy=sink", "limit=2"), cell("policy=sink")
    assert few == all_of_them
    assert few.id == all_of_them.id
    assert [each.limit for each in unique_cells([few, replace(few, limit=7), few])] == [7]
    assert [each.limit for each in unique_cells([few, all_of_them, few])] == [None]


@pytest.mark.parametrize("share_of", ["longest", "median"])
def test_a_share_of_a_length_of_the_task_is_the_same_whatever_is_run(share_of):
    asked = cell("policy=sink", "budget=50%", f"budget_of={share_of}")
    slots = {sample.id: slots for sample, _, slots in Prompts().samples_of(asked)}
    assert len(slots) == 8
    for limit in (1, 3):
        few = Prompts().samples_of(replace(asked, limit=limit))
        assert {sample.id: granted for sample, _, granted in few} == dict(list(slots.items())[:limit])


def test_the_prompts_of_a_smaller_number_are_the_first_of_a_greater_one():
    prompts, asked = Prompts(), cell("policy=sink")
    first = prompts.samples_of(replace(asked, limit=2))
    more = prompts.samples_of(replace(asked, limit=6))
    assert [sample.id for sample, _, _ in more[:2]] == [sample.id for sample, _, _ in first]
    assert [sample.id for sample, _, _ in prompts.samples_of(replace(asked, limit=2))] == [
        one.id for one, _, _ in first
    ]


@pytest.mark.parametrize("setting", ["limit", "baseline_limit"])
@pytest.mark.parametrize("value", ["0", "-2", "many", "true"])
def test_what_is_no_number_of_samples_is_refused(setting, value, tmp_path):
    with pytest.raises(UserError, match=rf"{setting}=\S+ does not fit: give a whole number, at least 1, or null"):
        sweep(configs(["policy=sink", f"{setting}={value}", f"results_dir={tmp_path}"]))


def test_the_order_of_jobs_does_not_change_with_the_code(tmp_path, monkeypatch):
    """What lies in a batch with a row moves its last bits, so a new version must make the same batches."""
    asked = [cell(f"policy={policy}") for policy in ("sink", "keydiff", "h2o", "tova", "dense")]

    def order():
        jobs = plan(asked[0].model, asked, Store(tmp_path / "runs"), Prompts()).jobs
        return [(job.sample.id, job.cell.policy.name) for job in jobs]

    before = order()
    other = {each.policy.name: f"{number:016x}" for number, each in enumerate(reversed(asked))}
    monkeypatch.setattr(Cell, "id", property(lambda self: other[self.policy.name]))
    assert order() == before
    monkeypatch.setattr(plan_module, "_settings", lambda cell: "")
    assert order() != before  # without it the ids decide
