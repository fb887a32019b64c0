"""Invariants of single policies: policies.md sections 3 and 7 (T-20 ... T-35)."""

import json
import math
from itertools import combinations, pairwise

import numpy as np
import pytest

from . import adakv, buzz, caote, fastgen, gemfilter, hashevict, headkv, keydiff, kvec, presets, pyramidkv
from .adakv import AdaKV
from .attention import attend, group_mean
from .buzz import Buzz
from .caote import Caote
from .cases import FASTGEN, TOKENS, random_chunks, scripted, split
from .engine import Step, simulate, simulate_layers
from .fastgen import FastGen
from .h2o import H2O
from .hashevict import HashEvict
from .headkv import HeadKV
from .keydiff import KeyDiff
from .kvec import KVec
from .l2 import L2
from .pyramidkv import PyramidKV
from .scissorhands import Scissorhands, bits
from .selection import keep, largest_remainder
from .snapkv import SnapKV, mean_rows, pool
from .tova import Tova
from .window_sink import Dense, Sink, Window

ONCE = {"prefill_evict": "once_after_prompt", "decode_evict": "never"}


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def kept(steps: list[Step]) -> list[list[list[int]]]:
    return [step.kept for step in steps]


# T-20: window and sink.


def test_t20_exact_sets():
    chunks = random_chunks(rng(0), [8, 8, 5, 1, 1])
    ends = np.cumsum([8, 8, 5, 1, 1])
    for end, step in zip(ends, simulate(Window(), chunks, 6, prompt_chunks=3), strict=True):
        assert step.kept == [list(range(end - 6, end))] * 2
    for end, step in zip(ends, simulate(Sink(4), chunks, 6, prompt_chunks=3), strict=True):
        t = end - 1
        assert step.kept == [[0, 1, 2, 3, *range(t - 6 + 5, t + 1)]] * 2


def test_t20_no_sinks_is_the_window():
    chunks = random_chunks(rng(1), [8, 8, 1, 1])
    assert kept(simulate(Sink(0), chunks, 6, prompt_chunks=2)) == kept(simulate(Window(), chunks, 6, prompt_chunks=2))


def test_t20_a_budget_below_the_sinks_keeps_the_first_ones():
    chunks = random_chunks(rng(1), [8, 1, 1])
    assert kept(simulate(Sink(4), chunks, 3, prompt_chunks=1)) == [[[0, 1, 2]] * 2] * 3


# T-21: H2O.


def test_t21_accumulators_grow_by_m_and_do_not_depend_on_the_block_size():
    whole = random_chunks(rng(2), [20], G=3)[0]
    one = simulate(H2O(), [whole], None, prompt_chunks=1)[-1].state
    for sizes in ([20], [5, 5, 5, 5], [7, 7, 6], [1] * 20):
        steps = simulate(H2O(), split(whole, sizes), None, prompt_chunks=len(sizes))
        read = 0
        for m, step in zip(sizes, steps, strict=True):
            read += m
            for g in range(2):
                assert sum(step.state[g]["acc"].values()) == pytest.approx(read)
        for g in range(2):
            assert steps[-1].state[g]["acc"] == pytest.approx(one[g]["acc"])


def test_t21_one_shot_accumulator_is_the_full_column_sum():
    q, k, v = chunk = random_chunks(rng(3), [12], H=1, G=2)[0]
    probs, _ = attend(q, list(range(12)), k[0], v[0], list(range(12)), 0.5)
    acc = simulate(H2O(), [chunk], None, prompt_chunks=1)[0].state[0]["acc"]
    np.testing.assert_allclose([acc[p] for p in range(12)], group_mean(probs).sum(axis=0), atol=1e-12)


def test_t21_sum_and_mean_over_the_group_rank_alike():
    chunks = random_chunks(rng(4), [10, 10, 1, 1, 1], G=4)
    assert kept(simulate(H2O(), chunks, 7, prompt_chunks=2)) == kept(
        simulate(H2O(gqa="sum"), chunks, 7, prompt_chunks=2)
    )


def test_t21_an_evicted_token_loses_its_accumulator():
    steps = simulate(H2O(), random_chunks(rng(5), [10, 1, 1, 1]), 6, prompt_chunks=1)
    for step in steps:
        for g in range(2):
            assert sorted(step.state[g]["acc"]) == step.kept[g]


