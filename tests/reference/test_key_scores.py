"""L2, HashEvict and KeyDiff in the reference (policies.md 3.13 to 3.15, T-30 to T-32)."""

import math
from itertools import combinations

import numpy as np
import pytest

from tests.reference import hashevict, keydiff, presets
from tests.reference.attention import attend
from tests.reference.cases import random_chunks, rng, split
from tests.reference.engine import simulate, simulate_layers
from tests.reference.hashevict import HashEvict
from tests.reference.keydiff import KeyDiff
from tests.reference.l2 import L2
from tests.reference.selection import keep

# T-30: L2.


def test_t30_smallest_norms_survive_and_rotation_does_not_matter():
    q, k, v = chunk = random_chunks(rng(33), [16], H=2, G=1)[0]
    step = simulate(L2(), [chunk], 6, prompt_chunks=1)[0]
    for g in range(2):
        norms = np.linalg.norm(k[g], axis=1)
        assert step.kept[g] == sorted(np.argsort(norms)[:6].tolist())
    turn, _ = np.linalg.qr(rng(34).standard_normal((4, 4)))
    assert simulate(L2(), [(q, k @ turn, v)], 6, prompt_chunks=1)[0].kept == step.kept


def test_t30_skipped_layers_stay_full():
    layers = [random_chunks(rng(s), [16, 1]) for s in range(4)]
    steps = simulate_layers(presets.make("l2/original"), layers, 6, prompt_chunks=1)
    assert [[len(s.kept[0]) for s in layer] for layer in steps] == [[16, 17], [16, 17], [6, 6], [6, 6]]


# T-31: HashEvict.


def test_t31_expected_distance_is_the_angle():
    x, y = np.array([1.0, 0.0, 0.0]), np.array([0.5, 0.8, -0.2])
    angle = math.acos(keydiff.cosine(x, y)) / math.pi
    total = 0
    for seed in range(300):
        R = hashevict.projection(16, 3, seed)
        total += hashevict.hamming(hashevict.code(R, x), hashevict.code(R, y))
    # 4800 independent bits: three standard errors are 0.021.
    assert total / (300 * 16) == pytest.approx(angle, abs=0.021)


def test_t31_zero_maps_to_one():
    assert hashevict.code(np.eye(3), np.array([0.0, -1.0, 2.0])) == (1, 0, 1)


def test_t31_group_rules():
    R, key = np.eye(4), (1, 1, 1, 1)
    queries = np.array([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, -3.0, 1.0]])
    assert [hashevict.group_distance(R, queries, key, rule) for rule in ("sum", "mean_query", "min", "majority")] == [
        4,
        1,
        2,
        1,
    ]
    for rule in ("sum", "mean_query", "min", "majority"):
        assert hashevict.group_distance(R, queries[:1], key, rule) == 2  # one query: all rules are the plain one


@pytest.mark.parametrize(("sink", "recent", "budget"), [(0, 0, 7), (2, 3, 9), (4, 10, 20), (4, 10, 9), (4, 10, 3)])
@pytest.mark.parametrize("hash_of", ["query", "key"])
def test_t31_eviction_steps_equal_the_sequential_prompt(sink: int, recent: int, budget: int, hash_of: str):
    T, G = 40, 2
    q, k, v = chunk = random_chunks(rng(35), [T], H=1, G=G)[0]
    R = hashevict.projection(8, 4, 1)
    policy = HashEvict(bits=8, hash_of=hash_of, sink=sink, recent=recent, R=R)
    step = simulate(policy, [chunk], budget, prompt_chunks=1)[0]
    assert step.peak <= budget
    codes = [hashevict.code(R, x) for x in k[0]]

    def distance(t: int, j: int) -> int:
        if hash_of == "key":
            return hashevict.hamming(codes[t], codes[j])
        return hashevict.group_distance(R, q[:, t], codes[j], "sum")

    evicted_at = hashevict.eviction_steps(distance, T, budget, sink, recent)
    assert step.kept == [[j for j in range(T) if evicted_at[j] == math.inf]]
    for t in range(T):
        alive = [j for j in range(t + 1) if t < evicted_at[j]]
        assert len(alive) <= budget
        _, out = attend(q[:, t : t + 1], [t], k[0, alive], v[0, alive], alive, 0.5)
        np.testing.assert_allclose(step.output[:, t : t + 1], out, atol=1e-12)
    if budget > sink + recent:
        assert all(evicted_at[j] == math.inf for j in range(sink))
        assert all(evicted_at[j] - j > recent for j in range(T))


def test_t31_sequential_does_not_depend_on_how_the_prompt_is_cut():
    whole = random_chunks(rng(36), [30])[0]
    policy = HashEvict(sink=2, recent=3)
    one = simulate(policy, [whole], 9, prompt_chunks=1)[-1]
    for sizes in ([9, 21], [7, 7, 7, 7, 2], [1] * 30):
        assert simulate(policy, split(whole, sizes), 9, prompt_chunks=len(sizes))[-1].kept == one.kept


