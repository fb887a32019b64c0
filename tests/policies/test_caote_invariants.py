"""What CAOTE promises beside its numbers (policies.md 3.16)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_examples_of_section_3 import moved_output
from views import kept, view

from policies import Policy, Protect, scorer
from policies.caote import CAOTE, FastCAOTE, normalised_mass
from policies.h2o import H2O
from policies.snapkv import SnapKV
from policies.tova import TOVA

BOTH = pytest.mark.parametrize("correction", [CAOTE(), FastCAOTE()], ids=["caote", "fastcaote"])


def drawn(slots: int, seed: int = 0) -> tuple[list[float], list[list[float]]]:
    torch.manual_seed(seed)
    return torch.rand(slots).tolist(), torch.randn(slots, 5).tolist()


@BOTH
def test_bases_are_normalised_first(correction):
    """policies.md 3.16: h = H / sum H over all slots of the head, whatever the scale of H."""
    base, values = drawn(6)
    small, large = (
        Policy("", TOVA(), correction).scores(view(sums=[factor * x for x in base], values=values)) for factor in (1, 7)
    )
    assert torch.allclose(small, large, rtol=1e-5)


def test_equal_distances_recover_the_base_ranking():
    """policies.md 3.16, T-33: strictly increasing in h when all |X - v| are equal."""
    base, _ = drawn(5, 1)
    scores = FastCAOTE().correct(torch.tensor([[base]]), view(values=torch.eye(5).tolist())).flatten()
    assert scores.argsort().tolist() == torch.tensor(base).argsort().tolist()


@BOTH
def test_equal_values_tie_at_zero(correction):
    """policies.md 3.16, T-33: equal values give zeros and rule 1.3-4 decides."""
    base, _ = drawn(6, 2)
    shown = view(sums=base, values=[[0.3, 0.7]] * 6, budget=2)
    policy = Policy("", TOVA(), correction)
    assert policy.scores(shown).tolist() == [[[0] * 6]]
    assert kept(policy, shown) == [4, 5]


@BOTH
@pytest.mark.parametrize("holes", [False, True])
def test_rows_looked_at_in_tiles_score_as_all_at_once(correction, holes, monkeypatch):
    """Tiles save memory traffic on a processor; scores are the same bit by bit, and infinite leftovers do not count."""
    torch.manual_seed(3)
    rows, heads, slots, width = 6, 2, 11, 5
    values = torch.randn(rows, heads, slots, width)
    positions = torch.rand(rows, heads, slots).argsort(-1).int()
    if holes:
        empty = positions < 3
        positions, values = positions.masked_fill(empty, -1), values.masked_fill(empty.unsqueeze(-1), torch.inf)
    counts = (slots - 3 * holes,) * rows
    shown = replace(view(slots), keys=values, values=values, positions=positions, counts=counts, is_full=not holes)
    base = torch.rand(rows, heads, slots)
    at_once = correction.correct(base, shown)
    monkeypatch.setattr(scorer, "ON_A_PROCESSOR", 2 * heads * slots * width)
    assert torch.equal(correction.correct(base, shown), at_once)
    assert at_once[positions >= 0].isfinite().all()


@BOTH
@pytest.mark.parametrize(("top", "never"), [(1 - 1e-5, False), (1 - 1e-7, True)])
def test_a_slot_with_nearly_all_mass(correction, top, never):
    """policies.md 3.16, T-33: h above 1 - 1e-6 counts as infinite, below it does not."""
    shown = view(values=[[1, 0], [0, 1], [5, 5]])
    mass = torch.tensor([[[top, (1 - top) / 2, (1 - top) / 2]]], dtype=torch.float64).float()
    assert bool(correction.correct(mass, shown)[0, 0, 0].isinf()) == never


@BOTH
def test_protection_of_the_base_holds(correction):
    """policies.md 3.16: protected slots of the base policy stay protected, however cheap their removal."""
    base, values = drawn(20, 3)
    base[-3:] = [0.0] * 3
    policy = Policy("", TOVA(), correction, Protect(sinks=1, recent=3))
    assert {0, 17, 18, 19} <= set(kept(policy, view(sums=base, values=values, budget=6)))


def test_the_window_carries_mass():
    """policies.md 3.16: scores for all slots carry mass in X and in the normalisation (A-11); prefix leaves it out."""
    sums, values = drawn(12, 4)
    everything, prefix = (
        Policy("", SnapKV(4, 3, "avg", over), CAOTE()).scores(view(sums=sums, values=values)).flatten()
        for over in ("all", "prefix")
    )
    pooled = SnapKV(4, 3, "avg").score(view(sums=sums)).flatten()
    mass = pooled / pooled.sum()
    direct = mass / (1 - mass) * (mass @ torch.tensor(values) - torch.tensor(values)).norm(dim=-1)
    assert torch.allclose(everything, direct, atol=1e-5)
    assert (prefix[8:] == 0).all()
    assert not torch.allclose(prefix[:8], direct[:8], atol=1e-3)


def test_a_block_evicts_independently():
    """policies.md 3.16, T-33: one victim is the greedy one; several are the lowest scores, computed once."""
    base, values = drawn(30, 5)
    mass, vectors = torch.tensor(base) / sum(base), torch.tensor(values)
    policy = Policy("", TOVA(), CAOTE())
    cheapest = min(range(30), key=lambda j: moved_output(mass, vectors, {j}))
    assert set(range(30)) - set(kept(policy, view(sums=base, values=values, budget=29))) == {cheapest}
    scores = policy.scores(view(sums=base, values=values)).flatten()
    assert kept(policy, view(sums=base, values=values, budget=6)) == sorted(scores.topk(6).indices.tolist())
    held = list(range(30))  # one at a time, the mass of what is left renormalised
    while len(held) > 6:
        shown = view(sums=[base[j] for j in held], values=[values[j] for j in held], budget=len(held) - 1)
        held = [held[place] for place in kept(policy, shown)]
    assert held != kept(policy, view(sums=base, values=values, budget=6))


def test_state_is_the_bases():
    """policies.md 3.16: exactly the base policy's state."""
    assert Policy("", H2O(), CAOTE()).state == Policy("", H2O()).state
    assert Policy("", TOVA(), CAOTE()).state == {}
    shown = view(state=[2.0, 1.0], sums=[0.5, 0.5])
    updated = Policy("", H2O(), CAOTE()).update(replace(shown, values=torch.randn(1, 1, 2, 2)))
    assert updated["received"].flatten().tolist() == [2.5, 1.5]


def test_nan_in_the_base_score_stays_one():
    """policies.md 1.3-6 and 3.16: a mass that is not a number must not turn into a uniform one."""
    assert normalised_mass(torch.tensor([[[0.5, torch.nan, 0.2]]]), view(3)).isnan().all()
