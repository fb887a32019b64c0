"""Every worked example of policies.md section 3, with the numbers as printed there unless a comment says so."""

import numpy as np
import pytest

from tests.reference import adakv, buzz, caote, hashevict, headkv, keydiff, kvec, pyramidkv, snapkv
from tests.reference.cases import scripted
from tests.reference.engine import simulate
from tests.reference.h2o import H2O
from tests.reference.hashevict import HashEvict
from tests.reference.selection import keep
from tests.reference.tova import Tova

# Section 3.4

H2O_ROWS = [
    np.array([[[1, 0], [0.6, 0.4]]]),
    np.array([[[0.5, 0.3, 0.2, 0], [0.2, 0.1, 0.3, 0.4]]]),
    np.array([[[0.4, 0.2, 0, 0, 0.4]]]),
]


def test_h2o_two_blocks_and_the_freeze():
    steps = simulate(H2O(), scripted(H2O_ROWS), 2, prompt_chunks=2, scaling=1.0)
    assert steps[0].state[0]["acc"] == pytest.approx({0: 1.6, 1: 0.4})
    assert steps[1].scores[0] == pytest.approx({0: 2.3, 1: 0.8, 2: 0.5, 3: 0.4})
    assert sum(steps[1].scores[0].values()) == pytest.approx(4)
    assert steps[1].kept == [[0, 1]]
    assert steps[2].scores[0] == pytest.approx({0: 2.7, 1: 1.0, 4: 0.4})
    assert steps[2].kept == [[0, 1]]
    assert steps[2].evicted == [[4]]


@pytest.mark.parametrize("recent", [1, 0.5])
def test_h2o_half_heavy_half_recent(recent: float):
    steps = simulate(H2O(recent=recent), scripted(H2O_ROWS[:2]), 2, prompt_chunks=2, scaling=1.0)
    assert steps[1].kept == [[0, 3]]


# Section 3.5


def test_tova_group_mean():
    rows = np.array([[[0.7, 0.1, 0.1, 0.1]], [[0.1, 0.2, 0.3, 0.4]]])
    before = np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 1]]] * 2)
    # The three prompt tokens already exceed N = 2; the example starts from all four.
    policy = Tova(prefill_evict="none")
    step = simulate(policy, scripted([before, rows]), 2, prompt_chunks=1, scaling=1.0)[1]
    assert step.scores[0] == pytest.approx({0: 0.40, 1: 0.15, 2: 0.20, 3: 0.25})
    assert step.kept == [[0, 3]]


# Section 3.6

POOLED = np.array([0.05, 0.30, 0.02, 0.01, 0.20, 0.02, 0.40])


@pytest.mark.parametrize(
    ("kind", "expected", "top"),
    [
        ("avg", (0.1167, 0.1233, 0.1100, 0.0767, 0.0767, 0.2067, 0.1400), [1, 5, 6]),
        ("avg_nopad", (0.1750, 0.1233, 0.1100, 0.0767, 0.0767, 0.2067, 0.2100), [0, 5, 6]),
        ("max", (0.3, 0.3, 0.3, 0.2, 0.2, 0.4, 0.4), [2, 5, 6]),
    ],
)
def test_snapkv_three_pooling_conventions(kind: str, expected: tuple[float, ...], top: list[int]):
    pooled = snapkv.pool(POOLED, 3, kind)
    assert pooled == pytest.approx(expected, abs=5e-5)
    assert keep(range(7), list(pooled), 3) == top


# Section 3.7


@pytest.mark.parametrize(
    ("C", "w", "first", "last", "total", "target"),
    [
        (128, 8, 234, 17, 4016, 3840),
        (128, 16, 219, 33, 4032, 3584),
        (128, 32, 188, 33, 3536, 3072),
        (256, 32, 437, 34, 7536, 7168),
        (512, 32, 936, 37, 15568, 15360),
        (1024, 32, 1935, 75, 32160, 31744),
    ],
)
def test_pyramid_table(C: int, w: int, first: int, last: int, total: int, target: int):  # noqa: N803
    public = pyramidkv.capacities(C, w, 10**6, 32, 20, "public_code")
    assert (public[0], public[-1], sum(public)) == (first, last, total)
    exact = pyramidkv.capacities(C, w, 10**6, 32, 20, "exact")
    assert sum(exact) == target == 32 * (C - w)
    assert exact == sorted(exact, reverse=True)


def test_pyramid_small_example():
    assert pyramidkv.capacities(10, 2, 1000, 4, 20, "public_code") == [16, 11, 6, 1]
    assert pyramidkv.capacities(10, 2, 1000, 4, 20, "exact") == [16, 11, 5, 0]
    assert pyramidkv.capacities(10, 2, 1000, 4, 1, "exact") == [8, 8, 8, 8]


# Section 3.8