def test_t31_released_code_truncates_the_prompt():
    step = simulate(presets.make("hashevict/released-code"), random_chunks(rng(37), [30]), 12, prompt_chunks=1)[0]
    assert step.kept == [[0, 1, 2, 3, *range(22, 30)]] * 2


def test_t31_task_budget_rounds_up_to_eight():
    assert hashevict.task_budget(0.5, 100, 64) == 72
    assert hashevict.task_budget(0.5, 96, 64) == 64


def test_eviction_steps_serve_other_key_only_policies():
    """Section 3.14: the same simulation holds for every pre-attention, key-only policy; here L2."""
    _, k, _ = chunk = random_chunks(rng(38), [30], H=1, G=1)[0]
    policy = presets.make("l2/hashevict", sink=2, recent=3)
    policy.sequential_prompt = True
    step = simulate(policy, [chunk], 9, prompt_chunks=1)[0]
    norms = np.linalg.norm(k[0], axis=1)
    evicted_at = hashevict.eviction_steps(lambda t, j: float(norms[j]), 30, 9, 2, 3)
    assert step.kept == [[j for j in range(30) if evicted_at[j] == math.inf]]


# T-32: KeyDiff.


@pytest.mark.parametrize("seed", range(5))
def test_t32_pairwise_ranks_like_the_normalised_mean(seed: int):
    keys = rng(seed).standard_normal((20, 5)) + 0.7
    anchor = keydiff.anchor_of(keys, "mean_normed")
    pair = -keydiff.scores(keys, "pairwise")
    np.testing.assert_allclose(pair, -keydiff.scores(keys) * 20 * keydiff.norm(anchor), rtol=1e-12)
    assert np.argsort(pair).tolist() == np.argsort(-keydiff.scores(keys)).tolist()


def test_t32_scale_and_rotation():
    generator = rng(40)
    keys = generator.standard_normal((15, 4)) + 0.5
    scale = generator.random((15, 1)) * 5 + 0.1
    turn, _ = np.linalg.qr(generator.standard_normal((4, 4)))
    np.testing.assert_allclose(keydiff.scores(keys * scale), keydiff.scores(keys), atol=1e-12)
    assert not np.allclose(keydiff.scores(keys * scale, "mean"), keydiff.scores(keys, "mean"))
    for anchor, metric in [("mean_normed", "cosine"), ("mean", "cosine"), ("mean_normed", "dot"), ("mean", "euclid")]:
        np.testing.assert_allclose(
            keydiff.scores(keys @ turn, anchor, metric), keydiff.scores(keys, anchor, metric), atol=1e-12
        )


@pytest.mark.parametrize("seed", range(4))
def test_t32_minimises_equation_10(seed: int):
    keys = rng(seed).standard_normal((8, 3)) + 0.4
    anchor = keydiff.anchor_of(keys, "mean_normed")
    cost = [float(keydiff.unit(k) @ anchor) for k in keys]
    for N in (1, 3, 6):
        best = min(combinations(range(8), N), key=lambda s: sum(cost[j] for j in s))
        assert keep(range(8), list(keydiff.scores(keys)), N) == list(best)


def test_t32_zero_keys_and_even_medians():
    keys = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert keydiff.scores(keys)[0] == 0
    assert np.isfinite(keydiff.scores(np.zeros((3, 2)))).all()
    np.testing.assert_allclose(keydiff.anchor_of(np.array([[1.0, 0.0], [0.0, 1.0]]), "median"), [0.5, 0.5])


def test_t32_recent_fraction_protects_but_stays_in_the_anchor():
    chunks = random_chunks(rng(41), [20, 1, 1])
    plain = simulate(KeyDiff(), chunks, 10, prompt_chunks=1)
    steps = simulate(KeyDiff(recent_frac=0.29), chunks, 10, prompt_chunks=1)  # floor(2.9) = 2
    assert plain[0].scores == steps[0].scores
    for g in range(2):
        score = [steps[0].scores[g][p] for p in range(20)]
        assert steps[0].kept[g] == keep(range(20), score, 10, others={18, 19})
    for i, step in enumerate(steps):
        assert all({18 + i, 19 + i} <= set(own) for own in step.kept)


def test_t32_euclid_degenerates_to_keeping_high_norms():
    """Section 3.15: a unit-scale anchor and raw keys make the distance almost the norm."""
    keys = rng(42).standard_normal((40, 4)) * 20
    by_norm = keep(range(40), list(np.linalg.norm(keys, axis=1)), 10)
    by_distance = keep(range(40), list(keydiff.scores(keys, metric="euclid")), 10)
    assert len(set(by_norm) & set(by_distance)) >= 9
