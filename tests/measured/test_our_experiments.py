"""conf/exp/ours: each comparison has its file, its cells are what the comparison needs, and all is their union."""

from __future__ import annotations

import re

import pytest
from composed import composed
from omegaconf import OmegaConf

from harness.config import experiments
from harness.config.cell import Cell
from harness.config.experiments import CONF, option_names
from harness.config.jobs import grid_jobs
from harness.engine.requests import REGIMES
from harness.papers.comparison_tables import reading_pairs
from harness.papers.published import PAPERS
from harness.papers.published import name_map as papers_names
from harness.papers.report_items import extra_items

ITEMS = [name for name in option_names("exp") if name.startswith("ours/") and not name.endswith("/all")]
ONLY_AT_FULL = {"kvec": "kvec/testbed", "gemfilter/llama31-8b": "gemfilter"}
NEEDS_A_PROFILE = {"headkv_r", "headkv_r2"}  # made for one model: at scale=full they are the user's to make


def points(name, scale="mini"):
    """Every job of an experiment, as it is typed."""
    return list(experiments.grid_points(OmegaConf.to_container(composed(f"+exp={name}").grids), scale))


def of(name):
    return {(job["policy"], job["prompt"], job.get("block_size"), job["budget"]) for job in points(name)}


def test_every_comparison_has_its_file():
    assert len(ITEMS) == len(extra_items("ours"))


@pytest.mark.parametrize("name", [*ITEMS, "ours/all"])
def test_every_file_opens_with_paper_expectation_and_hardware_and_its_cost_is_a_number(name):
    text = (CONF / "exp" / f"{name}.yaml").read_text()
    for heading in ("Paper", "Expected", "Hardware"):
        assert re.search(rf"^# {heading}: +\S", text, re.MULTILINE), heading
    assert all(re.search(r"\d", cost) for cost in re.findall(r"^# Cost: .*", text, re.MULTILINE))


@pytest.mark.parametrize("scale", ["mini", "full"])
def test_all_is_the_union_of_the_items(scale):
    def as_set(jobs):
        return {repr(sorted(job.items())) for job in jobs}

    assert as_set(points("ours/all", scale)) == set().union(*(as_set(points(name, scale)) for name in ITEMS))


def test_simulated_blocks_are_cells_of_their_own():
    typed = ["scale=mini", "+exp=ours/oracle_gap", "policy=keydiff"]
    made = grid_jobs(composed(*typed), typed, "mini", lambda each: composed(*each))
    cells = list(map(Cell.parse, made))
    assert len({cell.id for cell in cells}) == 2 * 3
    assert {(cell.labels()["prompt"], cell.labels()["block_size"]) for cell in cells} == {
        (regime, block) for regime in ("blocked", "simulated") for block in (16, 32, 128)
    }


def test_every_simulated_cell_has_its_true_twin():
    found = of("ours/oracle_gap")
    simulated = {(policy, block, budget) for policy, regime, block, budget in found if regime == "simulated"}
    assert simulated == {(policy, block, budget) for policy, regime, block, budget in found if regime == "blocked"}
    assert len({block for _, block, _ in simulated}) == 3


def test_every_policy_of_the_regimes_is_run_in_all_three():
    found = of("ours/regimes")
    for policy in {each[0] for each in found}:
        assert {regime for name, regime, _, _ in found if name == policy} == set(REGIMES)


def test_every_pair_of_readings_is_run():
    run = {each[0] for each in of("ours/readings")}
    for pair in reading_pairs():
        assert {pair["first"], pair["second"]} <= run


def test_the_leaderboard_has_every_method_of_every_paper_on_both_sides_of_the_compared_size():
    methods = papers_names()["methods"]
    wanted = {each[0] for paper in PAPERS for each in methods[paper].values() if each} & set(option_names("policy"))
    variants = {"dense"} | {"keydiff/dot", "keydiff/euclid", "buzz/swapped", "buzz/no_max"}  # ablations
    found: dict[str, set] = {}
    for policy, _, _, budget in of("ours/leaderboard"):
        found.setdefault(policy, set()).add(budget)
    assert {ONLY_AT_FULL.get(name, name) for name in wanted - variants} <= set(found)
    assert all(len(budgets) == 2 for name, budgets in found.items() if name != "fastgen")


@pytest.mark.parametrize("name", ITEMS)
def test_at_full_scale_files_exist_and_the_same_policies_are_asked(name):
    full, mini = points(name, "full"), points(name)
    options = {group: set(option_names(group)) for group in experiments.CONFIG_GROUPS}
    for point in full:
        for group, known in options.items():
            assert point[group] in known
    policies = {ONLY_AT_FULL.get(point["policy"], point["policy"]) for point in full}
    assert policies == {point["policy"] for point in mini} - NEEDS_A_PROFILE
