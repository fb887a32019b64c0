"""Each kind of comparison on rows in which it holds beyond doubt, and on rows in which it fails."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from made_up_rows import rows_of, verdict

from harness.papers.claim_ledger import Claim, Comparison, MethodSpec
from harness.papers.claim_verdicts import Verdict

N = 90
METHODS = {"buzz": "buzz", "h2o": "h2o/buzz", "sink": "sink/buzz", "dense": "dense", "buzz_logn": "buzz/logn"}
Levels = Mapping[tuple[str, str], float]


def judged(kind: str, levels: Levels, metric: str = "rouge_1", task: str = "xsum", **fields) -> Verdict:
    """A claim of BUZZ on rows whose cells score ``levels``, give or take a little noise."""
    budgets = fields.pop("budgets", tuple(dict.fromkeys(budget for _, budget in levels if budget != "full")))
    ladder = tuple(sorted(budgets, key=lambda budget: float(budget.rstrip("%"))))
    asked = Comparison(
        kind,
        left=tuple(MethodSpec(name) for name in fields.pop("left", ["buzz"])),
        right=tuple(MethodSpec(name) for name in fields.pop("right", ["h2o"])),
        task=(task,),
        metric=fields.pop("metrics", ("rouge1",)),
        budgets=budgets,
        ladder=ladder,
        **fields,
    )
    claim = Claim("BZ-00", "buzz", "A claim.", "ordering", (), (), "", "", asked)
    return verdict(claim, made(levels, metric, task), "full")


def made(levels: Levels, metric: str = "rouge_1", task: str = "xsum") -> pd.DataFrame:
    rng = np.random.default_rng(1)
    difficulty = rng.normal(0, 0.02, N)
    cells = {(METHODS[name], b): level + difficulty + rng.normal(0, 0.004, N) for (name, b), level in levels.items()}
    return rows_of(cells, task={"xsum": "buzz/xsum", "wikitext": "wikitext/rows"}[task], metric=metric)


HALF = {("buzz", "50%"): 0.4, ("h2o", "50%"): 0.3, ("sink", "50%"): 0.2}
STEPS = {("buzz", "60%"): 0.4, ("h2o", "60%"): 0.38, ("buzz", "10%"): 0.36, ("h2o", "10%"): 0.2}


@pytest.mark.parametrize(
    ("kind", "levels", "holds", "fails"),
    [
        ("above", HALF, {"margin": 0.05}, {"margin": 0.15}),
        ("above", HALF, {"factor": 1.2}, {"factor": 1.5}),
        ("above", HALF, {"left": ["sink", "buzz"], "best_left": True}, {"left": ["sink", "buzz"]}),
        ("below", HALF, {"left": ["sink"], "margin": 0.05}, {"left": ["sink"], "margin": 0.15}),
        ("within", HALF, {"margin": 0.15}, {"margin": 0.05}),
        ("between", HALF, {"low": 1.2, "high": 1.5}, {"low": 1.4, "high": 1.5}),
        ("rises", STEPS, {"budgets": ("10%", "60%")}, {"budgets": ("60%", "10%")}),
        ("ordered", HALF, {"left": ["sink", "h2o", "buzz"]}, {"left": ["sink", "buzz", "h2o"]}),
        (
            "best_in",
            HALF,
            {"right": ["h2o", "sink"], "margin": 0.5},
            {"left": ["h2o"], "right": ["buzz"], "margin": 0.5},
        ),
        ("lead_shrinks", STEPS, {"budgets": ("10%", "60%")}, {"budgets": ("60%", "10%")}),
        ("retains", STEPS, {}, {"left": ["h2o"], "right": ["buzz"]}),
        ("ratio_of_means", STEPS, {"low": 1.3, "high": 1.5}, {"low": 1.0, "high": 1.2}),
        (
            "nearer",
            {**HALF, ("dense", "full"): 0.45},
            {"right": ["sink"]},
            {"left": ["sink"], "right": ["buzz"]},
        ),
    ],
)
def test_it_holds_where_it_holds_and_fails_where_it_fails(kind, levels, holds, fails):
    for fields, outcome in ((holds, "reproduced"), (fails, "not reproduced")):
        found = judged(kind, levels, **fields)
        assert found.outcome == outcome, found.reason


def test_the_estimate_is_what_was_asked_for():
    """A difference, its margin taken off; a relative one by its factor; both in the units of the metric.

    A mean of ratios r is one of r / (1 + r), which is bounded."""
    assert judged("above", HALF, margin=0.05).estimate == pytest.approx(0.05, abs=0.003)
    assert judged("above", HALF, factor=1.2).estimate == pytest.approx(0.4 - 1.2 * 0.3, abs=0.003)
    mean_ratio = (0.4 / 0.38 + 1.8) / 2
    found = judged("ratio_of_means", STEPS, low=1.3, high=1.6)
    assert found.estimate == pytest.approx(mean_ratio / (1 + mean_ratio) - 1.3 / 2.3, abs=0.001)  # the nearer bound


def test_a_mean_of_ratios_fails_where_one_of_its_denominators_is_next_to_nothing():
    """H2O at twenty times a BUZZ that is at .01: resampled, that ratio is anything from five to infinity."""
    levels = {("buzz", "60%"): 0.4, ("h2o", "60%"): 0.38, ("buzz", "10%"): 0.001, ("h2o", "10%"): 0.2}
    fields = {"left": ["h2o"], "right": ["buzz"], "low": 0.8, "high": 1.2}
    assert judged("ratio_of_means", levels, **fields).outcome == "not reproduced"


def test_several_metrics_are_the_geometric_mean_of_their_means():
    parts = [made({cell: level * scale for cell, level in HALF.items()}, name)
             for name, scale in (("rouge_1", 1.0), ("rouge_2", 0.25), ("rouge_l", 0.5))]  # fmt: skip
    asked = Comparison(
        "above",
        (MethodSpec("buzz"),),
        (MethodSpec("h2o"),),
        ("xsum",),
        ("rouge1", "rouge2", "rougeL"),
        budgets=("50%",),
        ladder=("50%",),
    )
    claim = Claim("BZ-00", "buzz", "A claim.", "ordering", (), (), "", "", asked)
    found = verdict(claim, pd.concat(parts, ignore_index=True), "full")
    assert found.outcome == "reproduced"
    assert found.estimate == pytest.approx(0.5 * (0.4 - 0.3), abs=0.002)  # (1 * 0.25 * 0.5) ** (1 / 3) = 0.5


def test_perplexity_weighs_samples_by_their_tokens():
    """The long text decides: BUZZ is worse on nine short texts, and better on one that is a hundred times as long."""
    cells = {("buzz", "50"): [3.2] * 9 + [2.0], ("h2o/buzz", "50"): [3.0] * 9 + [2.5]}
    rows = rows_of(cells, task="wikitext/rows", metric="nll")
    rows["weight"] = np.where(rows["sample_id"] == "s9", 1000.0, 10.0)
    asked = Comparison(
        "below", (MethodSpec("buzz"),), (MethodSpec("h2o"),), ("wikitext",), ("ppl",), budgets=("50",), ladder=("50",)
    )
    claim = Claim("BZ-00", "buzz", "A claim.", "ordering", (), (), "", "", asked)
    assert verdict(claim, rows, "full").estimate == pytest.approx((0.5 * 1000 - 0.2 * 90) / 1090)


def test_columns_are_compared_as_they_stand():
    rows = rows_of(
        {("buzz", "50%"): np.zeros(20), ("h2o/buzz", "50%"): np.zeros(20)}, task="buzz/xsum", metric="rouge_l"
    )
    rows.loc[rows["policy"] == "buzz", "state_bytes"] = 50
    asked = Comparison(
        "between", (MethodSpec("buzz"),), (MethodSpec("h2o"),), ("xsum",), column="kv_bytes+state_bytes",
        low=1.02, high=1.07, budgets=("50%",), ladder=("50%",),
    )  # fmt: skip
    claim = Claim("BZ-00", "buzz", "A claim.", "efficiency", (), (), "", "", asked)
    found = verdict(claim, rows, "full")
    assert found.outcome == "reproduced"  # 1.05
    assert found.interval == (found.estimate, found.estimate)


def test_an_axis_is_told_apart_or_picked():
    """BUZZ answers alike wherever the answer lies, H2O only where it comes last."""
    rng = np.random.default_rng(2)
    gold = np.tile([0, 4, 9], 60)
    right = {"buzz": np.full(180, 0.6), "h2o/buzz": np.where(gold == 9, 0.95, 0.2)}
    cells = {(name, "300"): (rng.random(180) < share).astype(float) for name, share in right.items()}
    rows = rows_of(cells, task="lost_in_the_middle/buzz", metric="exact_match").assign(axis_gold_at=np.tile(gold, 2))
    common = {"task": ("10_document_qa",), "metric": ("exact_match",), "budgets": ("300",), "ladder": ("300",)}
    steadier = Comparison("steadier", (MethodSpec("buzz"),), (MethodSpec("h2o"),), split="gold_at", **common)
    last = Comparison("above", (MethodSpec("buzz"),), (MethodSpec("h2o"),), only={"gold_at": 9}, **common)
    middle = Comparison("above", (MethodSpec("buzz"),), (MethodSpec("h2o"),), only={"gold_at": 4}, **common)
    found = [
        verdict(Claim("BZ-00", "buzz", "A claim.", "ordering", (), (), "", "", asked), rows, "full")
        for asked in (steadier, last, middle)
    ]
    assert [each.outcome for each in found] == ["reproduced", "not reproduced", "reproduced"]
    assert [each.n for each in found] == [180, 60, 60]


@pytest.mark.parametrize("told_apart", [{"split": "gold_at"}, {"only": {"gold_at": 4}}], ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_a_task_without_the_axis_is_not_measured(told_apart, known):
    """As a stand-in may be: other tasks have the axis, so that the column is there and empty, or none has."""
    cells = {(name, "300"): np.linspace(0, 1, 20) for name in ("buzz", "h2o/buzz")}
    rows = rows_of(cells, task="lost_in_the_middle/buzz", metric="exact_match")
    rows = rows.assign(axis_gold_at=np.nan) if known else rows
    asked = Comparison(
        "steadier" if "split" in told_apart else "above", (MethodSpec("buzz"),), (MethodSpec("h2o"),),
        ("10_document_qa",), ("exact_match",), budgets=("300",), ladder=("300",), **told_apart,
    )  # fmt: skip
    found = verdict(Claim("BZ-00", "buzz", "A claim.", "ordering", (), (), "", "", asked), rows, "full")
    assert found.outcome == "not comparable"
    assert "no rows of the axis gold_at of buzz at 300 on lost_in_the_middle/buzz" in found.reason


def test_a_claim_for_every_task_fails_where_its_mean_holds():
    levels = {("buzz", "50%"): 0.4, ("h2o", "50%"): 0.3}
    other = {("buzz", "50%"): 0.30, ("h2o", "50%"): 0.33}
    rows = pd.concat([made(levels), made(other).assign(task="buzz/cnn_dailymail")], ignore_index=True)
    rows["cell_id"] += rows["task"]
    for per, outcome in (("average", "reproduced"), ("task", "not reproduced")):
        asked = Comparison(
            "above", (MethodSpec("buzz"),), (MethodSpec("h2o"),), ("xsum", "cnn_dailymail"), ("rouge1",),
            budgets=("50%",), ladder=("50%",), per=per,
        )  # fmt: skip
        found = verdict(Claim("BZ-00", "buzz", "A claim.", "ordering", (), (), "", "", asked), rows, "full")
        assert found.outcome == outcome
    assert "on buzz/cnn_dailymail" in found.reason