def test_h2o_coldcompress_prompt_step_and_observations():
    """Section 3.4: first 4 and last 16 forced in; the prompt is one observation, sum / (T - pos)."""
    T, N = 40, 24
    q, k, v = prompt = random_chunks(rng(6), [T], H=1, G=2)[0]
    decode = random_chunks(rng(7), [1, 1, 1], H=1, G=2)
    steps = simulate(presets.make("h2o/coldcompress"), [prompt, *decode], N, prompt_chunks=1)
    probs, _ = attend(q, list(range(T)), k[0], v[0], list(range(T)), 0.5)
    mean = group_mean(probs)
    pooled = pool(mean[-16:].mean(axis=0), 5, "avg_nopad")
    middle = sorted(range(4, T - 16), key=lambda j: (pooled[j], j), reverse=True)[: N - 20]
    assert steps[0].kept == [sorted([*range(4), *middle, *range(T - 16, T)])]
    for p in steps[0].kept[0]:
        assert steps[0].state[0]["acc"][p] == pytest.approx(mean[:, p].sum() / (T - p))
        assert steps[0].state[0]["count"][p] == 1
    for i, step in enumerate(steps[1:], start=1):
        assert step.peak == N  # EAA
        assert step.state[0]["count"][T + i - 1] == 1
        assert set(range(4)) | set(range(T + i - 11, T + i)) <= set(step.kept[0])
        assert all(step.state[0]["count"][p] == i + 1 for p in step.kept[0] if p < T)


def test_h2o_mean_in_one_shot_ranks_by_attention_per_query():
    chunk = random_chunks(rng(8), [14], H=1, G=1)[0]
    acc = simulate(H2O(), [chunk], None, prompt_chunks=1)[0].state[0]["acc"]
    step = simulate(H2O(accumulate="mean"), [chunk], 6, prompt_chunks=1)[0]
    assert step.kept[0] == keep(range(14), [acc[p] / (14 - p) for p in range(14)], 6)


def test_h2o_mean_in_blocks_divides_by_the_queries_that_saw_the_token():
    """A-20 short last block included; once the prompt is over it counts as one observation."""
    whole = random_chunks(rng(83), [14], H=1, G=1)[0]
    sums = simulate(H2O(), split(whole, [5, 5, 4]), None, prompt_chunks=3)
    steps = simulate(H2O(accumulate="mean"), split(whole, [5, 5, 4]), 14, prompt_chunks=3)
    for read, total, step in zip((5, 10), sums, steps, strict=False):
        assert step.state[0]["acc"] == total.state[0]["acc"]
        assert step.state[0]["seen"] == {p: read - p for p in range(read)}
        assert set(step.state[0]["count"].values()) == {0}
    assert steps[2].state[0]["acc"] == pytest.approx({p: a / (14 - p) for p, a in sums[2].state[0]["acc"].items()})
    assert set(steps[2].state[0]["count"].values()) == {1}
    small = simulate(H2O(accumulate="mean"), split(whole, [5, 5, 4]), 4, prompt_chunks=3)
    assert small[0].scores[0] == pytest.approx({p: a / (5 - p) for p, a in sums[0].state[0]["acc"].items()})


# T-22: TOVA.


def test_t22_scores_sum_to_one_and_layer_mode_shares_one_set():
    chunks = random_chunks(rng(9), [12, 12, 1, 1, 1], H=3, G=2)
    for heads in ("kv", "layer"):
        for step in simulate(Tova(heads), chunks, 7, prompt_chunks=2):
            for g in range(3):
                assert sum(step.scores[g].values()) == pytest.approx(1)
            if heads == "layer":
                assert step.kept[0] == step.kept[1] == step.kept[2]


def test_t22_the_current_token_can_be_evicted():
    rows = [np.array([[[1, 0], [0.5, 0.5]]]), np.array([[[0.6, 0.3, 0.1]]])]
    steps = simulate(Tova(), scripted(rows), 2, prompt_chunks=1, scaling=1.0)
    assert steps[1].evicted == [[2]]


