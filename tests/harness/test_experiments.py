"""Experiments of the five papers: every item composes at every scale, and all of a paper is the union of its items."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import get_args

import pytest
from composed import composed, without
from omegaconf import OmegaConf

from harness.config import experiments
from harness.config.cell import Cell
from harness.config.experiments import CONF, option_names
from harness.config.jobs import grid_jobs, group_nodes, sweep_jobs
from harness.config.policy_config import preset
from harness.errors import UserError
from harness.papers.figures.figure_cells import task_label
from harness.papers.published import PAPERS, Scale, name_map, paper_items, proxy_task
from harness.runner.plan import unique_cells

ITEMS = [name for name in option_names("exp") if name.partition("/")[0] in PAPERS and not name.endswith("/all")]
DRAWINGS = {
    ("keydiff", "Figure 1"), ("keydiff", "Figure 3"), ("caote", "Figure 1"), ("caote", "Table 1"),
    ("hashevict", "Figure 1"), ("buzz", "Figure 1"), ("buzz", "Figure 2"), ("buzz", "Figure 3"), ("buzz", "Table 1"),
}  # fmt: skip


def configurations(scale, *overrides):
    typed = [f"scale={scale}", *overrides]
    base = composed(*typed)
    return list(grid_jobs(base, typed, scale, lambda each: composed(*each)))


@cache
def written(name):
    """The grids of an item's file, as they are written there."""
    return OmegaConf.to_container(OmegaConf.load(CONF / "exp" / f"{name}.yaml").grids)


def listed(name, scale):
    return written(name)[name][scale]


@cache
def cells(name):
    """At scale=mini, by id."""
    if name.endswith("/all") or listed(name, "mini"):
        parsed = [Cell.parse(config) for config in configurations("mini", f"+exp={name}")]
        return {cell.id: cell for cell in unique_cells(parsed)}
    return {}


def items_with_cells(paper, scale="mini"):
    return [name for name in ITEMS if name.startswith(f"{paper}/") and listed(name, scale)]


def test_every_table_and_figure_that_is_no_drawing_has_its_file():
    wanted = {(row.paper, row.item) for row in paper_items().itertuples()} - DRAWINGS
    assert {f"{paper}/{item.lower().replace(' ', '_')}" for paper, item in wanted} == set(ITEMS)


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_opens_with_paper_expectation_and_hardware(name):
    text = (CONF / "exp" / f"{name}.yaml").read_text()
    for heading in ("Paper", "Expected", "Hardware"):
        assert re.search(rf"^# {heading}: +\S", text, re.MULTILINE), heading
    for scale in get_args(Scale):
        assert listed(name, scale) or re.search("no cells", text)


@pytest.mark.parametrize("paper", PAPERS)
def test_all_at_mini_is_the_union_of_the_items_as_the_same_cells(paper):
    wanted: dict[str, int] = {}
    for name in items_with_cells(paper):
        for cell in cells(name).values():
            wanted[cell.id] = max(wanted.get(cell.id, 0), cell.limit)
    assert {id: cell.limit for id, cell in cells(f"{paper}/all").items()} == wanted


@pytest.mark.parametrize("paper", PAPERS)
def test_at_mini_every_item_has_the_samples_that_were_planned_for_it(paper):
    planned = experiments.planned_samples()["mini"]
    for name in items_with_cells(paper):
        counts = {*planned.fewest.values(), *(rule.samples for rule in planned.rules[name])}
        found = {cell.limit for cell in cells(name).values()}
        assert found <= counts
        assert not planned.rules[name] or max(found) > min(planned.fewest.values())


@pytest.mark.parametrize("scale", ["mini", "small"])
def test_every_rule_of_the_planned_samples_is_about_some_cell(scale):
    """A name that no grid has would be a rule that nobody notices."""
    planned = experiments.planned_samples()
    assert set(planned["mini"].rules) == set(planned["small"].rules)
    for name, rules in planned[scale].rules.items():
        points = experiments.grid_points(written(name), scale)
        for rule in rules:
            assert set(rule.tasks) <= {str(point["task"]) for point in points}, (name, rule)
            assert any(rule.holds_for(point) for point in points), (name, rule)


def test_planned_samples_are_not_those_of_the_pilot():
    """The pilot's samples chose the numbers, and must not be tested again: every task that has a seed gets another."""
    configured = configurations("mini", "+exp=keydiff/table_1")
    planned = experiments.planned_samples()["mini"].seed
    assert {config["seed"] for config in configured} == {planned}
    assert planned not in (0, 1, 2)  # of the sweeps that conf/pilot.csv pools
    assert {config["task"]["seed"] for config in configured} == {planned}
    typed = configurations("mini", "+exp=keydiff/table_1", "seed=7")
    assert {config["task"]["seed"] for config in typed} == {7}