def test_ada_allocation():
    scores = [np.array([0.40, 0.30, 0.25, 0.01]), np.array([0.20, 0.10, 0.05, 0.02])]
    assert adakv.counts(scores, 2) == [3, 1]
    assert adakv.head_budgets([3, 1], 2, 0.2, "public_code") == [2, 1]
    assert adakv.head_budgets([3, 1], 2, 0.2) == [3, 1]


# Section 3.9


def test_headkv_capacities():
    weights = np.array([[0.7, 0.1], [0.1, 0.1]])
    assert headkv.shared_pool(120, 1.2, 4) == (400, 20)
    capacities = headkv.query_head_capacities(weights, 120, 1.2)
    assert capacities.tolist() == [[300, 60], [60, 60]]
    assert capacities.sum() == 4 * 120


def test_headkv_pool_uses_float_floor_division():
    assert headkv.shared_pool(96, 1.005, 1) == (95.0, 1.0)


# Section 3.14

R = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
KEYS = np.array([[2.0, 1.0], [-1.0, -0.2], [0.3, -1.0], [-0.5, 1.0]])
QUERY = np.array([1.0, 0.5])
NEW_KEY = np.array([-1.0, 0.4])


def bits(text: str) -> tuple[int, ...]:
    return tuple(int(c) for c in text)


def test_hashevict_codes_and_distances():
    assert hashevict.code(R, QUERY) == bits("1111")
    codes = [hashevict.code(R, k) for k in KEYS]
    assert codes == [bits(t) for t in ("1111", "0000", "1001", "0110")]
    assert [hashevict.hamming(hashevict.code(R, QUERY), c) for c in codes] == [0, 4, 2, 2]
    assert [round(keydiff.cosine(QUERY, k), 2) for k in KEYS] == [1.00, -0.96, -0.17, 0.00]
    assert hashevict.code(R, NEW_KEY) == bits("0100")
    assert [hashevict.hamming(bits("0100"), c) for c in codes] == [3, 1, 3, 1]


@pytest.mark.parametrize(("hash_of", "victim"), [("query", 1), ("key", 0)])
def test_hashevict_query_and_key_variants_evict_opposite_slots(hash_of: str, victim: int):
    prompt = (np.zeros((1, 4, 2)), KEYS[None], np.zeros((1, 4, 2)))
    token = (QUERY[None, None], NEW_KEY[None, None], np.zeros((1, 1, 2)))
    policy = HashEvict(bits=4, hash_of=hash_of, sink=0, recent=0, R=R)
    steps = simulate(policy, [prompt, token], 4, prompt_chunks=1)
    assert steps[1].evicted == [[victim]]
    assert steps[1].kept == [[j for j in range(5) if j != victim]]


# Section 3.15


def test_keydiff_scores():
    keys = np.array([[1.0, 0.0], [0.9, 0.1], [1.0, 0.2], [-0.2, 1.0]])
    assert keydiff.anchor_of(keys, "mean_normed") == pytest.approx([0.6946, 0.3218], abs=5e-5)
    assert -keydiff.scores(keys) == pytest.approx([0.9074, 0.9482, 0.9722, 0.2342], abs=5e-5)
    # Printed 2.904 for the second key; 2.90349 rounds to 2.903.
    assert -keydiff.scores(keys, "pairwise") == pytest.approx([2.778, 2.9035, 2.977, 0.717], abs=5e-4)
    for anchor in ("mean_normed", "pairwise"):
        assert keep(range(4), list(keydiff.scores(keys, anchor)), 2) == [0, 3]


def test_keydiff_raw_and_normalised_anchor_differ():
    keys = np.array([[4.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-0.1, 0.995]])
    assert -keydiff.scores(keys) == pytest.approx([0.473, 0.881, 0.989, 0.829], abs=5e-4)
    # Printed 0.850 for the first key; 0.84948 rounds to 0.849.
    assert -keydiff.scores(keys, "mean") == pytest.approx([0.849, 0.528, 0.932, 0.440], abs=5e-4)
    assert keep(range(4), list(keydiff.scores(keys)), 2) == [0, 3]
    assert keep(range(4), list(keydiff.scores(keys, "mean")), 2) == [1, 3]


# Section 3.16


def test_caote_scores():
    h, v = [0.5, 0.3, 0.2], np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert caote.scores(h, v) == pytest.approx([0.5831, 0.3687, 0.1458], abs=5e-5)
    assert caote.scores(h, v, fast=True) == pytest.approx([0.7454, 0.3194, 0.1179], abs=5e-5)
    before = 0.5 * v[0] + 0.3 * v[1] + 0.2 * v[2]
    after = (0.5 * v[0] + 0.3 * v[1]) / 0.8
    assert before == pytest.approx([0.7, 0.5])
    assert np.linalg.norm(before - after) == pytest.approx(0.1458, abs=5e-5)