# T-23: SnapKV.


def test_t23_capacity_around_the_prompt_length():
    chunks = random_chunks(rng(10), [12, 1])
    policy = presets.make("snapkv/kvec", window=3, kernel=3)
    for C in (12, 13):
        steps = simulate(policy, chunks, C, prompt_chunks=1)
        assert steps[0].kept == [list(range(12))] * 2
        assert steps[0].scores == [None, None]  # T <= C: no-op, nothing is even scored
    step = simulate(policy, chunks, 11, prompt_chunks=1)[0]
    assert all(len(own) == 11 and {9, 10, 11} <= set(own) for own in step.kept)


def test_t23_prompt_shorter_than_the_window():
    step = simulate(presets.make("snapkv/kvec", window=16), random_chunks(rng(11), [9]), 5, prompt_chunks=1)[0]
    assert step.kept == [[4, 5, 6, 7, 8]] * 2  # all protected: the most recent ones stay (1.3-2)


def test_t23_original_pools_the_prefix_only():
    q, k, v = chunk = random_chunks(rng(12), [20], H=1, G=2)[0]
    probs, _ = attend(q, list(range(20)), k[0], v[0], list(range(20)), 0.5)
    sums = group_mean(probs)[-4:].sum(axis=0)
    step = simulate(SnapKV(window=4, kernel=5, pool="max", **ONCE), [chunk], 9, prompt_chunks=1)[0]
    expected = keep(range(16), list(pool(sums[:16], 5, "max")), 5)
    assert step.kept[0] == [*expected, 16, 17, 18, 19]


def test_t23_average_pooling_commutes_with_the_group_mean_and_max_does_not():
    rows = rng(13).random((4, 30))
    for kind in ("avg", "avg_nopad"):
        np.testing.assert_allclose(
            pool(rows.mean(axis=0), 7, kind), np.mean([pool(r, 7, kind) for r in rows], axis=0), atol=1e-14
        )
    assert not np.allclose(pool(rows.mean(axis=0), 7, "max"), np.mean([pool(r, 7, "max") for r in rows], axis=0))


def test_t23_carried_window_equals_the_chunk_window_while_the_chunk_covers_it():
    chunks = random_chunks(rng(14), [10, 10, 10])
    a = simulate(SnapKV(window=4, kernel=3), chunks, 9, prompt_chunks=3)
    b = simulate(SnapKV(window=4, kernel=3, window_source="carry"), chunks, 9, prompt_chunks=3)
    assert kept(a) == kept(b)


def test_t23_carried_window_recomputes_old_queries_over_the_present_slots():
    chunks = random_chunks(rng(81), [10, 1, 1], H=1, G=2)
    policy = SnapKV(window=3, kernel=3, pool="none", window_source="carry")
    steps = simulate(policy, chunks, 8, prompt_chunks=1)
    pos = steps[2].seen[0]
    q, k, v = (np.concatenate(parts, axis=1) for parts in zip(*chunks, strict=True))
    probs, _ = attend(q[:, [9, 10, 11]], [9, 10, 11], k[0, pos], v[0, pos], pos, 0.5)
    expected = group_mean(probs).sum(axis=0)
    assert sum(expected) == pytest.approx(3)
    np.testing.assert_allclose([steps[2].scores[0][p] for p in pos], expected, atol=1e-12)


def test_t23_decode_is_tova_plus_pooling_plus_protection():
    """A-06: in decode the window is the single current row."""
    chunks = random_chunks(rng(15), [10, 1, 1, 1])
    steps = simulate(SnapKV(window=3, kernel=3), chunks, 8, prompt_chunks=1)
    tova = simulate(Tova(prefill_evict="none", decode_evict="never"), chunks, None, prompt_chunks=1)
    assert kept(tova)[-1] == [list(range(13))] * 2
    for step in steps[1:]:
        for g in range(2):
            assert sum(step.scores[g].values()) <= 1 + 1e-12  # one row, damped at the edges by the zero padding


