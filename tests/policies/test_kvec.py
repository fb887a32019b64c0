"""K-VEC: the toy example and the invariants of policies.md 3.18 (T-35)."""

from __future__ import annotations

import pytest
import torch
from given_attention import GivenAttention, kept_per_head, prompt_view, random_attention

from policies import Policy, PolicyError, Protect, Schedule, build
from policies.kvec import KVec, coverage, focus
from policies.snapkv import SnapKV

ONCE = Schedule(prompt="after_prompt", decode="never")
TOY = torch.tensor(
    [
        [0.50, 0.21, 0.19, 0.05, 0.05, 0.0],
        [0.20, 0.22, 0.19, 0.20, 0.19, 0.0],
        [0.60, 0.05, 0.05, 0.05, 0.25, 0.0],
    ]
)
FOCUS = torch.tensor([[0.60, 0.30, 0.20, 0.15, 0.40, 0.0]])


class Toy(GivenAttention):
    """The example gives P and I themselves; a longer window doubles P."""

    def received(self, rows):
        return TOY[None] * (2 * rows if rows > 1 else 1)

    def strongest(self, rows):
        return FOCUS

    def rows(self, rows):
        return torch.tensor([[[rows]]])


def toy_view(**fields):
    counts = torch.tensor([[2, 2, 0, 0, 1, 0]])
    attention = Toy(torch.zeros(3, 1, 1, 6))
    return prompt_view(
        torch.zeros(3, 1, 1, 6), 3, **{"attention": attention, "kept_before": counts, "layer": 2, "layers": 4, **fields}
    )


toy = KVec(O=1, O_prime=2, delta=1, beta=0.34, pool="none")


def policy(scorer: KVec) -> Policy:
    return Policy("kvec", scorer, protect=Protect(recent=scorer.O), schedule=ONCE)


def test_3_18_the_flattest_head_looks_further():
    """policies.md 3.18."""
    candidates = torch.ones(1, 3, 5, dtype=torch.bool)
    assert focus(TOY[None, :, :5], candidates, "std").flatten().tolist() == pytest.approx(
        [0.164, 0.011, 0.214], abs=5e-4
    )
    scores = toy.score(toy_view())
    assert scores[0, 1, 0] == pytest.approx(0.40 + 0.200)  # head 1 alone has its P doubled
    assert scores[0, 2, 1] == pytest.approx(0.05 + 0.100)


def test_3_18_the_example():
    """policies.md 3.18, T-35."""
    view = toy_view()
    assert coverage(view)[0, 0].tolist() == pytest.approx([2 / 3, 2 / 3, 0, 0, 1 / 3, 0])
    scores = toy.score(view)[0, 0]
    assert scores.tolist() == [
        torch.inf,
        *map(pytest.approx, (0.31, 0.39, 0.20)),
        pytest.approx(0.3167, abs=1e-4),
        torch.inf,
    ]
    assert kept_per_head(policy(toy), view)[0] == [0, 2, 5]
    plain = KVec(O=1, O_prime=2, delta=0, lam=0, beta=0.34, pool="none")
    assert kept_per_head(policy(plain), view)[0] == [0, 1, 5]


def test_3_18_override_one_can_be_exceeded():
    """policies.md 3.18."""
    one = KVec(O=1, O_prime=2, delta=0, lam=10, beta=0.34, pool="none", override="one")
    scores = one.score(toy_view())[0, 0]
    assert scores[0] == 1
    assert scores[2] > 1


def test_3_18_entropy_ranks_the_flattest_lowest_too():
    """policies.md 3.18."""
    candidates = torch.ones(1, 3, 5, dtype=torch.bool)
    assert focus(TOY[None, :, :5], candidates, "entropy").argmin() == 1
    assert focus(torch.full((1, 1, 4), 0.1), candidates[:, :1, :4], "entropy").item() == pytest.approx(
        -1.3863, abs=1e-4
    )


@pytest.mark.parametrize("pool", ["max", "avg", "none"])
def test_3_18_without_both_parts_it_is_snapkv(pool):
    """policies.md 3.18, T-35."""
    shown = prompt_view(random_attention(4, 2, 12, 40), 15, layer=1, layers=3)
    snap = SnapKV(window=5, kernel=3, pool=pool, pool_over="prefix")
    plain = Policy("snapkv", snap, protect=Protect(recent=5), schedule=ONCE)
    assert kept_per_head(policy(KVec(O=5, delta=0, lam=0, kernel=3, pool=pool)), shown) == kept_per_head(plain, shown)


