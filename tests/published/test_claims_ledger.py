"""The claims ledger: each line can be asked of rows or says why not, and speaks of tables that exist."""

from __future__ import annotations

import re

import pytest

from harness.errors import UserError
from harness.papers.claim_ledger import Comparison, MethodSpec, claims
from harness.papers.published import PAPERS, cells_as_text, our_model, paper_items, presets, row_metrics, task_labels

EVERY = [claim for paper in PAPERS for claim in claims(paper)]
NAMED = re.compile(r"(Table|Figure)s? ((?:[\dA-C]+[a-f]?(?:-[a-f])?(?:, (?=\d))?)+)")  # "Tables 4, 7", "Figure 9b-d"
WHOLE = re.compile(r"\d+|[A-C]")  # without the panel
# Of rows; names of other quantities are held by tests/verdicts/test_claim_measurements.py.
COMPARED = [(claim, each) for claim in EVERY for each in claim.comparisons if not each.quantity]


def test_no_claim_is_dropped():
    ledger = cells_as_text("claims.csv")
    assert sorted(claim.id for claim in EVERY) == sorted(ledger["id"])
    assert len(EVERY) == 121


def test_claims_rest_on_tables_and_figures_that_exist_and_that_their_source_names():
    for claim in EVERY:
        known = set(paper_items(claim.paper)["item"])
        assert set(claim.items) <= known, claim.id
        for kind, numbers in NAMED.findall(claim.source):
            for number in numbers.split(", "):
                whole = WHOLE.match(number)
                assert whole
                assert {f"{kind} {number}", f"{kind} {whole[0]}"} & set(claim.items), (claim.id, number)


def test_a_claim_that_rows_cannot_decide_says_why():
    for claim in EVERY:
        assert (claim.comparison is None) == bool(claim.reason), claim.id
        assert not claim.reason or claim.reason.endswith("."), claim.id


def test_what_is_compared_has_names_among_ours():
    for claim, asked in COMPARED:
        assert all(presets(claim.paper, each.method, each.variant) for each in asked.methods()), claim.id
        assert all(task_labels(claim.paper, task) for task in asked.task), claim.id
        assert asked.column or all(row_metrics(metric) for metric in asked.metric), claim.id
        assert all(our_model(name) for name in claim.models), claim.id


def test_no_cell_is_compared_with_itself():
    for claim, asked in COMPARED:
        cells = {
            (presets(claim.paper, each.method, each.variant)[0], each.prompt, each.block_size, each.budget)
            for each in asked.methods()
        }
        assert len(cells) == len(asked.methods()), claim.id


def test_budgets_are_rungs_of_a_ladder():
    for claim, asked in COMPARED:
        assert asked.budgets, claim.id
        assert asked.budgets_compared() <= set(asked.ladder), claim.id
        sizes = [float(budget.rstrip("%")) for budget in asked.ladder]
        assert sizes == sorted(set(sizes)), claim.id


def test_pairs_have_two_sides_of_one_length():
    for claim, asked in COMPARED:
        assert not asked.pairs or len(asked.left) == len(asked.right), claim.id


def test_models_of_the_ledger_are_read():
    assert claims("keydiff")[0].models == ("llama-3.1-8b-instruct",)
    assert len(claims("caote")[0].models) == 4
    assert claims("keydiff")[23].models == ()


def test_a_comparison_is_read_with_the_defaults_of_its_paper():
    asked = Comparison.parse(
        {"kind": "above", "left": {"method": "keydiff", "budget": "4096"}, "right": ["tova", "sink"]},
        {"budgets": [2048, 4096], "task": "longbench_avg", "prompt": "blocked", "block_size": 128},
    )
    assert asked.left == (MethodSpec("keydiff", budget="4096"),)
    assert asked.right == (MethodSpec("tova"), MethodSpec("sink"))
    assert (asked.budgets, asked.ladder, asked.task) == (("2048", "4096"), ("2048", "4096"), ("longbench_avg",))
    other = Comparison.parse({"kind": "rises", "left": "keydiff", "budgets": [100, 50]}, {"budgets": [2048]})
    assert other.ladder == ("50", "100")


def test_an_unknown_paper_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="Did you mean caote"):
        claims("coate")