def test_t02_block_and_one_shot_agree_once_the_pooled_range_is_fixed():
    chunks = random_chunks(rng(16), [24])
    for span in ("all", "prefix"):
        a = simulate(SnapKV(3, 5, pool_over=span), chunks, 9, prompt_chunks=1)
        b = simulate(SnapKV(3, 5, pool_over=span, prefill_evict="once_after_prompt"), chunks, 9, prompt_chunks=1)
        assert kept(a) == kept(b)


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


# T-28: Scissorhands.


def test_t28_bits_at_the_uniform_level_count():
    assert bits(np.array([0.25, 0.2499, 0.5]), 4) == [True, False, True]


def scissor_rows(total: int, rows: list[list[float]]) -> list[np.ndarray]:
    """A prompt of `total` tokens with uniform attention, then the given decode rows."""
    prompt = np.array([[[1 / (i + 1) if j <= i else 0.0 for j in range(total)] for i in range(total)]])
    return [prompt, *(np.array([[row]]) for row in rows)]


def test_t28_ring_wraps_and_the_score_is_the_mean_of_the_last_history_bits():
    rows = [[0.3, 0.7 - 0.01 * t, *[0.01] * t] for t in range(1, 6)]
    policy = Scissorhands(history=3, sink=0, recent=0, prompt_step="none", prefill_evict="none", decode_evict="never")
    steps = simulate(policy, scripted(scissor_rows(2, rows)), None, prompt_chunks=1, scaling=1.0)
    for i, step in enumerate(steps):
        state = step.state[0]
        assert set(state["ring"][0]) == set(range(min(i + 1, 3)))
        assert state["count"][0] == i + 1
    # Slot 0 holds 0.3 of every row. Prompt: uniform level met. Decode: 0.3 < 1/3, then >= 1/4, 1/5, ...
    level = [[s.state[0]["ring"][0][j] for j in sorted(s.state[0]["ring"][0])] for s in steps]
    assert level[0] == [True]
    assert level[2] == [True, False, True]
    assert level[3] == [True, False, True]  # index 3 mod 3 = 0 overwrote the prompt's bit
    assert level[4] == [True, True, True]


def test_t28_history_one_evicts_the_oldest_token_below_uniform():
    chunks = random_chunks(rng(26), [10] + [1] * 8, H=2, G=2)
    policy = Scissorhands(history=1, sink=0, recent=0, prompt_step="none")
    steps = simulate(policy, chunks, 10, prompt_chunks=1)
    for before, step in pairwise(steps):
        for g in range(2):
            low = [p for p in before.kept[g] if not any(before.state[g]["ring"][p].values())]
            assert step.evicted[g] == [min(low)]


def test_t28_protected_band_and_one_eviction_per_step():
    chunks = random_chunks(rng(27), [40] + [1] * 12)
    steps = simulate(presets.make("scissorhands/hashevict"), chunks, 24, prompt_chunks=1)
    for i, step in enumerate(steps):
        t = 39 + i
        assert step.peak == (40 if i == 0 else 24)
        for g in range(2):
            assert len(step.kept[g]) == 24
            assert len(step.evicted[g]) == (16 if i == 0 else 1)
            assert set(range(4)) | set(range(t - 10, t + 1)) <= set(step.kept[g])


def test_t28_a_new_occupant_starts_empty():
    chunks = random_chunks(rng(28), [12] + [1] * 5)
    steps = simulate(presets.make("scissorhands/hashevict", sink=1, recent=2), chunks, 8, prompt_chunks=1)
    for i, step in enumerate(steps[1:], start=1):
        for g in range(2):
            assert step.state[g]["count"][11 + i] == 1
            assert step.state[g]["ring"][11 + i].keys() == {i}


# T-29: FastGen.


def causal_attention(seed: int, total: int) -> np.ndarray:
    A = np.tril(rng(seed).random((total, total)) ** 4)
    return A / A.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("window", [0, 1, 4, 20])
def test_t29_mass_identity(window: int):
    A, static = causal_attention(29, 17), {0, 1, 5, 11}
    direct = fastgen.recovered_mass(A, static, window)
    via_sums = fastgen.recovered_mass_from_sums(A.sum(axis=0), fastgen.band_sums(A, window), static, 17)
    masked = np.mean([sum(A[i, j] for j in range(17) if j in static or 0 <= i - j < window) for i in range(17)])
    assert direct == pytest.approx(via_sums)
    assert direct == pytest.approx(masked)


