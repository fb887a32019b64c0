"""PyramidKV, Ada, HeadKV and GemFilter in the reference (policies.md 3.7 to 3.10, T-24 to T-27)."""

import json

import numpy as np
import pytest

from tests.reference import adakv, gemfilter, headkv, presets, pyramidkv
from tests.reference.adakv import AdaKV
from tests.reference.attention import attend, group_mean
from tests.reference.cases import kept, random_chunks, rng
from tests.reference.engine import simulate, simulate_layers
from tests.reference.headkv import HeadKV
from tests.reference.pyramidkv import PyramidKV
from tests.reference.selection import keep
from tests.reference.snapkv import mean_rows, pool

# T-24: PyramidKV.


@pytest.mark.parametrize("n_layers", [1, 2, 5, 28, 32])
@pytest.mark.parametrize(("C", "w"), [(10, 2), (64, 8), (128, 32), (40, 32)])
@pytest.mark.parametrize("extra", [1, 7, 100, 10_000])
def test_t24_exact_schedule_spends_exactly_the_budget(n_layers: int, C: int, w: int, extra: int):  # noqa: N803
    T = C + extra
    plan = pyramidkv.capacities(C, w, T, n_layers)
    assert sum(plan) == n_layers * (C - w)
    assert all(0 <= c <= T - w for c in plan)
    assert sum(pyramidkv.capacities(C, w, T, n_layers, schedule="public_code")) >= n_layers * (C - w)


def test_t24_short_prompt_clamps_the_first_layer():
    assert pyramidkv.ends(96, 10_000, 20) == (188, 4)
    assert pyramidkv.ends(96, 100, 20) == (100, 92)


def test_t24_layers_of_one_model_and_recomputation_per_prompt():
    policy = PyramidKV(window=2, kernel=3)
    short = [random_chunks(rng(s), [12]) for s in range(4)]
    long = [random_chunks(rng(s), [60]) for s in range(4)]
    for layers, T in ((short, 12), (long, 60), (short, 12)):
        sizes = [len(steps[0].kept[0]) for steps in simulate_layers(policy, layers, 10, prompt_chunks=1)]
        assert sizes == [min(c + 2, T) for c in pyramidkv.capacities(10, 2, T, 4)]
    assert sizes == [12, 11, 9, 8]


def test_t24_one_layer_is_snapkv():
    chunks = random_chunks(rng(17), [24, 1])
    a = simulate(PyramidKV(window=3, kernel=3), chunks, 9, prompt_chunks=1)
    b = simulate(presets.make("snapkv/kvec", window=3, kernel=3), chunks, 9, prompt_chunks=1)
    assert kept(a) == kept(b)


# T-25: Ada.


def test_t25_alpha_one_is_snapkv_per_head():
    chunks = random_chunks(rng(18), [24, 1])
    a = simulate(AdaKV(window=3, kernel=3, alpha=1.0), chunks, 9, prompt_chunks=1)
    b = simulate(presets.make("snapkv/kvec", window=3, kernel=3), chunks, 9, prompt_chunks=1)
    assert kept(a) == kept(b)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("normalize", [False, True])
def test_t25_totals_limits_and_nested_sets(alpha: float, normalize: bool):
    H, T, C, w = 4, 30, 11, 3
    q, k, v = chunk = random_chunks(rng(19), [T], H=H, G=2)[0]
    step = simulate(AdaKV(window=w, kernel=3, alpha=alpha, normalize=normalize), [chunk], C, prompt_chunks=1)[0]
    sizes = [len(own) for own in step.kept]
    assert sum(sizes) == H * C
    for g, own in enumerate(step.kept):
        probs, _ = attend(q[2 * g : 2 * g + 2], list(range(T)), k[g], v[g], list(range(T)), 0.5)
        ranking = pool(mean_rows(probs, w)[: T - w], 3, "max")
        assert w <= sizes[g] <= T
        assert own == [*keep(range(T - w), list(ranking), sizes[g] - w), *range(T - w, T)]


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.7])
def test_t25_sizes_follow_the_layers_largest_scores(alpha: float):
    H, T, C, w = 3, 30, 11, 3
    q, k, v = chunk = random_chunks(rng(80), [T], H=H, G=2)[0]
    rows = []
    for g in range(H):
        probs, _ = attend(q[2 * g : 2 * g + 2], list(range(T)), k[g], v[g], list(range(T)), 0.5)
        rows.append(group_mean(probs)[-w:, : T - w].mean(axis=0))
    floor = np.sort(np.concatenate(rows))[-H * (C - w)]
    step = simulate(AdaKV(w, 1, "none", alpha), [chunk], C, prompt_chunks=1)[0]
    for g in range(H):
        share = (1 - alpha) * (rows[g] >= floor).sum() + alpha * (C - w)
        assert abs(len(step.kept[g]) - w - share) < 1


def test_t25_identical_heads_share_equally():
    q, k, v = random_chunks(rng(20), [30], H=1, G=2)[0]
    same = (np.tile(q, (3, 1, 1)), np.tile(k, (3, 1, 1)), np.tile(v, (3, 1, 1)))
    step = simulate(AdaKV(window=3, kernel=7, alpha=0.0), [same], 11, prompt_chunks=1)[0]
    assert [len(own) for own in step.kept] == [11, 11, 11]
    # Total ties are the hardest case: position must be compared before the head.
    assert adakv.counts([np.zeros(9)] * 3, 4) == [4, 4, 4]


