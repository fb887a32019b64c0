"""Costs in the heads of experiments are those of the stored parts."""

from __future__ import annotations

from harness.store.store import Store
from scripts.item_costs import Spent, sentence, spent, with_cost

LABELS = {"task": "niah", "prompt": "blocked", "block_size": 32, "budget": "25%"}
HEAD = (
    "# @package _global_\n# Hardware: two\n#           cores\n# Cost:     old; over\n#           two lines\n"
    "# Remark:   x\nname: y\n"
)


def stored(tmp_path, policy, samples, seconds):
    store = Store(tmp_path / "runs")
    store.describe(f"cell-{policy}", {"cell_id": f"cell-{policy}", "config": {}, "policy": policy, **LABELS})
    for number in range(samples):
        row = {"sample_id": f"s{number}", "metric": "nll", "value": 1.0}
        beside = {"device_seconds": seconds, "created": "2026-11-21T10:00:00+00:00"}
        store.append(f"cell-{policy}", [row], beside)


def key(policy):
    return ("niah", "blocked", 32, "25%", policy)


def test_the_cost_of_a_cell_is_added_over_its_parts(tmp_path):
    stored(tmp_path, "sink", 3, 20.0)
    assert spent(tmp_path) == {key("sink"): Spent(3, 60.0, "2026-11-21")}


def test_minutes_are_of_two_cores_and_fewer_samples_are_taken_in_proportion():
    measured = {key("sink"): Spent(10, 60.0, "2026-11-21"), key("dense"): Spent(5, 30.0, "2026-11-20")}
    alone = sentence("a/b", {key("sink"): 10}, measured)
    assert "0.5 minutes on two cores at scale=mini (measured 2026-11-21)" in alone
    both = sentence("a/b", {key("sink"): 10, key("dense"): 10}, measured)
    assert "1.0 minutes" in both
    assert "extrapolated from 5 of 10 samples" in both


def test_cells_that_were_not_measured_are_counted():
    measured = {key("sink"): Spent(10, 60.0, "2026-11-21")}
    partly = sentence("a/b", {key("sink"): 10, key("h2o"): 10}, measured)
    assert "1 of 2 cells" in partly
    assert "not measured" not in partly
    assert sentence("a/b", {key("h2o"): 10}, measured) == ""


def test_only_the_cost_of_a_head_changes():
    assert with_cost(HEAD, "# Cost:     new\n") == HEAD.replace("old; over\n#           two lines", "new")


def test_a_first_cost_stands_below_the_hardware():
    without = HEAD.replace("# Cost:     old; over\n#           two lines\n", "")
    assert with_cost(without, "# Cost:     new\n") == HEAD.replace("old; over\n#           two lines", "new")
