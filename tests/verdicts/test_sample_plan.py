"""The plan of samples: what a pilot expects comes true as often, and the time allowed is kept and used."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from composed import composed
from made_up_rows import rows_of
from scipy.stats import norm

from harness.cli.claim_samples import claim_sample_lines
from harness.config.experiments import planned_samples
from harness.config.jobs import grid_jobs
from harness.config.model import ModelSpec
from harness.errors import UserError
from harness.papers.claim_demands import claim_demands
from harness.papers.claim_ledger import claims
from harness.papers.claim_pilot import ClaimPilot, pilot_of, pooled, stored_pilot
from harness.papers.published import OF_OUR_MODELS, PAPERS
from harness.papers.sample_plan import MOST, SETTINGS, PlanSettings, SamplePlan, sample_plan, samples_of_claims
from harness.papers.sweep_cost import SweepCost, experiment_points
from scripts.plan_samples import check_unread
from tasks import build

ALPHA = 0.05 / 20
MINUTES = SETTINGS["mini"].minutes
TEN = dict.fromkeys(("blocked", "one_shot", "simulated", "token_fed"), 10)
LESS = 20.0  # minutes of a second plan; the fewest samples of every cell take 9 of them


@pytest.fixture(scope="module")
def plans() -> dict[float, SamplePlan]:
    return {minutes: sample_plan("mini", minutes) for minutes in (LESS, MINUTES)}


@pytest.mark.parametrize("samples", [20, 60, 240])
def test_the_chance_of_a_decision_is_how_often_it_is_made_where_nothing_else_is_known(samples):
    """True effects with a flat prior, a pilot of 20, a sweep of ``samples``; those pilots that lean by 2.

    40,000 sweeps: a share has a standard error of at most .0025.
    """
    rng = np.random.default_rng(0)
    pilot = ClaimPilot("KD-01", 20, lean=2.0, comparisons=4.0)
    truth = 2.0 / math.sqrt(20) + rng.normal(size=40_000) / math.sqrt(20)  # given the pilot, in standard deviations
    seen = truth * math.sqrt(samples) + rng.normal(size=40_000)
    decided = np.mean(seen > norm.isf(ALPHA / 2 / 4))
    assert pilot.chance(samples, ALPHA) == pytest.approx(decided, abs=0.0075)


def test_what_rows_do_not_test_no_samples_decide():
    assert ClaimPilot("HE-02", 0, 0.0, 1.0).chance(MOST, ALPHA) == 0


def test_a_claim_that_fails_somewhere_is_decided_by_the_cells_of_that_comparison_alone():
    """K-VEC above five baselines at one budget: only SnapKV beats it, so its samples are what the claim needs."""
    rng = np.random.default_rng(1)
    difficulty = rng.normal(0.5, 0.05, 40)
    levels = {"kvec": 0.1, "sink": 0, "pyramidkv/kvec": 0, "snapkv/kvec": 0.2, "ada_pyramidkv": 0, "ada_snapkv": 0}
    scores = {(name, "12%"): difficulty + level + rng.normal(0, 0.01, 40) for name, level in levels.items()}
    rows = rows_of(
        {**scores, ("dense", "full"): difficulty + 0.2}, "longbench_mini/code", "edit_sim", prompt="one_shot"
    )
    found = {each.claim: each for each in pilot_of(rows, "mini")}["KV-01"]
    assert (found.policies, found.budgets, found.tasks) == (("kvec", "snapkv/kvec"), ("12%",), ("longbench_mini/code",))
    assert found.samples == 40
    assert found.lean > 5


def test_a_pilot_of_two_sweeps_leans_as_one_sweep_with_all_their_samples_does():
    """Cells are the same whatever their seed and their code; samples that share an id are two."""
    rng = np.random.default_rng(2)
    scores = rng.normal(0.5, 0.1, 40)
    levels = {"kvec": 0.0, "sink": 0, "pyramidkv/kvec": 0, "snapkv/kvec": 0.1, "ada_pyramidkv": 0, "ada_snapkv": 0}
    noise = {name: rng.normal(0, 0.05, 40) for name in levels}

    def sweep(first: int, last: int, seed: int) -> pd.DataFrame:
        here = slice(first, last)
        of = {(name, "12%"): (scores + level + noise[name])[here] for name, level in levels.items()}
        rows = rows_of(
            {**of, ("dense", "full"): scores[here] + 0.2}, "longbench_mini/code", "edit_sim", prompt="one_shot"
        )
        described = [
            json.dumps({"code": {"engine": str(seed)}, "policy": policy, "task": {"seed": seed}})
            for policy in rows["policy"]
        ]
        return rows.assign(seed=seed, config=described, git="abc")

    apart = {each.claim: each for each in pilot_of(pooled([sweep(0, 15, seed=0), sweep(15, 40, seed=1)]), "mini")}
    whole = {each.claim: each for each in pilot_of(sweep(0, 40, seed=0), "mini")}
    assert apart["KV-01"] == whole["KV-01"]
    assert apart["KV-01"].samples == 40


def test_windows_that_several_sweeps_have_read_count_once_and_nothing_is_bought_beyond_those_that_none_has(plans):
    """Windows of novels are the same at every seed, which only begins with another quarter of them."""
    rows = rows_of({("keydiff", "22%"): np.linspace(3, 4, 9)}, "book_perplexity", "nll")
    sweeps = [rows.assign(seed=seed, config=json.dumps({"task": {"seed": seed}}), git="abc") for seed in (0, 1)]
    assert len(pooled(sweeps)) == 9
    assert len(pooled([each.assign(task="niah") for each in sweeps])) == 18
    reading = [count for group, count in plans[MINUTES].bought if "book_perplexity/short" in group.cells.tasks]
    assert reading
    assert max(reading) <= SETTINGS["mini"].unread


@pytest.mark.parametrize(("seed", "refused"), [(0, "samples of seed 0"), (4, "60 of the 60 windows"), (5, "")])
def test_a_plan_tests_nothing_that_its_pilot_has_read(seed, refused):
    """Seeds 0 and 4 begin with the same quarter of the novels' windows, seed 5 with the next."""
    task = build("book_perplexity", length=512, windows=240, seed=0)
    read = [sample.id for sample in task.samples(ModelSpec.parse({"path": "bundled/testbed"}).tokenizer())[:60]]
    config = json.dumps({"task": {"name": task.name, "length": task.length, "windows": task.windows, "seed": 0}})
    pilot = pd.DataFrame({"task": task.name, "seed": 0, "sample_id": read, "config": config})
    with pytest.raises(UserError, match=refused) if refused else nullcontext():
        check_unread(pilot, PlanSettings(minutes=1.0, seed=seed, unread=60, fewest={}))


