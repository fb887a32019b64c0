"""Numbers that two parts of a policy share, and shares as they were written."""

from __future__ import annotations

import pytest

from policies import PolicyError, Protect, build

ONCE = {"schedule": {"prompt": "after_prompt", "decode": "never"}}


def over_snap(allocator, recent):
    return build({"name": "mine", "scorer": "snapkv", "protect": {"recent": recent}, "allocator": allocator, **ONCE})


@pytest.mark.parametrize(
    ("recent", "budget", "slots"), [(0.29, 100, 29), (0.57, 100, 57), (0.07, 1000, 70), (0.1, 25, 2), (3, 100, 3)]
)
def test_a_protected_share_is_the_decimal_that_was_written(recent, budget, slots):
    assert Protect(recent=recent).recent_slots(budget) == slots


@pytest.mark.parametrize("allocator", ["ada", {"name": "pyramid"}, {"name": "headkv", "profile": [[1.0, 1.0]]}])
@pytest.mark.parametrize("recent", [0, 5])
def test_an_allocators_window_is_the_protected_one(allocator, recent):
    assert over_snap(allocator, recent).allocator.window == recent


@pytest.mark.parametrize("name", ["ada", "pyramid", "headkv"])
def test_two_windows_that_disagree_are_refused(name):
    assert over_snap({"name": name, "window": 5}, 5).allocator.window == 5
    with pytest.raises(PolicyError, match=r"protects 4 recent tokens .* counts 5 .* the same number"):
        over_snap({"name": name, "window": 5}, 4)


def test_a_share_is_no_window():
    with pytest.raises(PolicyError, match="whole number"):
        over_snap("ada", 0.2)


def test_allocators_without_a_window_do_not_mind():
    assert over_snap("skip_layers", 0.2).protect.recent == 0.2