def fast(**overrides) -> FastGen:
    return FastGen(**{**FASTGEN, **overrides})


def test_t29_choice_is_monotone_in_recovery():
    chunk = random_chunks(rng(30), [30], H=4)[0]
    last = [1, 1, 1, 1]
    for recovery in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99, 1.1):
        policy = fast(recovery=recovery)
        simulate(policy, [chunk], None, prompt_chunks=1)
        assert all(a <= b for a, b in zip(last, policy.chosen, strict=True))
        last = policy.chosen
        if recovery == 0.0:
            assert policy.chosen == [1] * 4
    assert policy.chosen == [5] * 4


def test_t29_full_heads_equal_dense():
    chunks = random_chunks(rng(31), [20, 1, 1])
    a = simulate(fast(recovery=1.1), chunks, None, prompt_chunks=1)
    b = simulate(Dense(), chunks, None, prompt_chunks=1)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x.output, y.output)


def forced(number: int, **overrides) -> FastGen:
    """A FastGen whose heads all use one hybrid policy."""

    class Forced(FastGen):
        def masks(self, columns, length):
            masks = super().masks(columns, length)
            return [(set(), 0)] * (number - 1) + masks[number - 1 :]

    return Forced(**{**FASTGEN, "recovery": 1e-9, "sink": 2, **overrides})


T29_PROMPT = 30


def t29_run(number: int, decode: int = 20, **overrides) -> tuple[FastGen, list[Step]]:
    policy = forced(number, **overrides)
    chunks = random_chunks(rng(32), [T29_PROMPT] + [1] * decode)
    steps = simulate(policy, chunks, None, prompt_chunks=1)
    assert policy.chosen == [number] * 2
    return policy, steps


SPECIAL = {p for p in range(T29_PROMPT) if TOKENS[p] == 0}
PUNCT = [p for p, token in enumerate(TOKENS) if token in {1, 2}]


def test_t29_special_heads_keep_special_tokens_only():
    _, steps = t29_run(1)
    static = SPECIAL | {0, 1}
    budget = 2 + len(SPECIAL)
    assert steps[0].kept == [sorted(static)] * 2
    # Places are left only because a token may count both as global and as special.
    free = budget - len(static)
    assert steps[-1].kept == [sorted(static | set(range(T29_PROMPT, T29_PROMPT + free)))] * 2


def test_t29_punctuation_grows_with_the_text():
    _, steps = t29_run(2)
    punct = {p for p in PUNCT if p < T29_PROMPT}
    static = SPECIAL | punct | {0, 1}
    free = 2 + len(SPECIAL) + len(punct) - len(static)
    assert steps[0].kept == [sorted(static)] * 2
    for i, step in enumerate(steps):
        t = T29_PROMPT - 1 + i
        new = list(range(T29_PROMPT, t + 1))
        ordinary = [p for p in new if p not in PUNCT][:free]
        assert step.kept == [sorted(static | set(ordinary) | (set(new) & set(PUNCT)))] * 2
    assert any(p >= T29_PROMPT for p in steps[-1].kept[0] if p in PUNCT)


def test_t29_self_visibility():
    """A-19: a token that is not inserted is invisible to its own step, unless self_visible."""
    for visible in (False, True):
        _, steps = t29_run(1, decode=8, self_visible=visible)
        for i, step in enumerate(steps[1:]):
            t = T29_PROMPT + i
            for g in range(2):
                assert (t in step.seen[g]) == (visible or t in step.kept[g])
                assert set(step.seen[g]) - {t} <= set(step.kept[g])


@pytest.mark.parametrize("number", [3, 4])
def test_t29_heavy_heads_hold_their_budget(number: int):
    policy, steps = t29_run(number, max_len=40)
    shares = {3: 12, 4: 12 + 12}[number]
    for i, step in enumerate(steps[1:]):
        t = T29_PROMPT + i
        budget = 2 + len(SPECIAL) + len([p for p in PUNCT if p <= t]) + shares
        for g in range(2):
            assert policy.head_budget(g, t + 1) == budget
            assert len(step.kept[g]) <= budget
            assert SPECIAL | {0, 1} | {p for p in PUNCT if p <= t} <= set(step.kept[g])
            assert t in step.kept[g]
            if number == 4:
                assert set(range(t - 11, t + 1)) <= set(step.kept[g])


