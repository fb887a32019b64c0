"""At our own scales one model, its tasks, shares and blocks are proxies, and are named; at full there are none."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from made_up_rows import rows_of, verdict

from harness.papers.cell_index import CellIndex, CellQuery
from harness.papers.claim_ledger import claims
from harness.papers.claim_verdicts import Verdict
from harness.papers.published import proxy_task

RNG = np.random.default_rng(3)
GOOD, BAD = 0.6 + RNG.normal(0, 0.03, 40), 0.4 + RNG.normal(0, 0.03, 40)


def decided(paper: str, number: str, rows: pd.DataFrame, scale: str = "mini") -> Verdict:
    return verdict(next(each for each in claims(paper) if each.id == number), rows, scale)


def keydiff_rows(task: str, block_size: int, better: str = "keydiff", model: str = "testbed") -> pd.DataFrame:
    methods = ("keydiff", "h2o/keydiff", "tova/keydiff", "sink", "snapkv/keydiff")
    budgets = ("22%", "43%", "65%", "86%")
    values = {(m, b): GOOD if m == better else BAD for m in methods for b in budgets}
    return rows_of(values, task=task, block_size=block_size, model=model)


def shares_of(rows: pd.DataFrame, reading: str) -> pd.DataFrame:
    return rows.assign(config=json.dumps({"budget": {"share": 0.5, "share_of": reading}}))


def test_mini_tasks_and_budgets_stand_for_the_papers_and_are_named():
    found = decided("keydiff", "KD-01", keydiff_rows("longbench_mini/single_doc_qa", 32))
    assert found.outcome == "reproduced", found.reason
    assert "the tasks longbench_mini/single_doc_qa for longbench/narrativeqa" in found.reason
    assert "22% for 2048" in found.reason
    assert "86% for 8192" in found.reason
    assert "blocks of 32 for 128" in found.reason


def test_each_scale_reads_its_own_model_and_tasks():
    """The same rows hold both models, with opposite outcomes: neither scale may see the other's."""
    testbed = keydiff_rows("longbench_mini/single_doc_qa", 32, better="sink")
    smollm2 = keydiff_rows("ruler_answers/niah_multikey_1", 128, model="smollm2-135m")
    for order in ([testbed, smollm2], [smollm2, testbed]):
        rows = pd.concat(order, ignore_index=True)
        small, mini = (decided("keydiff", "KD-01", rows, scale) for scale in ("small", "mini"))
        assert (small.outcome, small.models) == ("reproduced", ("smollm2-135m",)), small.reason
        assert (mini.outcome, mini.models) == ("not reproduced", ("testbed",)), mini.reason
        assert "the tasks ruler_answers/niah_multikey_1 for longbench/hotpotqa" in small.reason
        assert "blocks of" not in small.reason  # they are the paper's own there


def test_a_dense_score_alone_does_not_keep_the_task_that_stands_in_from_being_used():
    measured = keydiff_rows("ruler_answers/niah_multikey_1", 128, model="smollm2-135m")
    dense = rows_of({("dense", "full"): GOOD}, task="longbench/hotpotqa", model="smollm2-135m")
    found = decided("keydiff", "KD-01", pd.concat([measured, dense], ignore_index=True), "small")
    assert found.outcome == "reproduced", found.reason


def test_several_tasks_of_a_paper_that_share_a_proxy_count_it_once():
    both = [keydiff_rows(f"longbench_mini/{task}", 32) for task in ("single_doc_qa", "few_shot")]
    found = decided("keydiff", "KD-01", pd.concat(both, ignore_index=True))
    assert found.n == 2 * 40


def test_of_several_block_sizes_the_one_that_stands_for_the_papers_counts():
    wrong = keydiff_rows("longbench_mini/single_doc_qa", 64, better="sink")
    right = keydiff_rows("longbench_mini/single_doc_qa", 32)
    for order in ([wrong, right], [right, wrong]):
        assert decided("keydiff", "KD-01", pd.concat(order, ignore_index=True)).outcome == "reproduced"


