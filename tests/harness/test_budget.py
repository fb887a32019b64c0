"""Budgets as people write them, and what they mean in slots."""

from __future__ import annotations

import pytest

from harness.config.budget import Budget, scaled_budget
from harness.errors import UserError


@pytest.mark.parametrize(
    ("text", "slots"), [("256", 256), (256, 256), ("4k", 4096), ("2K", 2048), ("0.5k", 512), ("1", 1)]
)
def test_slots(text, slots):
    assert Budget.parse(text).slots_for(1000, 10, [1000]) == slots


@pytest.mark.parametrize(("text", "share"), [("25%", 0.25), (0.25, 0.25), ("100%", 1.0), ("12.5%", 0.125)])
def test_shares(text, share):
    assert Budget.parse(text).share == share


@pytest.mark.parametrize(
    ("share_of", "slots"),
    [
        ("prompt", 25),  # 50 % of 50
        ("prompt_and_new", 35),  # 50 % of 70
        ("longest", 100),  # 50 % of 200
        ("median", 40),  # 50 % of (60 + 20 / 2) = 35, up to a multiple of 8 (policies.md 3.14, A-24)
    ],
)
def test_denominators(share_of, slots):
    assert Budget.parse("50%", share_of).slots_for(50, 20, [50, 60, 200]) == slots


def test_a_share_is_never_less_than_one_slot():
    assert Budget.parse("1%").slots_for(10, 0, [10]) == 1


@pytest.mark.parametrize("text", ["0", "-3", "lots", "101%", "0%", "1.5", "", None, "12 %%"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(UserError, match="is not a budget"):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("budget", "task", "share"),
    [
        ("4k", "longbench/qasper", 0.43),
        ("2k", "longbench/lcc", 0.22),
        ("128", "longbench/trec", 0.013),
        ("300", "lost_in_the_middle/buzz", 0.2),
        ("8k", "booksum", 1.0),
    ],
)
def test_slots_on_synthetic_rows_are_the_share_of_the_published_prompts(budget, task, share):
    written = Budget.parse(budget)
    assert scaled_budget(written, "scaled", task, synthetic=True) == Budget(share=share)
    assert scaled_budget(written, "as_written", task, synthetic=True) == written
    assert scaled_budget(written, "scaled", task, synthetic=False) == written


def test_shares_and_tasks_of_no_published_length_stay_as_they_are_written():
    assert scaled_budget(Budget.parse("25%"), "scaled", "longbench/qasper", True) == Budget.parse("25%")
    assert scaled_budget(Budget.parse(64), "scaled", "reasoning_mini", True) == Budget(slots=64)