def test_3_18_a_beta_that_spares_all_ranks_by_attention_alone():
    """policies.md 3.18."""
    shown = prompt_view(random_attention(4, 2, 12, 40), 15)
    spared = KVec(O=5, delta=0, lam=50, beta=1, kernel=3)
    plain = KVec(O=5, delta=0, lam=0, kernel=3)
    assert kept_per_head(policy(spared), shown) == kept_per_head(policy(plain), shown)


def test_3_18_coverage_never_raises_a_score():
    """policies.md 3.18."""
    given = random_attention(2, 2, 12, 30)
    scorer = KVec(O=4, delta=1, beta=0, kernel=3)
    low, high = (
        scorer.score(prompt_view(given, 12, layer=3, layers=5, kept_before=torch.full((1, 30), count)))
        for count in (1, 3)
    )
    assert (high <= low).all()
    assert (high < low)[..., :26].any()


@pytest.mark.parametrize("layer", range(1, 40))
def test_3_18_coverage_stays_below_one(layer):
    """policies.md 3.18: cov <= l / (l + 1) < 1 when every earlier layer kept a token, and 0 in layer 0."""
    given = torch.zeros(1, 1, 1, 4)
    most = prompt_view(given, 2, layer=layer, layers=40, kept_before=torch.full((1, 4), layer))
    assert coverage(most).flatten().tolist() == pytest.approx([layer / (layer + 1)] * 4)
    assert (coverage(prompt_view(given, 2, layer=0, layers=40)) == 0).all()


@pytest.mark.parametrize(("beta", "spared"), [(0, 0), (0.1, 1), (0.25, 3), (0.29, 4), (0.75, 10), (1, 10)])
def test_3_18_the_best_share_of_the_budget_is_exempt(beta, spared):
    """policies.md 3.18: min(floor(beta * C), C - O) candidates per head get infinity, here C = 14 and O = 4."""
    shown = prompt_view(random_attention(3, 2, 8, 40), 14)
    scores = KVec(O=4, O_prime=8, delta=1, beta=beta, kernel=3).score(shown)
    assert torch.isinf(scores[..., :36]).sum(-1).tolist() == [[spared] * 3]


def test_3_18_the_strongest_head_of_each_row_is_averaged():
    """policies.md 3.18: I is the mean over the last O rows of the maximum over all query heads, unpooled."""
    given = random_attention(2, 3, 8, 30)
    plain, focused = (
        KVec(O=4, delta=0, lam=lam, beta=0, kernel=3).score(prompt_view(given, 12))[..., :26] for lam in (0, 2)
    )
    strongest = given.flatten(0, 1)[:, -4:, :26].amax(0).mean(0)
    assert torch.allclose(focused - plain, 2 * strongest.expand(1, 2, -1), atol=1e-6)


def test_3_18_the_window_always_stays():
    """policies.md 3.18."""
    shown = prompt_view(random_attention(2, 2, 12, 30), 12)
    unprotected = Policy("kvec", KVec(O=4, delta=1), schedule=ONCE)
    assert all(own[-4:] == [26, 27, 28, 29] for own in kept_per_head(unprotected, shown))


def test_3_18_nan_is_not_hidden_by_an_override():
    """policies.md 3.18."""
    given = random_attention(2, 1, 4, 20)
    given[0, 0, :, 3] = torch.nan
    _, broken = policy(KVec(O=4, delta=0, beta=1, kernel=3)).keep(prompt_view(given, 12))
    assert broken.tolist() == [True]


def test_3_18_more_heads_than_there_are_is_refused():
    """policies.md 3.18."""
    with pytest.raises(PolicyError, match=r"set policy\.scorer\.delta to 2 or less"):
        KVec().score(prompt_view(random_attention(2, 1, 32, 40), 20))


def test_3_18_decode_is_refused():
    """policies.md 3.18."""
    with pytest.raises(PolicyError, match="decode=never"):
        KVec(delta=1).score(prompt_view(random_attention(2, 1, 1, 40), 20, phase="decode"))


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"O": 0}, "1 or more query rows"),
        ({"delta": -1}, "0 or more"),
        ({"beta": 2}, "from 0 to 1"),
        ({"kernel": 4}, "odd pooling kernel"),
        ({"override": 1}, "not one of inf, one"),
        ({"focus_criterion": "variance"}, "not one of std, entropy"),
        ({"lambda": 1}, "no parameter 'lambda'"),
    ],
)
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError) as refused:
        build({"name": "mine", "scorer": {"name": "kvec", **parameters}})
    assert sentence in str(refused.value)