def test_the_stored_pilot_has_every_claim_that_is_a_comparison():
    compared = {each.id for paper in PAPERS for each in claims(paper) if each.comparison is not None}
    assert compared == stored_pilot("mini").keys()
    # GSM8K's rows are the same at every seed: a pilot that has read them may not choose how many are tested.
    assert stored_pilot("small").keys() < compared
    assert {each[:2] for each in compared - stored_pilot("small").keys()} == {"HE"}


def test_the_plan_keeps_its_time_and_more_time_decides_more(plans):
    assert all(plan.seconds <= 60 * minutes * 2 for minutes, plan in plans.items())
    assert plans[LESS].expected < plans[MINUTES].expected
    assert all(
        min(SETTINGS["mini"].fewest.values()) < count <= MOST for plan in plans.values() for _, count in plan.bought
    )


@pytest.mark.parametrize("scale", OF_OUR_MODELS)
def test_the_stored_plan_is_that_of_the_stored_pilot(scale):
    assert sample_plan(scale).samples() == planned_samples()[scale]
    assert planned_samples()[scale].seed == SETTINGS[scale].seed


@pytest.mark.parametrize("scale", OF_OUR_MODELS)
def test_the_plan_of_a_sweep_shows_what_each_of_its_claims_gets(scale):
    typed = [f"scale={scale}", "+exp=keydiff/table_1"]
    jobs = grid_jobs(composed(*typed), typed, scale, lambda each: composed(*each))
    lines = claim_sample_lines([next(jobs)])
    assert f"conf/samples/{scale}.yaml" in lines[1]
    shown = {line[:5] for line in lines if line.startswith("KD-")}
    planned = samples_of_claims(claim_demands("keydiff", scale), planned_samples()[scale], scale)
    wanted = {each.demand.claim.id for each in planned if "keydiff/table_1" in each.demand.experiments}
    assert shown == wanted
    assert {"KD-01", "KD-02"} <= wanted
    fewest = planned_samples()[scale].fewest["blocked"]
    assert all(each.samples >= fewest for each in planned)


def test_a_sweep_costs_shared_cells_once_and_baselines_up_to_their_limit():
    points = {name: experiment_points()[name] for name in ("keydiff/table_1", "keydiff/table_8")}
    both, one = SweepCost(points), SweepCost({"keydiff/table_1": points["keydiff/table_1"]})
    assert both.seconds(both.samples_of_grids(TEN)) == one.seconds(one.samples_of_grids(TEN))
    at = one.samples_of_grids(dict.fromkeys(TEN, 20))
    limited = one.raised(one.cells(one.points), at, 40) - at
    baselines = [place for key, place in one.at.items() if key[-1] in ("random", "oracle")]
    assert baselines
    assert not limited[baselines].any()
    assert limited.max() == 20


def test_what_is_bought_for_a_claim_is_bought_for_the_cells_that_decide_it(plans):
    planned = plans[MINUTES].samples()
    for group, count in plans[MINUTES].bought:
        points = [(name, point) for name in group.experiments for point in experiment_points()[name]]
        inside = [planned.of(*own) for own in points if group.cells.holds_for(own[1])]
        assert inside
        assert min(inside) >= count
