"""Verdicts on rows whose truth is known: the right outcome, and the reason that goes with it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from made_up_rows import LADDER, claim_of, noisy, rows_of, two, verdict

from harness.papers.cell_index import CellIndex
from harness.papers.claim_ledger import MethodSpec
from harness.papers.claim_verdicts import verdicts
from harness.papers.dense_gate import dense_gate


def test_a_clear_difference_is_reproduced_and_its_opposite_is_not():
    better, worse = verdict(claim_of(), two(0.1, 0.0), "mini"), verdict(claim_of(), two(0.0, 0.1), "mini")
    assert (better.outcome, worse.outcome) == ("reproduced", "not reproduced")
    assert better.interval[0] < 0.1 < better.interval[1]
    assert better.interval[0] > 0 > worse.interval[1]
    assert better.n == 60
    assert better.needed_samples is None
    assert better.p < 0.001


def test_a_small_difference_is_inconclusive_and_says_how_many_samples_would_decide_it():
    found = verdict(claim_of(), two(0.005, 0.0), "mini")
    assert found.outcome == "inconclusive"
    assert found.interval[0] < 0 < found.interval[1]
    # The noise of a difference is 0.05 * sqrt(2); the observed difference decides, so a wide band is granted.
    assert found.needed_samples is not None
    assert found.needed_samples > 60
    assert f"About {found.needed_samples:,} samples would decide it." in found.reason


def test_samples_of_few_documents_settle_nothing():
    """The same rows are proof if samples are independent, and none if they come from three documents."""
    documents = [f"book {number % 3}" for number in range(60)]
    assert verdict(claim_of(), two(0.1, 0.0, documents=documents), "mini").outcome == "inconclusive"


RIVALS = claim_of(right=tuple(MethodSpec(name) for name in ("snapkv", "h2o", "tova", "sink")))


def unequal(rng: np.random.Generator, worst: float = 0.0) -> pd.DataFrame:
    """KeyDiff and SnapKV with 120 samples, the other three with the first 10 of them; all equal but for SnapKV."""
    difficulty = rng.uniform(0.2, 0.6, 120)
    shifts = {"keydiff": 0.0, "snapkv/keydiff": worst, "h2o/keydiff": 0.0, "tova/keydiff": 0.0, "sink": 0.0}
    counts = {"keydiff": 120, "snapkv/keydiff": 120}
    made = {name: noisy(rng, difficulty, shift)[: counts.get(name, 10)] for name, shift in shifts.items()}
    return rows_of({(name, "2048"): own for name, own in made.items()})


def test_a_comparison_is_tested_on_all_samples_that_its_own_cells_share():
    """Ten samples of the other rivals do not take the hundred and twenty from the comparison that fails."""
    found = verdict(RIVALS, unequal(np.random.default_rng(3), worst=0.05), "mini")
    assert (found.outcome, found.n) == ("not reproduced", 120)
    assert "snapkv" in found.sentence


def test_equal_methods_with_unequal_samples_fail_as_rarely_as_promised():
    """At most .025 of 150 sweeps by the promise; more than 9 would have a chance below .01."""
    rng = np.random.default_rng(4)
    outcomes = [verdict(RIVALS, unequal(rng), "mini").outcome for _ in range(150)]
    assert outcomes.count("not reproduced") <= 9
    assert outcomes.count("reproduced") == 0


def test_handfuls_of_equal_answers_are_no_proof_of_equality():
    asked = claim_of("within", margin=0.05)
    half = np.array([0.0, 1.0])
    equal = {("keydiff", "2048"): np.tile(half, 5), ("snapkv/keydiff", "2048"): np.tile(half, 5)}
    assert verdict(asked, rows_of(equal), "mini").outcome == "inconclusive"
    many = {cell: np.tile(half, 150) for cell in equal}
    assert verdict(asked, rows_of(many), "mini").outcome == "reproduced"


def test_changing_one_row_changes_the_claims_that_depend_on_it_and_no_other():
    other = claim_of(task=("trec",))
    rows = pd.concat([two(0.01, 0.0), two(0.1, 0.0, task="longbench/trec")], ignore_index=True)
    before = verdicts([claim_of(), other], CellIndex(rows), "mini")
    rows.loc[
        (rows["task"] == "longbench/qasper") & (rows["policy"] == "keydiff") & (rows["sample_id"] == "s3"), "value"
    ] -= 0.9
    after = verdicts([claim_of(), other], CellIndex(rows), "mini")
    assert before[0].estimate - after[0].estimate == pytest.approx(0.9 / 60)
    assert before[0].interval != after[0].interval
    assert before[1].interval == after[1].interval
    assert before[1].estimate == after[1].estimate


def test_a_paper_with_many_claims_needs_more_proof_for_each():
    rows = two(0.028, 0.0)
    alone = verdict(claim_of(), rows, "mini")
    assert alone.outcome == "reproduced"
    null = [claim_of(left=(MethodSpec("tova"),), budgets=(budget,)) for budget in LADDER]
    rng = np.random.default_rng(8)
    noise = {
        (p, b): rng.normal(0.5, 0.2, 60)
        for b in LADDER
        for p in ("tova/keydiff", "snapkv/keydiff")
        if (p, b) != ("snapkv/keydiff", "2048")
    }
    together = verdicts([claim_of(), *null], CellIndex(pd.concat([rows, rows_of(noise)], ignore_index=True)), "mini")
    assert together[0].p == pytest.approx(5 * alone.p)
    assert all(each.outcome == "inconclusive" for each in together[1:])


def test_false_verdicts_are_as_rare_as_promised():
    """Two policies that are alike on average: at most about 5 % of verdicts take a side."""
    rng = np.random.default_rng(9)
    taken = 0
    for _ in range(200):
        difficulty = rng.uniform(0, 1, 25)
        cells = {name: noisy(rng, difficulty, 0, 0.2) for name in (("keydiff", "2048"), ("snapkv/keydiff", "2048"))}
        taken += verdict(claim_of(), rows_of(cells), "mini").outcome != "inconclusive"
    assert taken / 200 <= 0.05 + 3 * 0.0154


def with_dense(dense: np.ndarray, left: np.ndarray, right: np.ndarray, task: str = "longbench/qasper") -> pd.DataFrame:
    cells = {("dense", "full"): dense, ("keydiff", "2048"): left, ("snapkv/keydiff", "2048"): right}
    return rows_of(cells, task=task)


def test_nothing_is_compared_where_dense_is_at_the_floor():
    """Whatever the methods score there: it is chance."""
    better, worse = np.tile([1.0, 0.0], 20), np.zeros(40)
    found = verdict(claim_of(), with_dense(np.zeros(40), better, worse), "mini")
    assert found.outcome == "no contrast"
    assert "longbench/qasper: dense .00, at the floor" in found.sentence
    assert verdict(claim_of(), with_dense(np.ones(40), better, worse), "mini").outcome == "reproduced"


def test_the_gate_is_that_of_the_headline_metric_whose_floor_is_known():
    """XSum's floor of .08 is of ROUGE-L: ROUGE-1, which is higher on any text, does not open what ROUGE-L closes."""
    cells = {("dense", "full"): np.full(20, 0.07), ("keydiff", "2048"): np.full(20, 0.07)}
    headline = rows_of(cells, task="buzz/xsum", metric="rouge_l", model="smollm2-135m")
    higher = headline.assign(metric="rouge_1", value=0.2)
    dense, _ = CellIndex(pd.concat([headline, higher]).sort_values(["cell_id", "sample_id"], kind="stable")).cells
    assert dense.metric == "rouge_l"
    gate = dense_gate(dense, dense.scores["rouge_1"], "rouge_1")
    assert not gate.is_open
    assert gate.sentence == "dense .07, at the floor of .08"