@pytest.mark.parametrize("paper", PAPERS)
def test_at_full_scale_every_cell_has_all_samples_of_its_task(paper):
    grids = OmegaConf.to_container(composed(f"+exp={paper}/all").grids)
    assert not any("limit" in point for point in experiments.limited_points(grids, "full"))


def points_of(name, scale):
    return experiments.grid_points(written(name), scale) if listed(name, scale) else []


@pytest.mark.parametrize("name", ITEMS)
def test_at_small_every_item_is_that_of_mini_on_smollm2_in_the_papers_blocks(name):
    """The same methods and shares on the pretrained model, but for head profiles: those are the testbed's."""
    small, mini = points_of(name, "small"), points_of(name, "mini")
    ran, wanted = (
        {(point.get("policy.name", point["policy"]), point["budget"], point["prompt"]) for point in points}
        for points in (small, mini)
    )
    assert ran == {each for each in wanted if not each[0].startswith("headkv")}
    assert not any("mini" in point["task"] for point in small)
    assert {point["block_size"] for point in small if point["prompt"] == "blocked"} <= {32, 64, 128, 256}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_task_at_small_stands_for_one_of_the_papers_or_is_its_own(paper):
    """A task that nothing asks for would be run and shown nowhere."""
    names = name_map()["tasks"]
    asked = {label for own in (names["any"], names.get(paper, {})) for labels in own.values() for label in labels or ()}
    for name in items_with_cells(paper, "small"):
        run = {task_label(str(point["task"])) for point in points_of(name, "small")}
        assert run <= {proxy_task(label, run, "small", paper) for label in asked}, name


@pytest.mark.parametrize("name", [*ITEMS, *(name for name in option_names("exp") if name.startswith("ours/"))])
@pytest.mark.parametrize("scale", ["mini", "small"])
def test_every_setting_has_its_random_line(name, scale):
    """What a method scores says nothing where keeping tokens at random scores more."""
    if not name.endswith("/all") and listed(name, scale):
        for grid in listed(name, scale):
            assert "random" in grid.get("references", ["random"])


def test_a_point_of_several_items_has_the_greatest_number_of_samples():
    grid = {"task": "niah", "policy": "sink"}
    grids = {
        "a": {"mini": [{**grid, "limit": 3}]},
        "b": {"mini": [{**grid, "limit": 7}]},
        "c": {"mini": [{**grid, "limit": 5}]},
    }
    seed = experiments.planned_samples()["mini"].seed
    assert experiments.limited_points(grids, "mini") == [{"seed": seed, **grid, "limit": 7}]


def test_a_cell_has_the_greatest_number_of_the_rules_that_are_about_it():
    planned = experiments.PlannedSamples(
        scale="mini",
        seed=1,
        fewest={"blocked": 10, "one_shot": 10},
        rules={
            "mine/table_1": (
                experiments.SampleRule(20, tasks=("niah",)),
                experiments.SampleRule(40, tasks=("niah",), policies=("sink",), budgets=("25%",)),
            )
        },
    )
    point = {"task": "niah", "policy": "sink", "budget": "25%"}
    assert planned.of("mine/table_1", point) == 40
    assert planned.of("mine/table_1", {**point, "budget": "50%"}) == 20
    assert planned.of("mine/table_1", {**point, "policy.name": "sink/mine"}) == 20
    assert planned.of("mine/table_1", {**point, "task": "gsm8k"}) == 10


def test_an_item_without_a_number_of_samples_says_what_to_do():
    with pytest.raises(UserError, match=r"Experiment mine/table_1 has no number of samples at scale=mini: write limit"):
        experiments.limited_points({"mine/table_1": {"mini": [{"task": "niah", "policy": "sink"}]}}, "mini")


def test_cells_that_papers_share_are_the_same_cells():
    keydiff, caote = cells("keydiff/all"), cells("caote/all")
    shared = {cell.policy.name for id, cell in caote.items() if id in keydiff}
    assert shared >= {"h2o/keydiff", "tova/keydiff", "snapkv/keydiff", "sink"}
    assert cells("keydiff/table_1").keys() == cells("keydiff/table_8").keys()


