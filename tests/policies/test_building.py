"""From configuration to policy: parts compose, and what makes no sense is refused in a sentence with the remedy."""

from __future__ import annotations

import pytest

from policies import PolicyError, build
from policies.caote import FastCAOTE
from policies.snapkv import SnapKV


def test_parts_compose():
    policy = build({"name": "mine", "scorer": {"name": "snapkv", "window": 8}, "correction": "fastcaote"})
    assert policy.scorer == SnapKV(window=8)
    assert policy.correction == FastCAOTE()


def test_no_scorer_is_dense():
    assert build({"name": "dense"}).is_dense


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"scorer": "keydif"}, "no scorer called 'keydif'. Did you mean keydiff?"),
        ({"scorer": {"name": "snapkv", "windw": 3}}, "no parameter 'windw'. Did you mean window?"),
        ({"scorer": "tova", "corection": "caote"}, "no part 'corection'. Did you mean correction?"),
        ({"scorer": "tova", "protect": {"sink": 3}}, "no parameter 'sink'. Did you mean sinks?"),
        ({"scorer": "keydiff", "correction": "caote"}, "value corrections need an attention mass"),
        ({"scorer": {"name": "snapkv", "kernel": 4}}, "odd pooling kernel"),
        ({"scorer": {"name": "snapkv", "window": 0}}, "at least 1 row"),
        ({"scorer": {"name": "snapkv", "pool": "mean"}}, "not one of avg, avg_nopad, max, none"),
        ({"scorer": "tova", "protect": {"recent": 1.5}}, "whole tokens"),
        ({"scorer": "tova", "protect": {"sinks": -1}}, "0 or more"),
        ({"scorer": "tova", "schedule": {"decode": "sometimes"}}, "not one of each_step, never"),
        ({"scorer": {"name": "h2o", "rows": 5}}, "no parameter 'rows'"),
    ],
)
def test_nonsense_is_refused(config, sentence):
    with pytest.raises(PolicyError) as refused:
        build({"name": "mine", **config})
    assert sentence in str(refused.value)


def test_a_budget_below_the_protected_slots_is_refused():
    policy = build({"name": "mine", "scorer": "tova", "protect": {"sinks": 4, "recent": 32}})
    with pytest.raises(PolicyError, match="at least 36"):
        policy.check_budget(35)
    policy.check_budget(36)
