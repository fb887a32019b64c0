"""Cell identity: exactly the fields that change outputs, and nothing else."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness import fingerprint
from harness.cells import Cell
from harness.listing import CONF


def cell(*overrides: str) -> Cell:
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return Cell.parse(OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True))


@pytest.mark.parametrize(
    "override",
    [
        "policy=h2o", "budget=128", "budget_of=longest", "prompt=one_shot", "block_size=64", "task=book_perplexity",
        "task.needles=3", "seed=1", "model.dtype=bfloat16", "policy.protect.sinks=2", "policy.schedule.decode=never",
    ],
)  # fmt: skip
def test_what_changes_outputs_changes_the_cell(override):
    assert cell(override).id != cell().id


@pytest.mark.parametrize("override", ["device=cpu", "limit=3", "results_dir=/elsewhere", "name=other", "references=[]"])
def test_what_does_not_change_outputs_does_not(override):
    assert cell(override).id == cell().id


def test_short_names_are_the_same_cell():
    assert cell("policy=h2o").id == cell("policy=h2o/keydiff").id


@pytest.mark.parametrize("ignored", ["budget=64", "budget_of=longest"])
def test_a_dense_cell_has_no_budget(ignored):
    assert cell("policy=dense", ignored).id == cell("policy=dense").id


def test_the_block_size_belongs_to_the_blocked_regime_only():
    assert cell("prompt=one_shot", "block_size=7").id == cell("prompt=one_shot").id


def test_ways_to_write_a_budget_are_the_same_cell():
    assert cell("budget=1k").id == cell("budget=1024").id
    assert cell("budget=0.25").id == cell("budget=25%").id


def test_changed_code_changes_the_cell(monkeypatch):
    before = cell().id
    monkeypatch.setattr(fingerprint, "of_package", lambda package: "other")
    assert cell().id != before


def test_the_identity_is_plain_data_and_stable():
    assert cell().identity == cell().identity
    assert set(cell().identity) == {"format", "model", "policy", "budget", "prompt", "task", "code"}
