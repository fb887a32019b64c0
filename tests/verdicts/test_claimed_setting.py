"""Which rows a verdict is on: those of the setting that a claim names, or of what stands in for it, which is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from made_up_rows import claim_of, rows_of, scores, two, verdict

from harness.papers.claim_ledger import MethodSpec


def test_mini_speaks_of_the_testbed_and_says_so():
    found = verdict(claim_of(), two(0.1, 0.0), "mini")
    assert found.models == ("testbed",)
    assert "On testbed (scale=mini), which says nothing of llama-3.2-3b-instruct" in found.reason


def test_at_full_scale_another_model_is_not_comparable():
    found = verdict(claim_of(), two(0.1, 0.0), "full")
    assert found.outcome == "not comparable"
    assert "model: rows are of testbed, the paper's is llama3.2-3b" in found.reason
    assert verdict(claim_of(), two(0.1, 0.0, model="llama3.2-3b"), "full").outcome == "reproduced"


@pytest.mark.parametrize("scale", ["mini", "full"])
def test_another_prompt_regime_is_not_comparable(scale):
    found = verdict(claim_of(), two(0.1, 0.0, model="llama3.2-3b", prompt="one_shot"), scale)
    assert found.outcome == "not comparable"
    assert "prompt: keydiff was run with prompt=one_shot, the paper's is blocked" in found.reason


def test_another_block_size_is_not_comparable_at_full_scale_and_a_proxy_at_mini():
    rows = two(0.1, 0.0, model="llama3.2-3b", block_size=32)
    found = verdict(claim_of(), rows, "full")
    assert found.outcome == "not comparable"
    assert "block_size: keydiff was run with 32, the paper's is 128" in found.reason
    assert verdict(claim_of(), rows, "mini").outcome == "reproduced"


@pytest.mark.parametrize("rows", [pd.DataFrame(), two(0.1, 0.0, task="longbench/trec")])
def test_without_rows_a_verdict_says_what_is_missing(rows):
    found = verdict(claim_of(), rows, "mini")
    assert (found.outcome, found.n) == ("not comparable", 0)
    assert np.isnan(found.estimate)
    assert found.reason.startswith("Not measured: there are no rows of ")
    assert "longbench/qasper" in found.reason


def test_a_claim_about_a_baseline_that_is_missing_is_not_reproduced_in_full():
    asked = claim_of(right=(MethodSpec("snapkv"), MethodSpec("tova")))
    found = verdict(asked, two(0.1, 0.0), "mini")
    assert found.outcome == "inconclusive"
    assert "Not measured: tova/keydiff" in found.reason
    # One baseline that wins is enough against it, whatever is missing.
    assert verdict(asked, two(0.0, 0.1), "mini").outcome == "not reproduced"


def test_cells_that_broke_a_promise_do_not_count():
    rows = two(0.1, 0.0)
    rows.loc[rows.index[0], "invalid"] = "It held more slots than it may."
    found = verdict(claim_of(), rows, "mini")
    assert found.outcome == "not comparable"
    assert "keydiff" in found.reason
    assert "broke an invariant" in found.reason


def test_of_two_versions_of_a_cell_the_newer_counts():
    old = two(0.0, 0.1, created="2026-01-01T00:00:00")
    old["cell_id"] += " old"
    for order in ([old, two(0.1, 0.0)], [two(0.1, 0.0), old]):
        assert verdict(claim_of(), pd.concat(order, ignore_index=True), "mini").outcome == "reproduced"


def test_only_samples_that_all_cells_have_are_paired():
    rows = two(0.1, 0.0)
    short = rows.drop(rows[(rows["policy"] == "keydiff") & rows["sample_id"].isin(["s0", "s1"])].index)
    assert verdict(claim_of(), short, "mini").n == 58


def test_budgets_that_were_not_measured_are_replaced_by_their_rank_and_named():
    shifts = {
        ("keydiff", "10%"): 0.1,
        ("snapkv/keydiff", "10%"): 0.0,
        ("keydiff", "50%"): 0.0,
        ("snapkv/keydiff", "50%"): 0.1,
    }
    rows = rows_of(scores(shifts))
    smallest, greatest = (verdict(claim_of(budgets=(budget,)), rows, "mini") for budget in ("2048", "8192"))
    assert (smallest.outcome, greatest.outcome) == ("reproduced", "not reproduced")
    assert "budgets 10% for 2048" in smallest.reason
    assert "budgets 50% for 8192" in greatest.reason
    assert verdict(claim_of(), rows.assign(model="llama3.2-3b"), "full").outcome == "not comparable"


def test_an_average_needs_all_of_its_tasks_at_full_scale():
    asked = claim_of(task=("qasper", "trec"))
    rows = two(0.1, 0.0, model="llama3.2-3b")
    found = verdict(asked, rows, "full")
    assert found.outcome == "inconclusive"
    assert "longbench/trec" in found.reason
    assert "1 of 2 tasks" in verdict(asked, rows, "mini").reason


def test_undecidable_claims_say_why():
    asked = dataclasses.replace(claim_of(), comparison=None, reason="GPT-4 is the judge.")
    found = verdict(asked, two(0.1, 0.0), "full")
    assert (found.outcome, found.reason) == ("not comparable", "GPT-4 is the judge.")


def test_proxies_for_the_papers_setting_are_named():
    rows = two(0.1, 0.0, block_size=32, config='{"task": {"data": "fixture"}}')
    reason = verdict(claim_of(), rows, "mini").reason
    assert "blocks of 32 for 128" in reason
    assert "synthetic prompts (data=fixture)" in reason
    plain = verdict(claim_of(), two(0.1, 0.0, config='{"task": {"data": "auto"}}'), "mini").reason
    assert "Stands in" not in plain


def test_synthetic_prompts_are_not_comparable_at_full_scale():
    rows = two(0.1, 0.0, model="llama3.2-3b", config='{"task": {"data": "fixture"}}')
    found = verdict(claim_of(), rows, "full")
    assert found.outcome == "not comparable"
    assert "data: the prompts of keydiff at 2048 are synthetic" in found.reason


def test_scores_that_are_no_numbers_do_not_count():
    rows = two(0.1, 0.0)
    rows.loc[rows.index[3], "value"] = np.nan
    assert verdict(claim_of(), rows, "mini").outcome == "not comparable"


def test_an_axis_that_rows_do_not_have_is_missing_and_no_error():
    found = verdict(claim_of(only={"gold_at": 4}), two(0.1, 0.0), "mini")
    assert (found.outcome, found.n) == ("not comparable", 0)
    assert "the axis gold_at" in found.reason


def test_claims_that_tell_models_apart_are_not_asked_of_one_model():
    asked = dataclasses.replace(claim_of(), of_one_model=True)
    assert verdict(asked, two(0.1, 0.0), "mini").outcome == "not comparable"
    assert verdict(asked, two(0.1, 0.0, model="llama3.2-3b"), "full").outcome == "reproduced"