@pytest.mark.parametrize("paper", PAPERS)
def test_at_full_scale_models_policies_tasks_and_budgets_are_files_and_numbers_that_exist(paper):
    """Built without data and models of the papers: fixtures, and the testbed's shape."""
    points = experiments.grid_points(OmegaConf.to_container(composed(f"+exp={paper}/all").grids), "full")
    options = {group: set(option_names(group)) for group in experiments.CONFIG_GROUPS}
    for point in points:
        for group in options:
            assert point[group] in options[group]
    base = composed("data=fixture", "policy=dense")
    chosen = [(f"task={task}",) for task in {point["task"] for point in points}]
    for node in group_nodes(chosen, [], lambda each: composed(*each)).values():
        Cell.parse(OmegaConf.to_container(OmegaConf.merge(without(base, "task"), {"task": node}), resolve=True))


def test_files_of_groups_that_are_composed_together_are_those_composed_alone():
    wanted = {
        ("policy=sink", "++policy.protect.sinks=2"): "policy",
        ("policy=caote_snapkv",): "policy",  # made of another file
        ("policy=qfilters",): "policy",  # names the model
        ("task=ruler/niah_multikey_1_1k", "++task.repeats=2"): "task",  # names the seed
        ("model=smollm2-135m", "++model.dtype=float32"): "model",
        ("++model.dtype=auto",): "model",
    }
    typed = ("seed=3", "policy.protect.recent=4", "++task.max_new_tokens=7")
    nodes = group_nodes(wanted, typed, lambda each: composed(*each))
    base = composed(*typed)
    for own, group in wanted.items():
        together = OmegaConf.merge(without(base, group), {group: nodes[own]})
        alone = composed(*own, *typed)
        assert OmegaConf.to_container(together, resolve=True) == OmegaConf.to_container(alone, resolve=True), own


def test_sets_do_not_hide_options():
    for group in experiments.CONFIG_GROUPS:
        assert not set(experiments.named_sets().get(group, {})) & set(option_names(group))


def test_what_is_typed_wins_over_the_grids_and_leaves_no_copies():
    made = configurations("mini", "+exp=keydiff/table_11", "policy=sink", "limit=3")
    assert {config["policy"]["name"] for config in made} == {"sink"}
    assert {config["policy"]["protect"]["sinks"] for config in made} == {preset("sink")["protect"]["sinks"]}
    assert {config["limit"] for config in made} == {3}
    assert len(made) == 3 * 4  # tasks and budgets


def test_settings_that_are_typed_hold_for_every_file_that_a_grid_chooses():
    typed = ("policy.protect.sinks=7", "++task.repeats=5", "~model.dtype")
    made = configurations("mini", "+exp=keydiff/table_11", *typed)
    assert len({config["policy"]["name"] for config in made}) > 1
    assert {config["policy"]["protect"]["sinks"] for config in made} == {7}
    assert {config["task"]["repeats"] for config in made} == {5}
    assert not any("dtype" in config["model"] for config in made)


@pytest.mark.parametrize(
    ("axes", "compositions"),
    [
        (
            {"policy": ["sink", "caote_snapkv", "qfilters"], "budget": ["25%", "256"], "task": ["niah", "key_value"]},
            2,  # of what the jobs share, and of all files that they choose
        ),
        ({"references": ["[]", "[dense,oracle]"], "name": ['"a b"', "null"], "seed": ["1", "2"]}, 1),
        ({"policy": ["sink", "h2o"], "task.repeats": ["1", "2"]}, 4),  # a setting within a group: each alone
        ({"policy": ["sink", "h2o"], "policy.protect.sinks": ["3"]}, 2),  # which the file that is chosen must have
        ({"launcher": ["none", "local"]}, 2),  # another group
        ({"budget": ["256", "512"], "++budget": ["1k"]}, 2),  # of two values the last one counts
    ],
)
def test_the_jobs_of_a_sweep_are_those_composed_alone(axes, compositions):
    jobs = [
        ["limit=3", "model=smollm2-135m", *(f"{key}={value}" for key, value in zip(axes, values, strict=True))]
        for values in itertools.product(*axes.values())
    ]
    asked = []

    def compose(typed):
        asked.append(typed)
        return composed(*typed)

    made = list(sweep_jobs(jobs, compose))
    assert made == [OmegaConf.to_container(composed(*job), resolve=True) for job in jobs]
    assert len(asked) == compositions


def test_settings_of_a_variant_reach_the_policy_and_the_name_is_its_own():
    made = configurations("mini", "+exp=hashevict/table_10")
    assert {c["policy"]["name"]: c["policy"]["scorer"]["bits"] for c in made}["hashevict/4bit"] == 4


def test_an_item_without_cells_says_so():
    with pytest.raises(UserError, match="no cells"):
        configurations("mini", "+exp=keydiff/table_4")