@pytest.mark.parametrize("number", [3, 4])
def test_t29_prompt_mask_is_the_last_rows(number: int):
    """Heavy hitters: ceil(0.3 * max_len) among what is left; window: floor(0.3 * max_len), own token included."""
    _, steps = t29_run(number, decode=1, max_len=41)
    static = SPECIAL | {0, 1} | {p for p in PUNCT if p < T29_PROMPT}
    window = set(range(T29_PROMPT - 12, T29_PROMPT)) if number == 4 else set()
    free = T29_PROMPT - len(static | window)
    for own in steps[0].kept:
        assert static | window <= set(own)
        assert len(own) == len(static | window) + min(13, free)


def test_t29_sizes_of_windows_and_shares():
    assert [fastgen.window_size(0.3, n) for n in (1, 3, 9, 10, 100)] == [1, 1, 2, 3, 30]
    assert [fastgen.decode_share(0.3, n) for n in (5, 9, 10, 15, 25)] == [2, 3, 3, 4, 8]
    columns = np.array([4.0, 3.0, 2.0, 1.5, 1.0])
    # Divided by the 5, 4, 3, 2, 1 queries that see them: 0.8, 0.75, 0.67, 0.75, 1.
    assert fastgen.heavy_hitters(columns, {4}, 2) == [0, 3]


def test_t29_decode_evicts_the_lowest_average_outside_the_protected_sets():
    """The window of W slots counts the incoming token: positions t - W + 1 ... t - 1 are protected among the cached."""
    _, steps = t29_run(4, max_len=20)
    for before, step in pairwise(steps):
        for g in range(2):
            t = step.seen[g][-1]
            if t in PUNCT or not step.evicted[g]:
                continue
            held = SPECIAL | set(PUNCT) | {0, 1} | set(range(t - 5, t))  # W = round(0.3 * 20) = 6
            state = before.state[g]
            average = {p: sum(state["ring"][p].values()) / state["count"][p] for p in before.kept[g]}
            free = [p for p in before.kept[g] if p not in held]
            assert step.evicted[g] == [min(free, key=lambda p: (average[p], p))]
    assert any(step.evicted[0] for step in steps[1:])


def test_t29_heads_may_differ_in_length():
    """Head 0 attends to its own token only, so no static set helps it; head 1 attends to token 0."""
    T = 20
    rows = np.zeros((2, T, T))
    for i in range(T):
        rows[0, i, i] = 1.0
        rows[1, i, 0] = 1.0
    q, k, v = scripted([rows], H=2)[0]
    policy = fast(recovery=0.9, sink=1)
    step = simulate(policy, [(q, k, v)], None, prompt_chunks=1, scaling=1.0)[0]
    assert policy.chosen == [4, 1]
    assert len(step.kept[0]) > len(step.kept[1])


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
def test_t31_death_times_equal_the_sequential_prompt(sink: int, recent: int, budget: int, hash_of: str):
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

    death = hashevict.death_times(distance, T, budget, sink, recent)
    assert step.kept == [[j for j in range(T) if death[j] == math.inf]]
    for t in range(T):
        alive = [j for j in range(t + 1) if t < death[j]]
        assert len(alive) <= budget
        _, out = attend(q[:, t : t + 1], [t], k[0, alive], v[0, alive], alive, 0.5)
        np.testing.assert_allclose(step.output[:, t : t + 1], out, atol=1e-12)
    if budget > sink + recent:
        assert all(death[j] == math.inf for j in range(sink))
        assert all(death[j] - j > recent for j in range(T))


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


def test_death_times_serve_other_key_only_policies():
    """Section 3.14: the same simulation holds for every pre-attention, key-only policy; here L2."""
    _, k, _ = chunk = random_chunks(rng(38), [30], H=1, G=1)[0]
    policy = presets.make("l2/hashevict", sink=2, recent=3)
    policy.sequential_prompt = True
    step = simulate(policy, [chunk], 9, prompt_chunks=1)[0]
    norms = np.linalg.norm(k[0], axis=1)
    death = hashevict.death_times(lambda t, j: float(norms[j]), 30, 9, 2, 3)
    assert step.kept == [[j for j in range(30) if death[j] == math.inf]]


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


