"""Budgets as people write them, and what they mean in slots."""

from __future__ import annotations

import pytest

from harness.config.budget import Budget
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


def test_an_unknown_denominator_offers_the_known_ones():
    with pytest.raises(UserError, match="prompt, prompt_and_new, longest, median"):
        Budget.parse("25%", "all")
