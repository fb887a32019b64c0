"""ChunkKV over any scorer: chunks of the text by hand, at the border of a budget, and by name (policies.md 3.22)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from views import kept, view

from policies import SCORERS, Policy, PolicyError, Protect, build
from policies.caote import CAOTE
from policies.chunkkv import ChunkKV
from policies.h2o import H2O
from policies.hashevict import HashEvict
from policies.keydiff import KeyDiff
from policies.kvec import KVec
from policies.scorer import Stateless
from policies.snapkv import SnapKV
from policies.tova import TOVA
from policies.view import ModelShape


@dataclass(frozen=True)
class Sums(Stateless):
    """The attention that an example gives is the score."""

    def score(self, shown):
        return shown.attention.received(1)


def scores(sums, positions=None, size=2) -> list[float]:
    return ChunkKV(Sums(), size).score(view(sums=sums, positions=positions)).flatten().tolist()


SUMS = [0.1, 0.3, 0.0, 0.1, 0.5]


def test_3_22_by_hand():
    """policies.md 3.22: means .2, .05 and .5 of tokens {0, 1}, {2, 3} and {4}."""
    assert scores(SUMS) == pytest.approx([0.2, 0.2, 0.05, 0.05, 0.5])
    for budget, survivors in {1: [4], 2: [1, 4], 3: [0, 1, 4], 4: [0, 1, 3, 4], 5: [0, 1, 2, 3, 4]}.items():
        assert kept(Policy("", ChunkKV(Sums(), 2)), view(sums=SUMS, budget=budget)) == survivors


def test_3_22_a_mean_and_not_a_sum_or_a_largest():
    """policies.md 3.22: one high score does not save a low chunk, and a short chunk is not a low one."""
    assert kept(Policy("", ChunkKV(Sums(), 3)), view(sums=[0, 0.6, 0, 0.3, 0.3, 0.3, 0.25], budget=4)) == [3, 4, 5, 6]


def test_3_22_chunks_are_those_of_the_text():
    """policies.md 3.22: 9 and 10 are of two chunks, 10 and 18 of one, whatever was between them."""
    assert scores([1, 2, 4, 8], [9, 10, 18, 20], size=10) == [1, 3, 3, 8]
    assert scores([4, 8, 1, 2], [18, 20, 9, 10], size=10) == [3, 8, 1, 3]


def test_3_22_empty_slots_count_in_no_chunk():
    """policies.md 3.22: whatever score lies in them."""
    own = scores([9, 1, 7, 3, 5], [-1, 0, -1, 1, 2])
    assert [own[i] for i in (1, 3, 4)] == [2, 2, 5]
    assert scores([float("nan"), 1, 3], [-1, 0, 1])[1:] == [2, 2]


def test_3_22_a_chunk_of_one_is_the_base():
    """policies.md 3.22."""
    keys = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).tolist()
    shown = view(keys=keys, budget=7)
    assert torch.equal(ChunkKV(KeyDiff(), 1).score(shown), KeyDiff().score(shown))
    assert kept(Policy("", ChunkKV(KeyDiff(), 1)), shown) == kept(Policy("", KeyDiff()), shown)


def test_3_22_only_one_chunk_is_torn():
    """policies.md 3.22: all others stay or go as a whole, and of that one the newest stay."""
    keys = torch.randn(57, 4, generator=torch.Generator().manual_seed(1)).tolist()
    for budget in range(1, 57):
        stay = kept(Policy("", ChunkKV(KeyDiff(), 5)), view(keys=keys, budget=budget))
        chunks = [[place for place in stay if place // 5 == number] for number in range(12)]
        torn = [own for number, own in enumerate(chunks) if 0 < len(own) < min(5, 57 - 5 * number)]
        assert len(torn) <= 1
        assert all(own[-1] % 5 == 4 or own[-1] == 56 for own in torn)
        assert all(own == list(range(own[0], own[-1] + 1)) for own in torn)


def test_3_22_equal_scores_tie_in_chunks_of_any_length():
    """policies.md 3.22: the mean of equal scores is that score, where sums in fp32 would round; the newest stay."""
    for score in (0.1, 0.3, 1 / 3, 0.7, 0.9, 0.05, 0.013):
        for size in (3, 7, 10):
            assert set(scores([score] * 27, size=size)) == {torch.tensor(score).item()}
    assert kept(Policy("", ChunkKV(Sums(), 10)), view(sums=[0.7] * 27, budget=12)) == list(range(15, 27))


def test_3_22_infinite_scores_stay_in_their_chunk():
    """policies.md 3.22: K-VEC gives infinity to what always stays."""
    assert scores([torch.inf, 1, 2, 4]) == [torch.inf, torch.inf, 3, 3]


def test_3_22_heads_and_rows_choose_for_themselves():
    """policies.md 3.22."""
    one, other = view(sums=[1, 2, 3, 4]), view(sums=[8, 4, 2, 6], positions=[3, 1, -1, 2])
    both = {name: torch.cat([getattr(one, name), getattr(other, name)], 1) for name in ("keys", "values", "positions")}
    one.attention.sums = torch.tensor([[[1.0, 2, 3, 4], [8, 4, 2, 6]]])
    own = ChunkKV(Sums(), 2).score(replace(one, is_full=False, **both))[0]
    assert own[0].tolist() == [1.5, 1.5, 3.5, 3.5]
    assert own[1][[0, 1, 3]].tolist() == [7, 4, 7]


def test_what_the_base_carries_is_carried():
    """policies.md 3.22: state per slot and per row, and what else the engine asks a scorer."""
    assert ChunkKV(H2O()).state == H2O().state
    assert ChunkKV(SnapKV(window_source="carry")).carried == ("queries", "asked")
    assert ChunkKV(KVec()).counts_layers
    assert not ChunkKV(H2O()).counts_layers
    for base in (H2O(), KeyDiff(), TOVA(), HashEvict()):
        own = ChunkKV(base)
        assert own.nonnegative == base.nonnegative
        assert own.layers_as_rows == getattr(base, "layers_as_rows", False)
        assert own.carried == getattr(base, "carried", ())
    shown = view(sums=[0.7, 0.4], state=[1.6, 0.4])
    assert torch.equal(ChunkKV(H2O()).update(shown)["received"], H2O().update(shown)["received"])
    shape = ModelShape(layers=2, kv_heads=1, query_heads=2)
    assert ChunkKV(KVec()).reason_against_model(shape) == KVec().reason_against_model(shape) != ""
    assert ChunkKV(H2O()).reason_against_model(shape) == ""


def test_a_base_is_built_by_its_name():
    assert build({"scorer": "chunkkv"}).scorer == ChunkKV(SnapKV(), 10)
    assert build({"scorer": {"name": "chunkkv", "base": "keydiff"}}).scorer == ChunkKV(KeyDiff())
    wide = {"name": "chunkkv", "size": 20, "base": {"name": "snapkv", "window": 16}}
    assert build({"scorer": wide}).scorer == ChunkKV(SnapKV(window=16), 20)
    twice = {"name": "chunkkv", "base": {"name": "chunkkv", "base": "tova", "size": 2}}
    assert build({"scorer": twice}).scorer == ChunkKV(ChunkKV(TOVA(), 2))
    assert build({"scorer": {"name": "chunkkv", "base": Sums()}}).scorer == ChunkKV(Sums())
    staged = build({"scorer": "h2o", "prompt_stage": {"scorer": {"name": "chunkkv", "base": "l2"}}})
    assert staged.prompt_stage.scorer == ChunkKV(build({"scorer": "l2"}).scorer)


@pytest.mark.parametrize("name", SCORERS)
def test_every_scorer_may_be_a_base(name):
    once = {"prompt": "after_prompt", "decode": "never"}  # in which every scorer works
    assert build({"scorer": {"name": "chunkkv", "base": name}, "schedule": once}).scorer.base == SCORERS[name]()


@pytest.mark.parametrize(("base", "sentence"), [
    ("keydif", "There is no scorer.base called 'keydif'. Did you mean keydiff?"),
    ({"window": 16}, "The scorer.base has parameters but no name: add policy.scorer.base.name."),
    ({"name": "snapkv", "windw": 3}, "The scorer.base 'snapkv' has no parameter 'windw'. Did you mean window?"),
    ({"name": "snapkv", "window": 0}, "at least 1 row"),
    ({"name": "snapkv", "window": "wide"}, "A setting of the scorer.base does not fit ("),
    (None, "chunkkv base=None is no scorer: give the name of one"),
    (3, "chunkkv base=3 is no scorer"),
    ({"name": "chunkkv", "base": "tovva"}, "There is no scorer.base.base called 'tovva'. Did you mean tova?"),
])  # fmt: skip
def test_a_base_that_is_none_is_refused(base, sentence):
    with pytest.raises(PolicyError) as refused:
        build({"name": "mine", "scorer": {"name": "chunkkv", "base": base}})
    assert sentence in str(refused.value)


def test_scorers_without_a_base_say_so():
    with pytest.raises(PolicyError, match="scorer 'tova' has no parameter 'base'"):
        build({"scorer": {"name": "tova", "base": "keydiff"}})


def test_chunks_hold_at_least_one_token():
    with pytest.raises(PolicyError, match="at least 1 token"):
        ChunkKV(size=0)


def test_a_correction_goes_over_a_mass_only():
    assert build({"scorer": {"name": "chunkkv", "base": "tova"}, "correction": "caote"}).correction == CAOTE()
    with pytest.raises(PolicyError, match="value corrections need an attention mass"):
        build({"scorer": {"name": "chunkkv", "base": "keydiff"}, "correction": "caote"})


def test_protected_slots_are_outside_the_ranking():
    """policies.md 3.22: the window stays though its chunk goes."""
    policy = Policy("", ChunkKV(Sums(), 2), protect=Protect(recent=1))
    assert kept(policy, view(sums=[0.3, 0.3, 0.1, 0.1], budget=3)) == [0, 1, 3]
