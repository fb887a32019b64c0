"""Costs as they are measured: counts against formulas, cases against what the papers' tables need."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
import yaml

from harness.config import provenance
from harness.config.policy_config import preset
from harness.engine.model_runner import ModelRunner
from harness.papers import flop_formulas
from harness.papers.efficiency_rows import CASE, COLUMNS, save_rows
from harness.papers.published import PAPERS
from harness.papers.report_items import extra_items, measured_tables_of
from scripts.bench.shapes import build
from scripts.efficiency import cases
from scripts.efficiency.cases import SCALES, Scale, timed_cases
from scripts.efficiency.counting import DIVISION, ROOT, SOFTMAX, operations_of
from scripts.efficiency.measure import compared_cases, counted_lines, timed_lines
from scripts.efficiency.timing import policy_of, timed

TINY = Scale(
    tokens=64, budget=40, block=16, new=2, summary=128, grid_in=(70, 80), grid_out=(1, 2), grid_budget=48,
    lengths=(64, 96), caches=(48,),
)  # fmt: skip
FEW = ("dense", "keydiff", "caote_h2o", "buzz", "hashevict/paper", "fastgen", "kvec/testbed", "gemfilter")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Passes of a few tokens: a second thread would cost more than it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def runner():
    return ModelRunner(build("testbed", torch.float32, "cpu"))


@pytest.fixture(scope="module")
def lines(runner):
    few = [case for case in timed_cases(TINY, "kvec/testbed") if case.policy in FEW]
    return [*timed_lines(runner, few, 1), *counted_lines(runner, TINY, 1)]


@pytest.mark.parametrize(
    ("work", "operations"),
    [
        (lambda: torch.ones(3, 5) @ torch.ones(5, 7), 2 * 3 * 5 * 7),
        (lambda: torch.ones(2, 3, 5) @ torch.ones(2, 5, 7), 2 * 2 * 3 * 5 * 7),
        (lambda: torch.ones(10) + torch.ones(10), 10),
        (lambda: torch.ones(10) / torch.ones(10), 10 * DIVISION),
        (lambda: torch.ones(10).sqrt(), 10 * ROOT),
        (lambda: torch.ones(4, 10).sum(-1), 40),
        (lambda: torch.ones(4, 10).softmax(-1), 40 * SOFTMAX),
        (lambda: torch.ones(10).sort(), 0),
        (lambda: torch.arange(10) + 1, 0),
        (lambda: torch.ones(4, 10)[:, :5].clone(), 0),
        (lambda: F.scaled_dot_product_attention(*torch.ones(3, 1, 2, 4, 8)), 2 * 16 * (4 * 8 + SOFTMAX)),
        (
            lambda: F.scaled_dot_product_attention(*torch.ones(3, 1, 2, 4, 8), is_causal=True),
            2 * 10 * (4 * 8 + SOFTMAX),
        ),
    ],
)
def test_operations_are_counted_as_the_papers_weigh_them(work, operations):
    assert operations_of(work) == operations


def test_keydiffs_scoring_counts_what_its_formula_says(lines):
    """Scores alone: the selection, which the formula leaves out, does not count; what it divides by is kept."""
    counted = [each for each in lines if each["quantity"] == "block_operations" and each["budget_slots"] == 40]
    own = {each["policy"]: each["value"] for each in counted if each["block_size"] == 16}
    shape = flop_formulas.TESTBED
    expected = shape.layers * shape.kv_heads * flop_formulas.keydiff_score_flop(40 + 16, shape.head)
    assert own["keydiff"] - own["window"] == pytest.approx(expected, rel=0.1)
    assert own["sink"] == own["window"]
    assert own["h2o/keydiff"] - own["window"] > own["tova/keydiff"] - own["window"] > 0


def test_the_formulas_shape_is_the_testbeds(runner):
    config, shape = runner.config, flop_formulas.TESTBED
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim) == (shape.layers, shape.hidden, shape.head)
    assert config.num_key_value_heads == shape.kv_heads
    assert (config.intermediate_size, config.vocab_size) == (shape.inner, shape.vocabulary)


def test_every_table_of_costs_can_be_made_of_one_run(lines, tmp_path):
    conditions = {
        "model": "testbed",
        "scale": "mini",
        "dtype": "float32",
        "threads": 1,
        **provenance.cell_provenance("cpu"),
    }
    save_rows(pd.DataFrame(lines).assign(**conditions), tmp_path)
    items = [(paper, item) for paper in PAPERS for item in extra_items(paper)]
    items += [("keydiff", "Table 4"), ("caote", "Table 6"), ("caote", "Table 7"), ("hashevict", "Table 1"),
              ("kvec", "Table 8"), ("kvec", "Table 9")]  # fmt: skip
    for paper, item in items:
        (table,) = measured_tables_of(paper, item, pd.DataFrame(), tmp_path)
        assert len(table.lines) >= 2
        assert any("dense" in line for line in table.lines) or item == "Table 4"


def test_rows_are_those_of_the_schema_and_budgets_are_held(lines):
    assert {*lines[0]} | {"model", "scale", "dtype", "threads", *provenance.cell_provenance("cpu")} == set(COLUMNS)
    keys = [tuple(each[name] for name in (*CASE, "quantity")) for each in lines]
    assert len(set(keys)) == len(keys)
    held = {each["policy"]: each["value"] for each in lines
            if each["item"] == "keydiff/throughput" and each["quantity"] == "slots_kept_max"}  # fmt: skip
    assert held.pop("dense") == 64 + 2
    assert set(held.values()) == {40.0}


def test_dense_stands_in_every_item_of_times():
    for scale in SCALES.values():
        timed = timed_cases(scale)
        for item in {case.item for case in timed}:
            assert "dense" in {case.policy for case in timed if case.item == item}
        for listed in (cases.prompts(scale), cases.steps(scale)):
            assert "dense" in {each.policy for each in listed}


def test_cases_of_one_item_and_size_are_timed_together_and_those_that_run_again_apart():
    timed_ones = timed_cases(TINY, "kvec/testbed")
    groups = compared_cases(timed_ones)
    assert [case for group in groups for case in group] == timed_ones
    assert all(len({(case.item, case.tokens, case.new) for case in group}) == 1 for group in groups)
    assert all(len(set(group)) == len(group) for group in groups)
    grid = [[case.policy for case in group] for group in groups if group[0].item == "kvec/table_9"]
    pair = ["snapkv/kvec", "kvec/testbed"]
    assert grid == [["dense", *pair], pair, pair] * 2


def test_what_is_timed_beside_others_holds_what_it_holds_alone(runner):
    few = [case for case in timed_cases(TINY, "kvec/testbed") if case.item == "hashevict/table_1"][:4]
    together = [timing.ledger for timing in timed(runner, few, seed=0)]
    assert together == [timed(runner, [case], seed=0)[0].ledger for case in few]


@pytest.mark.parametrize("name", sorted(SCALES))
def test_the_board_times_every_policy_of_the_leaderboard_beside_dense(name):
    """In the regimes in which the experiment runs them, each once."""
    settings = yaml.safe_load(cases.BOARD.read_text())["grids"]["leaderboard"][name]
    asked = {(preset(policy)["name"], line["prompt"]) for line in settings for policy in line["policy"]}
    timed = [(case.policy, case.regime) for case in cases.board_cases(SCALES[name], name, "testbed")]
    assert len(set(timed)) == len(timed)
    assert set(timed) == asked | {("dense", regime) for _, regime in asked}


def test_what_reads_the_prompt_again_is_timed_with_it(runner):
    """KVzip lets the model repeat the prompt before anything is evicted."""
    board = cases.board_cases(TINY, "mini", "testbed")
    few = [case for case in board if case.policy in ("dense", "kvzip/uniform") and case.regime == "one_shot"]
    found = {(line["policy"], line["quantity"]): line["value"] for line in timed_lines(runner, few, 1)}
    assert found["kvzip/uniform", "slots_kept_max"] == 40 + 2
    assert found["dense", "slots_kept_max"] == 64 + 2


def test_filters_are_those_of_the_model_whose_shape_is_timed():
    board = cases.board_cases(SCALES["small"], "small", "smollm2-135m")
    (case,) = [case for case in board if case.policy == "qfilters"]
    filters = policy_of(case.policy, case.setting, case.overrides).scorer.filters
    assert (len(filters), len(filters[0]), len(filters[0][0])) == (30, 3, 64)