# T-33: CAOTE.


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


# T-34: BUZZ.


@pytest.mark.parametrize("s", range(3, 12))
def test_t34_theorem_holds_for_the_actual_recursion(s: int):
    for w in range(20, 400, 7):
        threshold = round(buzz.best_ratio(s) * w)
        limit = buzz.recursion(threshold, s, 60)[-1]
        assert abs(limit - w) <= 1


@pytest.mark.parametrize("threshold", [5, 6, 7, 11, 30])
@pytest.mark.parametrize("s", [3, 4, 5, 8])
def test_t34_one_sweep_gets_below_the_threshold_when_tokens_come_one_by_one(s: int, threshold: int):
    assert all(a <= threshold for a in buzz.recursion(threshold, s, 60))


def test_t34_lengths_oscillate_between_a_and_the_threshold():
    chunks = random_chunks(rng(55), [6] + [1] * 60, H=2, G=1)
    steps = simulate(Buzz(2, 4, 3, 9), chunks, None, prompt_chunks=1)
    expected, middle = iter(buzz.recursion(9, 3, 20)), 0
    for step in steps[1:]:
        assert len(step.kept[0]) == len(step.kept[1]) <= 2 + 4 + 9
        middle += 1
        if step.evicted[0]:
            middle = next(expected)
        assert len(step.kept[0]) == 6 + middle