def test_a_paper_may_have_a_proxy_of_its_own_where_it_was_measured():
    single, code = "longbench_mini/single_doc_qa", "longbench_mini/code"
    assert proxy_task("longbench/qasper", {single, code}, "mini", "kvec") == code
    assert proxy_task("longbench/qasper", {single}, "mini", "kvec") == single
    assert proxy_task("longbench/qasper", {single, code}, "mini", "keydiff") == single
    assert proxy_task("longbench/qasper", {"longbench/qasper", single, code}, "mini", "kvec") == "longbench/qasper"
    assert proxy_task("longbench/qasper", {"niah"}, "mini", "kvec") == ""
    assert proxy_task("longbench/qasper", {single, code}, "full", "kvec") == ""


def test_of_the_dense_cells_of_several_regimes_the_one_with_the_most_samples_counts():
    """Each regime has the samples of its own cells; a pair of samples must not be lost to a regime that has fewer."""
    dense = {("dense", "full"): GOOD}
    few = {("dense", "full"): GOOD[:5]}
    for regimes in (("blocked", "token_fed"), ("token_fed", "blocked")):
        rows = [rows_of(cell, prompt=regime) for cell, regime in zip((dense, few), regimes, strict=True)]
        for order in (rows, rows[::-1]):
            index = CellIndex(pd.concat(order, ignore_index=True))
            found = index.find(CellQuery(("dense",)), "testbed", "longbench/qasper", exact_blocks=False)
            assert (found.prompt, len(found.samples)) == (regimes[0], 40)


def test_there_are_no_proxies_at_full_scale():
    found = decided(
        "keydiff", "KD-01", keydiff_rows("longbench_mini/single_doc_qa", 32).assign(model="llama3.1-8b"), "full"
    )
    assert found.outcome == "not comparable"
    assert "Not measured: there are no rows" in found.reason


def test_a_metric_that_a_mini_task_lacks_is_replaced_by_name():
    budgets = ("10%", "30%", "50%", "70%", "90%")
    values = {("hashevict/paper", b): GOOD for b in budgets} | {("l2/hashevict", b): BAD for b in budgets}
    rows = rows_of(values, task="reasoning_mini", metric="string_match", prompt="one_shot", block_size=0)
    found = decided("hashevict", "HE-01", rows)
    assert found.outcome == "reproduced", found.reason
    assert "the metric string_match for rougeL" in found.reason
    assert decided("hashevict", "HE-02", rows).outcome == "not comparable"  # nothing stands for BERTScore


def test_a_budget_that_is_read_otherwise_is_named_at_mini_and_not_comparable_at_full():
    values = {("hashevict/paper", "50%"): GOOD, ("l2/hashevict", "50%"): BAD}
    rows = rows_of(values, task="hashevict/gsm8k_free_response", metric="rougeL", prompt="one_shot", block_size=0)
    other, own = shares_of(rows, "prompt"), shares_of(rows, "median")
    assert "shares of prompt for shares of median" in decided("hashevict", "HE-01", other).reason
    assert "shares of" not in decided("hashevict", "HE-01", own).reason
    full = decided("hashevict", "HE-01", other.assign(model="llama3-8b"), "full")
    assert full.outcome == "not comparable"
    assert "budget_of: hashevict/paper at 50% was run with shares of prompt for shares of median" in full.reason
    assert "budget_of" not in decided("hashevict", "HE-01", own.assign(model="llama3-8b"), "full").reason


def test_of_two_readings_of_a_budget_the_papers_own_counts():
    values = {("hashevict/paper", "50%"): GOOD, ("l2/hashevict", "50%"): BAD}
    rows = rows_of(values, task="hashevict/gsm8k_free_response", metric="rougeL", prompt="one_shot", block_size=0)
    turned = rows.assign(value=1 - rows["value"], cell_id=rows["cell_id"] + " prompt", created="2026-12-01")
    both = pd.concat([shares_of(rows, "median"), shares_of(turned, "prompt")], ignore_index=True)
    found = decided("hashevict", "HE-01", both)
    assert found.estimate > 0
    assert "shares of" not in found.reason
