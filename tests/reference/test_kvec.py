"""K-VEC in the reference (policies.md 3.18, T-35)."""

import math

import numpy as np
import pytest

from tests.reference import kvec, presets
from tests.reference.attention import attend, group_mean
from tests.reference.cases import kept, random_chunks, rng
from tests.reference.engine import simulate_layers
from tests.reference.kvec import KVec
from tests.reference.selection import keep
from tests.reference.snapkv import pool


def kvec_layers(seed: int, n_layers: int = 4, total: int = 40) -> list:
    return [random_chunks(rng(seed + index), [total, 1], H=4, G=2) for index in range(n_layers)]


def test_t35_without_both_coverages_it_is_snapkv_with_window_o():
    layers = kvec_layers(61)
    a = simulate_layers(KVec(O=5, O_prime=12, delta=0, lam=0.0), layers, 14, prompt_chunks=1)
    b = simulate_layers(presets.make("snapkv/kvec", window=5), layers, 14, prompt_chunks=1)
    assert [kept(x) for x in a] == [kept(x) for x in b]


def test_t35_counters_equal_a_recount():
    policy = KVec(O=5, O_prime=12)
    steps = simulate_layers(policy, kvec_layers(62), 14, prompt_chunks=1)
    recount: dict[int, int] = {}
    for layer in steps:
        for p in {p for own in layer[0].kept for p in own if p < 40 - 5}:
            recount[p] = recount.get(p, 0) + 1
    assert policy.cnt == recount
    assert max(recount.values()) <= len(steps)


def test_t35_layer_zero_has_no_coverage_and_cov_stays_below_one():
    assert kvec.coverage_of_layers([0, 0], 0) == [0, 0]
    for index in range(1, 40):
        assert kvec.coverage_of_layers([index], index)[0] == pytest.approx(index / (index + 1))


def test_t35_full_preservation_ranks_by_p_alone():
    generator = rng(63)
    P, cnt, focus = generator.random((3, 12)), list(generator.integers(0, 4, 12)), list(generator.random(12))
    chosen, final, _ = kvec.select_layer(P, P, focus, cnt, 4, slots=5, preserved=9, delta=0)
    assert chosen == [keep(range(12), list(row), 5) for row in P]
    assert np.isinf(final).sum() == 3 * 5


def test_t35_more_coverage_never_raises_a_score():
    generator = rng(64)
    P, focus = generator.random((3, 12)), list(generator.random(12))
    low = kvec.adjusted(P, focus, [1] * 12, 5, 1.0, 0)
    high = kvec.adjusted(P, focus, [1] * 6 + [4] * 6, 5, 1.0, 0)
    assert (high <= low).all()
    assert (high[:, 6:] < low[:, 6:]).all()


def test_t35_override_one_may_lose_a_preserved_token():
    """A-16: with lambda = 1 other scores can exceed 1, so an override of 1.0 does not keep what it preserves."""
    P, focus = np.array([[0.9, 0.8, 0.7]]), [0.0, 0.9, 0.8]
    for override, expected in (("inf", [0, 1]), ("one", [1, 2])):
        chosen, _, _ = kvec.select_layer(P, P, focus, [0, 0, 0], 9, 2, 1, delta=0, override=override)
        assert chosen == [expected]


def test_t35_widened_heads_by_both_criteria():
    P = np.array([[0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01], [0.4, 0.3, 0.2, 0.1]])
    for criterion in ("std", "entropy"):
        assert kvec.widened_heads(P, 2, criterion) == [0, 2]
    assert kvec.focus_of(P[0], "entropy") == pytest.approx(-math.log(4))


def test_t35_equation_13_takes_the_maximum_per_row_over_all_query_heads():
    probs = [rng(65).random((2, 6, 9)), rng(66).random((2, 6, 9))]
    stacked = np.concatenate(probs)
    np.testing.assert_allclose(kvec.head_max_mean(probs, 4), stacked[:, -4:].max(axis=0).mean(axis=0), atol=1e-15)


def test_t35_through_the_engine_equals_the_equations():
    layers = kvec_layers(67, n_layers=3)
    C, rows, more = 14, 5, 12
    steps = simulate_layers(KVec(O=rows, O_prime=more, delta=2, beta=0.25), layers, C, prompt_chunks=1)
    cnt = np.zeros(35)
    for index, (chunks, layer) in enumerate(zip(layers, steps, strict=True)):
        q, k, v = chunks[0]
        probs = [attend(q[2 * g : 2 * g + 2], list(range(40)), k[g], v[g], list(range(40)), 0.5)[0] for g in range(4)]
        P = np.array([pool(group_mean(p)[-rows:, :35].mean(axis=0), 7, "max") for p in probs])
        wide = np.array([pool(group_mean(p)[-more:, :35].mean(axis=0), 7, "max") for p in probs])
        for g in np.argsort(P.std(axis=1))[:2]:
            P[g] = wide[g]
        focus = np.concatenate(probs)[:, -rows:, :35].max(axis=0).mean(axis=0) * (1 - cnt / (index + 1))
        final = P + focus
        for g in range(4):
            final[g, keep(range(35), list(P[g]), 3)] = math.inf  # floor(0.25 * 14) = 3
            assert layer[0].kept[g] == [*keep(range(35), list(final[g]), C - rows), *range(35, 40)]
        for t in range(35):
            cnt[t] += any(t in own for own in layer[0].kept)


def test_t35_coverage_metric():
    assert kvec.coverage([[0, 1], [1, 2], [9, 11]], 10) == 0.4


def test_t35_nothing_happens_when_the_prompt_fits():
    policy = KVec(O=5, O_prime=12)
    steps = simulate_layers(policy, kvec_layers(68, total=14), 14, prompt_chunks=1)
    assert all(layer[0].kept == [list(range(14))] * 4 for layer in steps)
    assert policy.cnt == {}