def test_t34_every_hive_has_one_survivor_and_the_first_winner_is_permanent():
    tokens = list(range(17))
    score = dict(enumerate(rng(56).random(17)))
    winners = buzz.local_max(tokens, score, 5)
    assert [t // 5 for t in winners] == [0, 1, 2, 3]
    for t in winners:
        assert score[t] == max(score[u] for u in tokens if u // 5 == t // 5)
    old = winners
    for _ in range(5):
        old = buzz.interval(old, 3)
    assert old == winners[:1]
    # Rank r survives exactly when s-hat divides it, and moves to r / s-hat.
    assert buzz.interval(list(range(10)), 3) == [0, 3, 6, 9]


def test_t34_a_tie_inside_a_hive_keeps_the_earliest():
    assert buzz.local_max([0, 1, 2, 3, 4], dict.fromkeys(range(5), 1.0), 3) == [0, 3]


@pytest.mark.parametrize("total", [20, 50, 120])
def test_t34_prompt_loop_ends_within_the_threshold_and_code_may_not(total: int):
    chunks = random_chunks(rng(57), [total, 1, 1, 1], H=2, G=1)
    loop = simulate(Buzz(2, 4, 3, 9), chunks, None, prompt_chunks=1)
    assert all(len(step.kept[0]) <= 15 for step in loop)
    code = simulate(Buzz(2, 4, 3, 9, prefill="code"), chunks, None, prompt_chunks=1)
    middle = total - 6
    assert len(code[0].kept[0]) == 6 + -(-middle // 3)
    if total == 120:
        # 38 > 9: the released behaviour needs further sweeps, one per decode step.
        assert [len(step.kept[0]) for step in code] == [44, 26, 17, 13]


def test_t34_accumulates_like_h2o():
    chunks = random_chunks(rng(82), [12, 1, 1, 1], G=2)
    a = simulate(Buzz(2, 4, 3, 30), chunks, None, prompt_chunks=1)
    b = simulate(H2O(), chunks, None, prompt_chunks=1)
    assert [[head["acc"] for head in step.state] for step in a] == [[head["acc"] for head in step.state] for step in b]


def test_t34_stream_sweeps_after_every_block():
    chunks = random_chunks(rng(58), [8] * 5 + [1] * 4, H=2, G=1)
    steps = simulate(Buzz(2, 4, 3, 9, prefill="stream"), chunks, None, prompt_chunks=5)
    lengths, old, middle = [], 0, 0
    for step in steps:
        middle = max(0, len(step.seen[0]) - 6)
        if middle > 9:
            old = middle = -(-old // 2) + -(-(middle - old) // 3)
        lengths.append(min(len(step.seen[0]), 6 + middle))
    assert [len(step.kept[0]) for step in steps] == lengths


def test_t34_variants():
    tokens, score = list(range(10)), {t: float(t) for t in range(10)}
    assert buzz.sweep([], tokens, score, 5, "interval") == [0, 5]
    assert buzz.sweep([], tokens, score, 5) == [4, 9]
    assert buzz.sweep(tokens, [], score, 5) == [0, 3, 6, 9]
    assert buzz.sweep(tokens, [], score, 5, swap_strides=True) == [0, 5]
    assert buzz.sweep([], tokens, score, 5, swap_strides=True) == [2, 5, 8, 9]


def test_t34_no_max_reads_no_scores():
    q, k, v = zip(*random_chunks(rng(59), [30, 1, 1]), strict=True)
    other = [(x + 3 * np.sign(x), y, z) for x, y, z in zip(q, k, v, strict=True)]
    policy = presets.make("buzz/no_max", sink=2, window=4, stride=3, threshold=9)
    a = simulate(policy, list(zip(q, k, v, strict=True)), None, prompt_chunks=1)
    b = simulate(policy, other, None, prompt_chunks=1)
    assert kept(a) == kept(b)


def test_t34_log_n():
    assert buzz.log_factor(512) == pytest.approx(1)
    assert buzz.log_factor(1) == 0
    chunks = random_chunks(rng(60), [12, 1], H=1, G=1)
    logn = simulate(Buzz(2, 4, 3, 20, logn=True), chunks, None, prompt_chunks=1)
    for n, step in zip((12, 13), logn, strict=True):
        scaled = simulate(Dense(), chunks, None, prompt_chunks=1, scaling=0.5 * math.log(n) / math.log(512))
        np.testing.assert_array_equal(step.output, scaled[n - 12].output)


def test_t34_invalid_parameters_raise():
    with pytest.raises(ValueError, match="stride"):
        Buzz(4, 10, 2, 20)
    with pytest.raises(ValueError, match="threshold"):
        Buzz(4, 10, 5, 4)
    with pytest.raises(ValueError, match="both"):
        Buzz(4, window=10)


@pytest.mark.parametrize("cache_size", [50, 100, 200, 300, 1024])
def test_t34_peak_mapping_never_holds_more(cache_size: int):
    window, threshold = buzz.sizes(cache_size, "peak")
    assert buzz.lengths(4, window, 5, threshold)[2] == cache_size
    assert threshold / window == pytest.approx(float(buzz.best_ratio(5)), rel=0.2)
    for kind, index in (("post", 0), ("mean", 1)):
        w, t = buzz.sizes(cache_size, kind)
        assert buzz.lengths(4, w, 5, t)[index] == pytest.approx(cache_size, abs=3)


# T-35: K-VEC.


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


# Presets and helpers.


def test_every_preset_of_section_2_exists():
    listed = {
        "h2o": "keydiff original coldcompress",
        "tova": "keydiff original",
        "snapkv": "keydiff kvec adakv",
        "pyramidkv": "kvec",
        "ada-snapkv": "kvec",
        "ada-pyramid": "kvec",
        "headkv": "original",
        "l2": "hashevict original",
        "scissorhands": "hashevict",
        "fastgen": "hashevict",
        "hashevict": "paper released-code",
        "keydiff": "default",
        "buzz": "default",
        "kvec": "default",
    }
    for method, variants in listed.items():
        for variant in variants.split():
            presets.PRESETS[f"{method}/{variant}"]
    # h2o/buzz needs explicit sizes and in-cache positions; gemfilter/llama31-8b is no cache policy.


def test_presets_wrap_bases_with_caote():
    policy = presets.make("fastcaote+snapkv/keydiff", window=5)
    assert isinstance(policy, Caote)
    assert policy.fast
    assert policy.base.window == 5


def test_largest_remainder():
    from fractions import Fraction

    thirds = [Fraction(16), Fraction(32, 3), Fraction(16, 3), Fraction(0)]
    assert largest_remainder(thirds, 32) == [16, 11, 5, 0]
    assert largest_remainder([Fraction(1, 2)] * 3, 2) == [1, 1, 0]
