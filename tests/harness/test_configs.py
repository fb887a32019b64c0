"""Every file under conf/ composes, builds and says what it is."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from composed import composed, each_of, without
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

import tasks
from harness.config.budget import Budget
from harness.config.cell import Cell
from harness.config.experiments import CONF, CONFIG_GROUPS, option_names
from harness.config.jobs import group_nodes
from harness.config.model import ModelSpec
from harness.config.policy_config import policy_from

PRESETS = [name for name in option_names("policy") if name != "outside"]  # `outside` is a form to fill in


@pytest.mark.parametrize("name", PRESETS)
def test_every_policy_builds_under_its_name(name):
    config = OmegaConf.to_container(each_of("policy")[name], resolve=True)
    policy = policy_from(config["policy"], ModelSpec.parse(config["model"]))
    assert policy.name in (name, f"{name}/keydiff")


def test_the_smoke_experiment_runs_every_preset_once():
    swept = composed("+exp=policies_smoke", with_hydra=True).hydra.sweeper.params.policy.split(",")
    base = OmegaConf.to_container(composed(), resolve=True)

    def parts(name):
        config = OmegaConf.to_container(each_of("policy")[name], resolve=True)["policy"]
        return replace(policy_from(config, ModelSpec.parse(base["model"])), name="")

    # The others need a model of their own: more layers, more KV heads.
    assert {parts(name) for name in PRESETS} - {parts(name) for name in swept} == {
        parts(name) for name in ("gemfilter/llama31-8b", "kvec")
    }


def test_the_smoke_experiments_budget_is_enough_for_what_every_preset_protects():
    """A policy that protects more slots than the budget has is refused, and the sweep would leave it out."""
    smoke = composed("+exp=policies_smoke", with_hydra=True)
    budget = Budget.parse(smoke.budget).slots_for(smoke.task.lengths[0], 0, ())
    assert budget == 84
    for name in smoke.hydra.sweeper.params.policy.split(","):
        config = OmegaConf.to_container(each_of("policy")[name], resolve=True)
        policy_from(config["policy"], ModelSpec.parse(config["model"])).check_budget(budget)


@pytest.mark.parametrize("name", option_names("task"))
def test_every_task_builds_under_its_name(name):
    config = OmegaConf.to_container(each_of("task")[name], resolve=True)["task"]
    # A folder of presets is named after its task; the tasks of the mini suite are named after their files.
    assert tasks.build(**config).name in (name, name.partition("/")[0].removesuffix("_e"))


@pytest.mark.parametrize("name", option_names("model"))
def test_every_model_has_a_name_and_a_place(name):
    config = each_of("model")[name].model
    assert (config.name, bool(config.path)) == ((None, False) if name == "hf" else (name, True))


WITH_A_COST = {"longbench", "niah", "policies_smoke", "quickstart"}


@pytest.mark.parametrize("name", option_names("exp"))
def test_every_experiment_opens_with_what_it_replicates_and_every_job_of_it_is_a_cell(name):
    text = (CONF / "exp" / f"{name}.yaml").read_text()
    for heading in ("Paper", "Expected", "Hardware", *(["Cost"] if name in WITH_A_COST else [])):
        assert re.search(rf"^# {heading}: +\S", text, re.MULTILINE), heading
    assert "not measured" not in text
    for cost in re.findall(r"^# Cost: .*", text, re.MULTILINE):
        assert re.search(r"\d", cost), "a cost is a number that was measured"
    for config in jobs_of(name):
        Cell.parse(OmegaConf.to_container(config, resolve=True))


def jobs_of(name):
    """The jobs of an experiment with data=fixture: one, or the product of what its file sweeps over."""
    typed = [f"+exp={name}", "data=fixture"]
    swept = composed(*typed, with_hydra=True).hydra.sweeper.params or {}
    parser = OverridesParser.create()
    axes = [
        [f"{key}={value}" for value in parser.parse_override(f"{key}={values}").sweep_string_iterator()]
        for key, values in swept.items()
    ]
    groups, others = (
        [axis for axis in axes if (axis[0].partition("=")[0] in CONFIG_GROUPS) == own] for own in (True, False)
    )
    nodes = group_nodes([(choice,) for axis in groups for choice in axis], typed, lambda each: composed(*each))
    for values in itertools.product(*others):
        base = composed(*typed, *values, with_hydra=True)
        for chosen in itertools.product(*groups):
            own = {choice.partition("=")[0]: nodes[choice,] for choice in chosen}
            yield OmegaConf.merge(without(base, "hydra", *own), own)


def test_the_quick_start_covers_six_policies_two_budgets_and_dense():
    params = composed("+exp=quickstart", with_hydra=True).hydra.sweeper.params
    compared = params.policy.split(",")
    assert "dense" in compared
    assert len(compared) >= 7
    assert len(params.budget.split(",")) == 2
    assert set(params.task.split(",")) == {"niah", "book_perplexity"}


@pytest.mark.parametrize("group", ["policy", "task", "model", "exp", "exp_model", "scale"])
def test_every_file_opens_with_one_line_on_what_it_is(group):
    for name in option_names(group):
        comments = [line for line in (CONF / group / f"{name}.yaml").read_text().splitlines() if line.startswith("# ")]
        assert [line for line in comments if not line.startswith("# @")], name


@pytest.mark.parametrize("group", CONFIG_GROUPS)
def test_every_file_lands_at_its_group_on_the_command_line_too(group):
    """Files that are composed together are given their place; ``policy=h2o/keydiff`` goes by the file's own header."""
    for name in option_names(group):
        lines = (CONF / group / f"{name}.yaml").read_text().splitlines()
        assert [line for line in lines if line.startswith("# @package")] in ([], [f"# @package {group}"]), name
