"""The papers' own settings parse into cells: policies, tasks, budgets and regimes fit each other and the models.

Neither weights nor data of the papers are needed: tasks stand on their fixtures, and models are their published shapes.
"""

from __future__ import annotations

import pytest
from composed import composed
from omegaconf import OmegaConf, open_dict

from harness.config import experiments
from harness.config.cell import Cell, reason_against_budget
from harness.config.jobs import grid_jobs
from harness.config.model import ModelSpec
from harness.config.policy_config import preset
from harness.engine.requests import reason_against_model
from harness.errors import CellError
from harness.papers.published import PAPERS
from harness.runner.estimate import published_lengths, text_config
from policies.view import ModelShape

TESTBED = {"name": "testbed", "path": "bundled/testbed", "dtype": "float32"}  # a tokenizer, for policies that ask


def shape_of(model):
    config = text_config(ModelSpec.parse(model))
    return ModelShape(config.num_hidden_layers, config.num_key_value_heads, config.num_attention_heads)


def parsed(config):
    """The cell, on the testbed instead of the paper's model."""
    return Cell.parse({**config, "model": TESTBED})


def one_of_each(points):
    """Every setting once for each benchmark, and every task once: their product would only repeat them."""
    chosen = {}
    for point in points:
        beside = {key: value for key, value in point.items() if key != "task"}
        chosen.setdefault((repr(beside), point["task"].partition("/")[0]), point)
        chosen.setdefault(point["task"], point)
    return list({repr(point): point for point in chosen.values()}.values())


def configurations(paper):
    typed = [f"+exp={paper}/all", "scale=full", "data=fixture"]
    base = composed(*typed).copy()
    points = one_of_each(experiments.grid_points(OmegaConf.to_container(base.grids), "full"))
    with open_dict(base):
        base.grids = {f"{paper}/all": {"full": points}}
    return list(grid_jobs(base, typed, "full", lambda each: composed(*each)))


@pytest.mark.parametrize("paper", PAPERS)
def test_every_setting_of_a_paper_is_a_cell_that_its_model_and_its_prompts_admit(paper):
    found = configurations(paper)
    assert found
    for config in found:
        cell = parsed(config)
        assert reason_against_model(cell.policy, shape_of(config["model"])) == "", config["policy"]["name"]
        _, tokens = published_lengths(cell.task.label)
        slots = cell.budget.slots_for(tokens, getattr(cell.task, "max_new_tokens", None) or 0, [tokens])
        assert reason_against_budget(cell.policy, slots) == "", (config["policy"]["name"], cell.budget.label)


def test_a_setting_that_does_not_go_together_would_be_found():
    """The check above is not empty: perplexity of a prompt that is read at once, and BUZZ below its own structure."""
    config = OmegaConf.to_container(composed("task=wikitext", "data=fixture", "policy=sink"), resolve=True)
    with pytest.raises(CellError, match="its perplexity would be dense"):
        parsed({**config, "prompt": "one_shot"})
    with pytest.raises(CellError):
        parsed({**config, "policy": preset("buzz"), "prompt": "token_fed", "budget": 2})


def test_headkv_without_a_profile_of_the_model_says_how_to_make_one():
    config = OmegaConf.to_container(composed("task=longbench/qasper", "data=fixture", "policy=headkv_r"), resolve=True)
    cell = parsed({**config, "prompt": "one_shot"})
    reason = reason_against_model(cell.policy, shape_of({"name": "llama3-8b", "path": "absent/llama3-8b"}))
    assert "python -m harness profile" in reason
    assert "\n" not in reason
