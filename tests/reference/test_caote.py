"""CAOTE and FastCAOTE in the reference (policies.md 3.16, T-33)."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.reference import caote
from tests.reference.attention import attend
from tests.reference.caote import Caote
from tests.reference.cases import kept, random_chunks, rng
from tests.reference.engine import simulate
from tests.reference.h2o import H2O
from tests.reference.selection import keep
from tests.reference.snapkv import SnapKV
from tests.reference.tova import Tova


def brute_force(h: np.ndarray, v: np.ndarray, gone: set[int]) -> float:
    """Output change when `gone` leaves and the attention h is renormalised over the rest."""
    stay = [j for j in range(len(h)) if j not in gone]
    return float(np.linalg.norm(h @ v - (h[stay] / h[stay].sum()) @ v[stay]))


def test_t33_scores_are_the_exact_output_change():
    generator = rng(43)
    h, v = generator.dirichlet(np.ones(9)), generator.standard_normal((9, 5))
    c = caote.scores(list(h), v)
    for j in range(9):
        assert c[j] == pytest.approx(brute_force(h, v, {j}))
    for gone in ({0}, {1, 2}, {0, 4, 7, 8}):
        assert caote.joint_error(list(h), v, gone) == pytest.approx(brute_force(h, v, gone))


def test_t33_exact_through_the_engine_with_tova_and_one_query_head():
    chunks = random_chunks(rng(44), [8, 1, 1], H=2, G=1)
    steps = simulate(Caote(Tova()), chunks, 8, prompt_chunks=1)
    for step, (q, _, _) in zip(steps[1:], chunks[1:], strict=True):
        for g in range(2):
            pos = step.seen[g]
            values = np.concatenate([chunk[2][g] for chunk in chunks])[pos]
            keys = np.concatenate([chunk[1][g] for chunk in chunks])[pos]
            probs, _ = attend(q[g : g + 1], [pos[-1]], keys, values, pos, 0.5)
            for j, p in enumerate(pos):
                assert step.scores[g][p] == pytest.approx(brute_force(probs[0, 0], values, {j}))


def test_t33_unnormalised_bases_are_scaled_first():
    v = rng(45).standard_normal((6, 3))
    base = [3.0, 1.0, 0.5, 2.0, 0.0, 4.0]
    np.testing.assert_allclose(caote.scores(base, v), caote.scores([7 * x for x in base], v), rtol=1e-12)
    np.testing.assert_allclose(caote.scores(base, v), caote.scores([x / 10.5 for x in base], v), rtol=1e-12)


def test_t33_equal_values_give_exact_zeros_and_guards_hold():
    v = np.tile(rng(46).standard_normal(3), (6, 1))
    h = list(rng(47).random(6))
    for fast_variant in (False, True):
        assert caote.scores(h, v, fast_variant).tolist() == [0.0] * 6
    assert keep(range(6), list(caote.scores(h, v)), 2) == [4, 5]
    w = rng(48).standard_normal((3, 2))
    assert caote.scores([1.0, 0.0, 0.0], w)[0] == math.inf
    np.testing.assert_array_equal(caote.scores([0.0] * 3, w), caote.scores([1.0] * 3, w))


def test_t33_equal_distances_recover_the_base_ranking():
    v = np.eye(5)  # the mean of the values is equally far from all of them
    h = list(rng(49).dirichlet(np.ones(5)))
    assert np.argsort(caote.scores(h, v, fast=True)).tolist() == np.argsort(h).tolist()


@pytest.mark.parametrize("fast_variant", [False, True])
def test_t33_greedy_agrees_for_one_victim_and_may_differ_for_many(fast_variant: bool):
    chunks = random_chunks(rng(50), [9, 1, 1, 1], H=2, G=2)
    a = simulate(Caote(H2O(), fast_variant), chunks, 9, prompt_chunks=1)
    b = simulate(Caote(H2O(), fast_variant, greedy=True), chunks, 9, prompt_chunks=1)
    assert kept(a) == kept(b)
    block = random_chunks(rng(51), [30], H=4, G=2)
    a = simulate(Caote(H2O(), fast_variant), block, 6, prompt_chunks=1)
    b = simulate(Caote(H2O(), fast_variant, greedy=True), block, 6, prompt_chunks=1)
    assert kept(a) != kept(b)


def test_t33_state_is_the_bases():
    chunks = random_chunks(rng(52), [9, 1, 1])
    steps = simulate(Caote(H2O()), chunks, 9, prompt_chunks=1)
    assert steps[0].state[0]["acc"] == simulate(H2O(), chunks, 9, prompt_chunks=1)[0].state[0]["acc"]
    for before, step in pairwise(steps):
        # The raw accumulator is carried, never the score: one more row, less what the victim had collected.
        lost = sum(before.state[0]["acc"].values()) + 1 - sum(step.state[0]["acc"].values())
        assert 0 < lost < 1 + max(before.state[0]["acc"].values())


def test_t33_post_averaging_is_the_mean_over_query_heads():
    chunks = random_chunks(rng(53), [9], H=1, G=3)
    q, k, v = chunks[0]
    step = simulate(Caote(Tova(), gqa_order="post"), chunks, 8, prompt_chunks=1)[0]
    probs, _ = attend(q, list(range(9)), k[0], v[0], list(range(9)), 0.5)
    expected = np.mean([caote.scores(list(probs[h, -1]), v[0]) for h in range(3)], axis=0)
    np.testing.assert_allclose([step.scores[0][p] for p in range(9)], expected, atol=1e-12)


def test_t33_snapkv_base_ranks_over_the_prefix_with_mass_in_the_window():
    chunks = random_chunks(rng(54), [20, 1])
    for over in ("all", "prefix"):
        steps = simulate(Caote(SnapKV(4, 3), normalize_over=over), chunks, 9, prompt_chunks=1)
        assert all({16, 17, 18, 19} <= set(own) for own in steps[0].kept)
        window = [steps[0].scores[0][p] for p in range(16, 20)]
        assert (window == [0.0] * 4) == (over == "prefix")
