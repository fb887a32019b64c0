"""conf/wandb/sweep.yaml: every combination that W&B can hand out is a command that we understand."""

from __future__ import annotations

import itertools

import pytest
import yaml
from composed import composed
from omegaconf import OmegaConf

from harness.config.cell import Cell
from harness.config.experiments import CONF

SWEEP = yaml.safe_load((CONF / "wandb" / "sweep.yaml").read_text())
NAMES = list(SWEEP["parameters"])
COMBINATIONS = list(itertools.product(*(SWEEP["parameters"][name]["values"] for name in NAMES)))


@pytest.mark.parametrize("values", COMBINATIONS)
def test_every_combination_is_a_cell(values):
    fixed = [word for word in SWEEP["command"] if "=" in word]
    given = [f"{name}={value}" for name, value in zip(NAMES, values, strict=True)]
    config = OmegaConf.to_container(composed(*fixed, *given), resolve=True)
    cell = Cell.parse(config)
    assert (cell.budget.label, cell.prompting.block_size) == (values[1], values[2])
    assert config["logger"]["mode"] == "online"


def test_the_command_starts_our_program_and_hands_on_what_is_swept():
    assert SWEEP["method"] == "grid"
    assert SWEEP["command"][:4] == ["${env}", "${interpreter}", "-m", "${program}"]
    assert SWEEP["program"] == "harness"
    assert SWEEP["command"][-1] == "${args_no_hyphens}"  # policy=sink, as Hydra writes it


def test_it_sweeps_policy_budget_and_block_size():
    assert set(NAMES) == {"policy", "budget", "block_size"}