def test_a_tie_at_the_ceiling_or_the_floor_is_named_and_not_inconclusive():
    for end, text in ((1.0, "all at 1.00"), (0.0, "all at .00")):
        tied = with_dense(np.ones(40), np.full(40, end), np.full(40, end))
        found = verdict(claim_of(), tied, "mini")
        assert (found.outcome, found.n) == ("no contrast", 0)
        assert text in found.sentence


def test_a_budget_that_held_everything_is_named():
    rows = two(0.1, 0.0).assign(tokens_evicted=0)
    found = verdict(claim_of(), rows, "mini")
    assert found.outcome == "no contrast"
    assert "nothing was evicted" in found.sentence
    assert verdict(claim_of(), rows.assign(tokens_evicted=9), "mini").outcome == "reproduced"


def test_budgets_without_contrast_are_left_out_of_a_claim_about_all():
    rng = np.random.default_rng(3)
    cells = {("keydiff", "2048"): rng.binomial(1, 0.9, 90), ("snapkv/keydiff", "2048"): rng.binomial(1, 0.3, 90)}
    cells |= {(policy, "8192"): np.ones(90) for policy in ("keydiff", "snapkv/keydiff")}
    found = verdict(claim_of(budgets=("2048", "8192")), rows_of(cells), "mini")
    assert found.outcome == "reproduced"
    assert "keydiff at 8192, snapkv/keydiff at 8192: all at 1.00" in found.sentence


def test_a_comparison_that_two_claims_share_counts_once():
    rows = two(0.028, 0.0)
    one, other = claim_of(), dataclasses.replace(claim_of(), id="KD-99")
    alone = verdict(one, rows, "mini")
    first, second = verdicts([one, other], CellIndex(rows), "mini")
    assert (first.p, second.p) == (alone.p, alone.p)
    assert (first.same_as, second.same_as) == ("", "KD-00")
    assert first.outcome == second.outcome == "reproduced"


def test_a_claim_holds_only_with_what_has_to_hold_beside_it():
    asked = claim_of()
    assert asked.comparison
    opposite = dataclasses.replace(asked.comparison, left=asked.comparison.right, right=asked.comparison.left)
    rows = two(0.1, 0.0)
    both = dataclasses.replace(asked, also=(opposite,))
    assert verdict(both, rows, "mini").outcome == "not reproduced"
    assert verdict(dataclasses.replace(asked, also=(asked.comparison,)), rows, "mini").outcome == "reproduced"


def test_an_open_claim_says_where_it_leans():
    for shift, lean in ((0.005, "for"), (-0.005, "against")):
        found = verdict(claim_of(), two(shift, 0.0) if shift > 0 else two(0.0, 0.02), "mini")
        assert found.outcome == "inconclusive"
        assert found.lean == lean
        assert f"leans {lean} it" in found.sentence