def test_t25_ada_pyramid_spends_the_layers_capacity():
    layers = [random_chunks(rng(s), [60], H=3) for s in range(4)]
    steps = simulate_layers(AdaKV(window=2, kernel=3, base="pyramid"), layers, 10, prompt_chunks=1)
    totals = [sum(len(own) for own in layer[0].kept) for layer in steps]
    assert totals == [3 * (c + 2) for c in pyramidkv.capacities(10, 2, 60, 4)]


def test_t25_largest_remainder_is_exact_where_rounding_is_not():
    generator = rng(21)
    for _ in range(200):
        H, base = int(generator.integers(1, 9)), int(generator.integers(1, 40))
        c = generator.multinomial(H * base, generator.dirichlet(np.ones(H))).tolist()
        assert sum(adakv.head_budgets(c, base, 0.2)) == H * base
        assert abs(sum(adakv.head_budgets(c, base, 0.2, "public_code")) - H * base) <= 2 * H


# T-26: HeadKV.


def test_t26_uniform_profile_is_snapkv_with_window_8():
    chunks = random_chunks(rng(22), [40, 1])
    profile = headkv.uniform_profile(1, 4)
    for beta in (1.005, 1.5, 10):
        a = simulate(HeadKV(profile, beta), chunks, 20, prompt_chunks=1)
        b = simulate(presets.make("snapkv/kvec", window=8), chunks, 20, prompt_chunks=1)
        assert kept(a) == kept(b)


def test_t26_profile_is_read_by_key_and_importance_sums_to_one(tmp_path):
    path = tmp_path / "profile.json"
    # Written in an order that is neither layer-major nor sorted: the key decides, not the order in the file.
    path.write_text(json.dumps({"1-0": [2.0], "0-1": [1.0, 3.0], "1-1": [4.0], "0-0": [0.0, 4.0, 2.0]}))
    table = headkv.importance(headkv.read_profile(str(path)), 2, 2)
    np.testing.assert_allclose(table, np.array([[2, 2], [2, 4]]) / 10)
    sharp = headkv.importance(headkv.read_profile(str(path)), 2, 2, temp=2.0)
    np.testing.assert_allclose(sharp, np.array([[4, 4], [4, 16]]) / 28)


@pytest.mark.parametrize("group", [1, 2, 4, 7])
def test_t26_group_reduction_keeps_totals(group: int):
    weights = rng(23).dirichlet(np.ones(3 * 2 * group)).reshape(3, 2 * group)
    per_query = headkv.query_head_capacities(weights, 96, 1.2)
    assert abs(per_query.sum() - 96 * weights.size) <= weights.size  # rounding, head by head
    per_kv = headkv.kv_head_capacities(per_query, group)
    assert abs(per_kv.sum() * group - per_query.sum()) <= group / 2
    for layer in range(3):
        for g in range(2):
            mean = per_query[layer, g * group : (g + 1) * group].mean()
            assert abs(per_kv[layer, g] - mean) < 1


def test_t26_capacity_beyond_the_prefix_is_lost():
    profile = {"0-0": [1.0], "0-1": [0.0]}
    step = simulate(HeadKV(profile, 1.005, window=2, kernel=3), random_chunks(rng(24), [20], G=1), 15, prompt_chunks=1)[
        0
    ]
    low = 13 - 13 // 1.005
    assert [len(own) for own in step.kept] == [20, int(low) + 2]


def test_headkv_profile_scores():
    tokens, needle = [9, 5, 6, 7, 9], range(1, 4)
    rows = [np.array([0.1, 0.6, 0.1, 0.1, 0.1]), np.array([0.7, 0.1, 0.1, 0.1, 0.0]), np.array([0, 0, 0.2, 0.5, 0.3])]
    # Step 1 points at the token it generates; step 2 points outside; step 3 points inside at another token.
    assert headkv.retrieval_score(rows, [5, 9, 6], tokens, needle) == pytest.approx(1 / 3)
    # Top-3 positions inside the needle, ties to the later position: {1, 3}, {2, 3}, {2, 3}.
    assert headkv.reasoning_score(rows, needle) == pytest.approx((0.7 + 0.2 + 0.7) / 3)


# T-27: GemFilter.


def test_t27_score_is_the_raw_dot_product_and_k_at_least_t_keeps_all():
    q, k, _ = random_chunks(rng(25), [11], H=2, G=3)[0]
    naive = [sum(float(q[h, -1] @ k[h // 3, j]) for h in range(6)) for j in range(11)]
    np.testing.assert_allclose(gemfilter.token_scores(q[:, -1], k), naive, atol=1e-12)
    for size in (11, 12):
        assert gemfilter.GemFilter(13).keep(q, k, size) == list(range(11))
    expected = keep(range(11), list(pool(np.array(naive), 5, "avg")), 4)
    assert gemfilter.GemFilter(13).keep(q, k, 4) == expected


def test_t27_edge_damping_weakens_positive_and_strengthens_negative_ends():
    assert gemfilter.select_tokens(np.ones(9), 7) == [1, 2, 3, 4, 5, 6, 7]
    assert {0, 1, 7, 8} <= set(gemfilter.select_tokens(-np.ones(9), 4))