def test_caote_order_flip():
    h, v = [0.45, 0.25, 0.30], np.array([[1.0, 0.0], [-2.0, 2.0], [0.9, 0.1]])
    assert keep(range(3), h, 2) == [0, 2]
    assert sum(x * y for x, y in zip(h, v, strict=True)) == pytest.approx([0.22, 0.53])
    assert caote.scores(h, v) == pytest.approx([0.772, 0.888, 0.345], abs=5e-4)
    assert keep(range(3), list(caote.scores(h, v)), 2) == [0, 1]


# Section 3.17

TRACE = [
    (9, 0, 3, [0, 1, 4, 7, 8, 9]),
    (13, 2, 2, [0, 1, 7, 8, 11, 12, 13]),
    (16, 2, 1, [0, 1, 8, 14, 15, 16]),
    (20, 2, 2, [0, 1, 14, 17, 18, 19, 20]),
    (23, 2, 1, [0, 1, 17, 21, 22, 23]),
]


def test_buzz_trace_table():
    score = {p: 7 * p % 10 for p in range(25)}
    assert buzz.trace(1, 2, 3, 6, prefill=3, last=24, score=score) == TRACE


def test_buzz_trace_through_the_engine():
    """Attention proportional to 7p mod 10 over the visible tokens; scored by the current row alone."""
    weight = np.array([7 * p % 10 + 0.5 for p in range(24)])
    rows = [np.zeros((1, 3, 3)), *(np.zeros((1, 1, t + 1)) for t in range(3, 24))]
    for i in range(3):
        rows[0][0, i, : i + 1] = weight[: i + 1] / weight[: i + 1].sum()
    for t in range(3, 24):
        rows[t - 2][0, 0] = weight[: t + 1] / weight[: t + 1].sum()
    policy = buzz.Buzz(sink=1, window=2, stride=3, threshold=6, accumulate=False)
    steps = simulate(policy, scripted(rows), None, prompt_chunks=1, scaling=1.0)
    found = [(t, step.kept[0]) for t, step in enumerate(steps, start=2) if step.evicted[0]]
    assert found == [(token, cache) for token, _, _, cache in TRACE]


@pytest.mark.parametrize(
    ("k", "w", "s", "threshold", "post", "mean", "peak"),
    [
        (4, 160, 5, 400, 257, 410.5, 564),
        (4, 160, 5, 693, 325, 591.0, 857),
        (4, 56, 5, 240, 116, 208.0, 300),
        (4, 36, 5, 160, 78, 139.0, 200),
    ],
)
def test_buzz_length_table(k: int, w: int, s: int, threshold: int, post: int, mean: float, peak: int):
    assert buzz.lengths(k, w, s, threshold) == (post, mean, peak)


def test_buzz_recursion_and_the_papers_equation_10():
    assert buzz.recursion(400, 5, 60)[-1] == 93
    printed, floored = [400 // 5], [400 // 5]
    for _ in range(60):
        printed.append(2 * printed[-1] // 3 + (400 - printed[-1]) // 5)
        floored.append(floored[-1] // 3 + (400 - floored[-1]) // 5)
    assert printed[-1] == 148
    assert floored[-1] == 91


def test_buzz_theorem_ratios():
    expected = [1, 2.5, 3, 4.33, 5, 6.25, 7, 8.2]
    assert [float(buzz.best_ratio(s)) for s in range(2, 10)] == pytest.approx(expected, abs=5e-3)


def test_buzz_sizes_for_a_peak():
    assert buzz.sizes(200, "peak", 4, 5) == (36, 160)
    # The length table of section 3.17 pairs a peak of 300 with (56, 240); the formula gives its neighbour.
    assert buzz.sizes(300, "peak", 4, 5) == (55, 241)


# Section 3.18


def test_kvec_toy():
    P = np.array([[0.50, 0.21, 0.19, 0.05, 0.05], [0.20, 0.22, 0.19, 0.20, 0.19], [0.60, 0.05, 0.05, 0.05, 0.25]])
    cnt, focus = [2, 2, 0, 0, 1], [0.60, 0.30, 0.20, 0.15, 0.40]
    assert [kvec.focus_of(row, "std") for row in P] == pytest.approx([0.164, 0.011, 0.214], abs=5e-4)
    assert kvec.widened_heads(P, 1) == [1]
    cov = kvec.coverage_of_layers(cnt, 2)
    assert cov == pytest.approx([0.667, 0.667, 0, 0, 0.333], abs=5e-4)
    gain = [i * (1 - c) for i, c in zip(focus, cov, strict=True)]
    assert gain == pytest.approx([0.200, 0.100, 0.200, 0.150, 0.267], abs=5e-4)
    kept, final, wide = kvec.select_layer(P, P, focus, cnt, 2, slots=2, preserved=1, delta=1)
    assert wide == [1]
    assert final[0, 0] == np.inf
    assert final[0, 1:] == pytest.approx([0.31, 0.39, 0.20, 0.317], abs=5e-4)
    assert kept[0] == [0, 2]
    assert keep(range(5), list(P[0]), 2) == [0, 1]
