"""R-KV by hand: shares of a window's attention, keys that are alike, and what is left of both (policies.md 3.20)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from views import kept, view

from policies import CacheView, Policy, PolicyError, Protect
from policies.keydiff import KeyDiff
from policies.rkv import RKV
from policies.snapkv import SnapKV
from tests.reference import rkv as reference

KEYS = [[1, 0], [1, 0], [0, 1], [0.6, 0.8]]
HEADS = [[0.2, 0.1, 0.1, 0.6], [0.1, 0.3, 0.4, 0.2]]  # what the last token's query gives, per query head
# Cosines above .5: 0-1 is 1, 0-3 and 1-3 are .6, 2-3 is .8. Each key leaves out its newest: 0, 1 and 2 leave out 3, and
# 3 leaves out 2. What is left: 0 and 1 get 1 + .6 each, 2 and 3 nothing. Over 4 keys (.4, .4, 0, 0), softmax:
REDUNDANCY = [0.29934, 0.29934, 0.20066, 0.20066]
# Before the window of one token the heads give shares (.5, .25, .25) and (.125, .375, .5); the larger of each:
IMPORTANCE = [0.5, 0.375, 0.5, 0]


@dataclass(frozen=True)
class FromWindow:
    """An attention that gives the same to whatever queries are carried: (R, H, G, N)."""

    given: torch.Tensor

    def received_from(self, queries: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        return self.given


def shown(keys, heads, positions=None, **fields) -> CacheView:
    given = torch.tensor(heads).float()[None, None]
    state = {"queries": torch.zeros(1, 2, 1, 2), "asked": torch.zeros(1, 1)}
    base = view(keys=keys, positions=positions)
    return replace(base, attention=FromWindow(given), state=state, **fields)


def scores(keys=KEYS, heads=HEADS, positions=None, **settings) -> list[float]:
    scorer = RKV(**{"window": 1, "kernel": 1, **settings})
    return scorer.score(shown(keys, heads, positions)).flatten().tolist()


def redundancy(keys, **settings) -> list[float]:
    """Minus the scores of attention that does not count."""
    return [-score for score in scores(keys, [[1.0] * len(keys)], lam=0, **settings)]


def test_3_20_by_hand():
    """policies.md 3.20: the largest share of the group, minus the softmax of the mean cosine."""
    assert redundancy(KEYS) == pytest.approx(REDUNDANCY, abs=1e-5)
    assert scores(lam=1) == pytest.approx(IMPORTANCE)
    expected = [0.1 * a - 0.9 * b for a, b in zip(IMPORTANCE, REDUNDANCY, strict=True)]
    assert scores() == pytest.approx(expected, abs=1e-5)
    policy = Policy("", RKV(1, 1), protect=Protect(recent=1))
    assert kept(policy, shown(KEYS, HEADS, budgets=(3,))) == [0, 2, 3]


def test_3_20_importance_is_max_pooled_before_the_window():
    """policies.md 3.20: the window neither gives to its neighbours nor takes from them."""
    heads = [[0.1, 0.05, 0.05, 0.2, 0.6]]  # shares .25, .125, .125, .5 before the window
    assert scores([[1, 0]] * 5, heads, lam=1, kernel=3) == pytest.approx([0.25, 0.25, 0.5, 0.5, 0])
    assert scores([[1, 0]] * 5, heads, lam=1, kernel=3, window=2) == pytest.approx([0.5, 0.5, 0.25, 0, 0])


def test_3_20_of_alike_keys_the_newest_stays():
    """policies.md 3.20: without what each key leaves out, copies are equally redundant."""
    keys = [[1, 0], [0, 1], [1, 0], [1, 0], [-1, 0]]
    # Copies 0, 2, 3: 0 and 2 leave out 3, 3 leaves out 2. So 0 hears 1 from 2 and 3, 2 from 0, 3 nobody; 4 is opposite.
    means = torch.tensor([1 + 1 - 1, 0, 1 - 1, 0 - 1, -3]) / 5
    assert redundancy(keys) == pytest.approx(means.softmax(0).tolist(), abs=1e-6)
    plain = torch.tensor([2 - 1, 0, 2 - 1, 2 - 1, -3]) / 5
    assert redundancy(keys, beta=0) == pytest.approx(plain.softmax(0).tolist(), abs=1e-6)
    both = torch.tensor([0 - 1, 0, 0 - 1, 0 - 1, -3]) / 5  # each copy leaves out the two others
    assert redundancy(keys, beta=2) == pytest.approx(both.softmax(0).tolist(), abs=1e-6)
    assert redundancy(keys, beta=99) == redundancy(keys, beta=2)


def test_3_20_alike_means_above_the_threshold():
    """policies.md 3.20: a cosine of exactly the threshold is not above it, and counts."""
    copies = [[1, 0], [1, 0], [0, 1]]
    assert redundancy(copies, threshold=1) == pytest.approx(torch.tensor([1, 1, 0.0]).div(3).softmax(0).tolist())
    assert redundancy(copies, threshold=0.99) == pytest.approx([1 / 3] * 3)
    leaning = [[3, 4], [1, 0], [0, 1]]  # .6 with 1, .8 with 2
    above_seven = torch.tensor([0.6, 0.6, 0]) / 3  # 0 and 2 leave each other out
    above_nine = torch.tensor([1.4, 0.6, 0.8]) / 3  # nobody does
    assert redundancy(leaning, threshold=0.7) == pytest.approx(above_seven.softmax(0).tolist(), abs=1e-6)
    assert redundancy(leaning, threshold=0.9) == pytest.approx(above_nine.softmax(0).tolist(), abs=1e-6)


@pytest.mark.parametrize("beta", [1, 3])
def test_3_20_keys_that_are_like_old_ones_only_find_them(beta):
    """What a key leaves out is searched among the newest keys first, then among all: equal to the slow reference."""
    draw = torch.Generator().manual_seed(2)
    topics = torch.eye(6)[torch.arange(150) // 25]  # six of 25 tokens each, so that old keys resemble no new ones
    keys = topics + 0.2 * torch.randn(150, 6, generator=draw)
    expected = reference.redundancy(keys.double().numpy(), 0.5, beta)
    assert redundancy(keys.tolist(), beta=beta) == pytest.approx(expected.tolist(), abs=1e-7)


@pytest.mark.parametrize("beta", [1, 3])
def test_3_20_the_search_leaves_out_what_comparing_all_keys_does(beta):
    """A processor searches, a GPU compares all keys: the same but for the order of sums."""
    units = torch.randn(5, 300, 4, generator=torch.Generator().manual_seed(7))
    units = units / units.norm(dim=-1, keepdim=True)
    filled = torch.ones(5, 300, dtype=torch.bool)
    filled[2, 200:] = False
    units = units.masked_fill(~filled.unsqueeze(-1), 0.0)
    scorer = RKV(beta=beta, threshold=0.9)  # of random keys some have none so near
    searched, compared = scorer._left_out_by_search(units, filled), scorer._left_out_of_all(units)
    assert torch.allclose(searched, compared, atol=1e-5)
    assert compared.abs().max() > 1


def test_3_20_redundancy_alone_ranks_like_pairwise_keydiff():
    """policies.md 3.20: where no key leaves out another, only the cosine of a key to itself is missing."""
    keys = torch.randn(40, 6, generator=torch.Generator().manual_seed(4)).tolist()
    pairwise = KeyDiff("pairwise").score(view(keys=keys)).flatten()
    own = torch.tensor(scores(keys, [[1.0] * 40], lam=0, beta=0))
    assert torch.equal(own.argsort(), pairwise.argsort())


def test_3_20_recent_is_by_position_whatever_the_slot():
    """policies.md 3.20: slots may lie in any order, with empty ones among them."""
    draw = torch.Generator().manual_seed(0)
    keys, heads = torch.randn(9, 2, generator=draw), torch.rand(2, 9, generator=draw)
    straight = torch.tensor(scores(keys.tolist(), heads.tolist(), kernel=3, window=2))
    order = torch.randperm(9, generator=draw)
    shuffled = scores(keys[order].tolist(), heads[:, order].tolist(), order.tolist(), kernel=3, window=2)
    assert torch.allclose(torch.tensor(shuffled), straight[order], atol=1e-7)
    gappy = scores([[8, 8], *keys.tolist()], [[9.0, *row] for row in heads.tolist()], [-1, *range(9)], kernel=3,
                   window=2)  # fmt: skip
    assert torch.allclose(torch.tensor(gappy[1:]), straight, atol=1e-7)


def test_3_20_tiles_of_keys_leave_out_the_same():
    """policies.md 3.20: 300 keys are compared in tiles, each without the key itself."""
    keys = torch.randn(300, 4, generator=torch.Generator().manual_seed(2))
    unit = keys / keys.norm(dim=-1, keepdim=True)
    cosines = (unit @ unit.T).fill_diagonal_(0)
    for i in range(300):
        alike = [j for j in range(300) if cosines[i, j] > 0.5]
        cosines[i, alike[-1]] = 0
    expected = cosines.mean(0).softmax(0)
    # fp32 sums of 300 cosines are off by less than 1e-6, shares of about 1/300 by as much of that.
    assert torch.allclose(torch.tensor(redundancy(keys.tolist())), expected, atol=1e-8, rtol=1e-5)


def test_the_window_is_carried_as_snapkv_carries_it():
    """policies.md 3.20: R-KV is made for decode, where a chunk has one query."""
    assert RKV.carried == SnapKV(window_source="carry").carried

    @dataclass(frozen=True)
    class Asked:
        def queries(self, last_rows):
            return torch.arange(3.0).view(1, 1, 3, 1)

        def rows(self, last_rows):
            return torch.tensor([[[3]]])

    state = {"queries": torch.tensor([7.0, 8.0]).view(1, 1, 2, 1), "asked": torch.tensor([[5, 6]])}
    read = replace(view(10), attention=Asked(), state=state)
    for own in (RKV(window=2), SnapKV(2, window_source="carry")):
        carried = own.update(read)
        assert carried["queries"].flatten().tolist() == [1, 2]
        assert carried["asked"].tolist() == [[8, 9]]


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"window": 0}, "at least 1 row"), ({"kernel": 4}, "odd pooling kernel"), ({"kernel": 0}, "odd pooling kernel"),
    ({"lam": 1.5}, "between 0"), ({"threshold": -0.1}, "from 0 to 1"), ({"beta": -1}, "0 or more keys"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        RKV(**parameters)
