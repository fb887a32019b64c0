"""CriticalKV: worked examples. On a model: `tests/engine/test_model_openings.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from given_attention import GivenAttention
from views import view

from policies import Policy, PolicyError, Protect, build
from policies.criticalkv import CriticalKV
from policies.keydiff import KeyDiff
from policies.scorer import Stateless
from policies.snapkv import SnapKV


@dataclass(frozen=True)
class Fixed(Stateless):
    """Scores that an example gives."""

    given: tuple[float, ...] = ()
    nonnegative = True

    def score(self, view):
        return torch.tensor(self.given).view(1, 1, -1)


SHOWN = replace(
    view(keys=[[0.0, 0.0]] * 4, values=[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], budget=2),
    output_heads=lambda layer: torch.tensor([[[[1.0, 0.0], [-2.0, 3.0]]]]),  # W_O of one query head: |W v| = 1, 1, 1, 5
)
BASE = Fixed((0.4, 0.3, 0.2, 0.1))


def read(scorer, shown):
    """The view after its slots have arrived, all in one chunk."""
    arrived = replace(shown, arriving=shown.keys, state={"added": torch.zeros(1, 1, 4)})
    return replace(arrived, state=scorer.update(arrived))


def kept_of(scorer, shown):
    found, broken = Policy("critical", scorer).keep(read(scorer, shown))
    assert not broken.any()
    return found.flatten().tolist()


@pytest.mark.parametrize(
    ("share", "kept"),
    [(0.5, [0, 3]), (0.0, [0, 3]), (1.0, [0, 1])],  # by mass alone 0 and 1; by mass times length 3 (.5) and 0 (.4)
)
def test_worked_example(share, kept):
    """policies.md 3.24."""
    found = kept_of(CriticalKV(BASE, share, epsilon=0.0), SHOWN)
    assert [slot for slot, stays in enumerate(found) if stays] == kept


def test_the_first_stage_is_kept_whatever_its_values_are():
    longer = replace(SHOWN, values=torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]).view(1, 1, 4, 2))
    assert kept_of(CriticalKV(BASE, 0.5, epsilon=0.0), longer) == [True, True, False, False]
    assert kept_of(CriticalKV(BASE, 0.0, epsilon=0.0), longer) == [False, True, True, False]


def test_protected_slots_come_first_in_the_first_stage():
    """As in kvpress, whose SnapKV gives its window the largest score: here the newest slot is all of the stage."""
    scorer = CriticalKV(Fixed((0.9, 0.1, 0.2, 0.0)), 0.5, epsilon=0.0, recent=1)
    zero = replace(SHOWN, values=torch.tensor([[0.01, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).view(1, 1, 4, 2))
    found, _ = Policy("critical", scorer, protect=Protect(recent=1)).keep(read(scorer, zero))
    assert found.flatten().tolist() == [False, False, True, True]


def test_epsilon_lets_long_values_stay_without_attention():
    scorer = CriticalKV(Fixed((0.4, 0.3, 0.0, 0.0)), 0.0, epsilon=0.1)
    scores = scorer.score(read(scorer, SHOWN))
    assert scores.flatten().tolist() == pytest.approx([0.5, 0.4, 0.1, 0.5])


def test_epsilon_is_a_share_of_attention_whatever_the_window():
    """As in kvpress, whose SnapKV is a mean over the window: a window of equal rows gives the scores of one row."""
    row = torch.tensor([[[[0.4, 0.3, 0.2, 0.1]]]])  # (H, G, m, n)
    for window in (1, 2, 8):
        shown = replace(SHOWN, attention=GivenAttention(row.expand(-1, -1, window, -1)))
        base = SnapKV(window=window, kernel=1, pool="none")
        scorer = CriticalKV(base, 0.0, epsilon=0.1)
        scores = scorer.score(read(scorer, shown))
        assert scores.flatten().tolist() == pytest.approx([0.5, 0.4, 0.3, 1.0])


def test_the_mass_of_expected_attention_is_a_base_and_its_weighted_scores_are_none():
    made = build({"name": "mine", "scorer": {"name": "criticalkv", "base": EXPECTED | {"value_norm": False}}})
    assert made.scorer.base.nonnegative
    with pytest.raises(PolicyError, match=r"those of ExpectedAttention are none: .* with value_norm: false"):
        build({"name": "mine", "scorer": {"name": "criticalkv", "base": EXPECTED}})


EXPECTED = {"name": "expected_attention", "sinks": 0}


def test_scores_that_can_be_negative_are_refused():
    with pytest.raises(PolicyError, match="must be an attention mass, and those of KeyDiff are none: use snapkv"):
        CriticalKV(KeyDiff())
    with pytest.raises(PolicyError, match="share=2 is a share of the budget"):
        CriticalKV(share=2)
    with pytest.raises(PolicyError, match="base='snapkv' is no scorer"):
        CriticalKV("snapkv")


def test_what_a_value_adds_is_computed_once_when_it_arrives():
    """The last of two slots arrives: the first keeps what was noted for it, whatever W_O is asked for now."""
    before = read(CriticalKV(BASE), SHOWN).state["added"]
    assert before.flatten().tolist() == [1, 1, 1, 5]
    later = replace(SHOWN, arriving=SHOWN.keys[:, :, -1:], state={"added": torch.tensor([[[7.0, 8.0, 9.0, 0.0]]])})
    assert CriticalKV(BASE).update(later)["added"].flatten().tolist() == [7, 8, 9, 5]


def test_what_it_protects_is_what_the_policy_protects():
    made = build(
        {"name": "mine", "scorer": {"name": "criticalkv", "base": "tova"}, "protect": {"sinks": 2, "recent": 5}}
    )
    assert (made.scorer.sinks, made.scorer.recent) == (2, 5)
    with pytest.raises(PolicyError, match=r"protects 5 recent tokens .* counts 3 .* the same number"):
        build({"name": "mine", "scorer": {"name": "criticalkv", "recent": 3}, "protect": {"recent": 5}})
