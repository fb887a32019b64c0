"""Window, sinks, H2O, TOVA and SnapKV in the reference (policies.md 3.2 to 3.6, T-20 to T-23)."""

import numpy as np
import pytest

from tests.reference import presets
from tests.reference.attention import attend, group_mean
from tests.reference.cases import kept, random_chunks, rng, scripted, split
from tests.reference.engine import simulate
from tests.reference.h2o import H2O
from tests.reference.selection import keep
from tests.reference.snapkv import SnapKV, pool
from tests.reference.tova import Tova
from tests.reference.window_sink import Sink, Window

ONCE = {"prefill_evict": "once_after_prompt", "decode_evict": "never"}


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
