"""Engine invariants of policies.md section 7 (T-01 ... T-14), stated on the slow reference itself.

T-11 (slot overwrite) and T-12 (shared prefill) compare two storage schemes that the reference does not have.
"""

import math

import numpy as np
import pytest

from tests.reference import presets
from tests.reference.attention import attend, column_sums
from tests.reference.cases import BY_NAME, CASES, Case, joined, prompt_sizes, random_chunks, split, with_mode
from tests.reference.engine import Step, simulate, simulate_layers
from tests.reference.policy import Policy
from tests.reference.selection import keep
from tests.reference.window_sink import Dense, Sink

MODES = [(case, mode) for case in CASES for mode in case.modes]
EVERY = pytest.mark.parametrize(("case", "mode"), MODES, ids=[f"{case.name}-{mode}" for case, mode in MODES])
DECODE = 7


def run(case: Case, mode: str, budget: int, seed: int = 0, policy: Policy | None = None) -> list[Step]:
    sizes = prompt_sizes(case, mode)
    chunks = random_chunks(np.random.default_rng(seed), sizes + [1] * DECODE)
    return simulate(policy or case.policy(), chunks, budget, prompt_chunks=len(sizes))


def assert_same(a: list[Step], b: list[Step], tolerance: float = 0.0) -> None:
    assert [step.kept for step in a] == [step.kept for step in b]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.output, y.output, rtol=0, atol=tolerance)


# Section 1.3, the selection rule.


def test_rule_1_3_1_no_op_below_target():
    assert keep([0, 4, 9], [1.0, 2.0, 3.0], 3) == [0, 4, 9]


def test_rule_1_3_2_too_many_protected_keeps_sinks_then_most_recent():
    pos = list(range(12))
    assert keep(pos, [0.0] * 12, 6, sinks={0, 1, 2, 3}, others={8, 9, 10, 11}) == [0, 1, 2, 3, 10, 11]
    assert keep(pos, [0.0] * 12, 3, sinks={0, 1, 2, 3}, others={8, 9, 10, 11}) == [0, 1, 2]
    assert keep(pos, [0.0] * 12, 2, others={8, 9, 10, 11}) == [10, 11]


def test_rule_1_3_3_and_4_fill_by_score_ties_evict_the_smaller_position():
    assert keep([3, 5, 8, 9], [1.0, 1.0, 1.0, 0.0], 2) == [5, 8]
    assert keep([3, 5, 8, 9], [1.0, 1.0, 1.0, 0.0], 2, others={9}) == [8, 9]
    assert keep([0, 1, 2], [math.inf, math.inf, -math.inf], 1) == [1]


def test_rule_1_3_6_nan_raises_even_for_a_protected_slot():
    with pytest.raises(ValueError, match="NaN"):
        keep([0, 1, 2], [math.nan, 0.0, 1.0], 2, sinks={0})


@pytest.mark.parametrize("case", [c for c in CASES if c.reads_scores], ids=lambda c: c.name)
@pytest.mark.parametrize("where", [0, 1])
def test_rule_1_3_6_nan_in_the_input_raises(case: Case, where: int):
    """where: 0 puts the NaN in a query, 1 in a key. Key-only policies cannot see a query."""
    if where == 0 and case.name in {"l2", "l2-hashevict", "keydiff", "keydiff-recent", "hashevict-code"}:
        pytest.skip("reads keys only")
    mode = case.modes[0]
    sizes = prompt_sizes(case, mode)
    chunks = random_chunks(np.random.default_rng(1), sizes + [1] * DECODE)
    # The last prompt token: in every window, and in a hive of BUZZ as soon as decoding goes on.
    if where == 0:
        chunks[len(sizes) - 1][0][:, -1] = np.nan
    else:
        chunks[len(sizes) - 1][1][:, -1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        simulate(case.policy(), chunks, 12, prompt_chunks=len(sizes))


# Section 7, engine.


@EVERY
def test_t01_budget_at_least_length_is_dense(case: Case, mode: str):
    if case.name == "fastgen":
        policy = case.policy(recovery=2.0)  # FastGen's budget is its recovery fraction: out of reach means full
    elif case.name.startswith("buzz"):
        policy = case.policy(threshold=1000)
    else:
        policy = case.policy()
    dense = run(case, mode, 1, policy=Dense())
    policy_steps = run(case, mode, 24 + DECODE, policy=policy)
    # A policy that reads the prompt token by token adds the same numbers in the same order.
    assert_same(policy_steps, dense)


@pytest.mark.parametrize("case", [c for c in with_mode("block") if "once" in c.modes], ids=lambda c: c.name)
def test_t02_one_block_equals_one_shot(case: Case):
    chunks = random_chunks(np.random.default_rng(2), [24] + [1] * DECODE)
    block = simulate(case.policy(), chunks, 11, prompt_chunks=1)
    policy = case.policy()
    policy.prefill_evict = "once_after_prompt"
    assert_same(block, simulate(policy, chunks, 11, prompt_chunks=1))


EXACT = [(case, mode) for case, mode in MODES if case.exact_budget]


@pytest.mark.parametrize(("case", "mode"), EXACT, ids=[f"{case.name}-{mode}" for case, mode in EXACT])
@pytest.mark.parametrize("budget", [1, 5, 11, 17])
def test_t03_budget_and_transient_peak(case: Case, mode: str, budget: int):
    sizes = prompt_sizes(case, mode)
    policy = case.policy()
    eaa, sequential = policy.order == "EAA", policy.sequential_prompt
    for c, step in enumerate(run(case, mode, budget)):
        prompt = c < len(sizes)
        m = sizes[c] if prompt else 1
        if prompt and policy.prefill_evict == "once_after_prompt" and not sequential:
            limit = sum(sizes)
        else:
            limit = budget if eaa and (sequential or not prompt) else budget + m
        assert step.peak <= limit
        assert all(len(kept) <= budget for kept in step.kept)


@EVERY
def test_t04_kept_sets_are_ordered_nested_and_carry_their_state(case: Case, mode: str):
    before: list[set[int]] = [set(), set()]
    start = 0
    for step in run(case, mode, 9):
        m = step.output.shape[1]
        new = set(range(start, start + m))
        start += m
        for g, kept in enumerate(step.kept):
            assert kept == sorted(set(kept))
            assert set(kept) <= before[g] | new
            assert set(step.evicted[g]).isdisjoint(kept)
            assert before[g] - set(kept) <= set(step.evicted[g])
            for name, table in step.state[g].items():
                assert set(table) <= set(kept), name
            before[g] = set(kept)


def test_t04_state_covers_every_kept_slot():
    names = {
        "h2o": "acc",
        "hashevict": "code",
        "scissorhands": "ring",
        "buzz": "acc",
        "h2o-coldcompress": "count",
    }
    for name, table in names.items():
        case = BY_NAME[name]
        for step in run(case, case.modes[-1], 9):
            for g, kept in enumerate(step.kept):
                assert sorted(step.state[g][table]) == kept, name


def test_t05_attention_does_not_depend_on_slot_order():
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((2, 3, 4)), rng.standard_normal((9, 4)), rng.standard_normal((9, 4))
    pos, q_pos = [0, 2, 3, 7, 8, 11, 12, 13, 14], [12, 13, 14]
    probs, out = attend(q, q_pos, k, v, pos, 0.5)
    order = rng.permutation(9)
    probs2, out2 = attend(q, q_pos, k[order], v[order], [pos[j] for j in order], 0.5)
    np.testing.assert_allclose(out2, out, atol=1e-14)
    np.testing.assert_allclose(probs2, probs[:, :, order], atol=1e-15)


@EVERY
def test_t06_nothing_reads_the_future(case: Case, mode: str):
    sizes = prompt_sizes(case, mode) + [1] * DECODE
    prompt = len(prompt_sizes(case, mode))
    chunks = random_chunks(np.random.default_rng(4), sizes)
    whole = simulate(case.policy(), chunks, 9, prompt_chunks=prompt)
    other = random_chunks(np.random.default_rng(99), sizes)
    for cut in (prompt, prompt + 3):
        changed = simulate(case.policy(), chunks[:cut] + other[cut:], 9, prompt_chunks=prompt)
        assert_same(changed[:cut], whole[:cut])


GQA_CASES = [BY_NAME[n] for n in ("h2o", "h2o-mean", "tova", "snapkv", "caote-h2o", "caote-tova", "buzz")]


@pytest.mark.parametrize("case", GQA_CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("gqa", ["mean", "sum", "max"])
def test_t07_equal_query_heads_make_every_reduction_agree(case: Case, gqa: str):
    mode = case.modes[0]
    sizes = prompt_sizes(case, mode)
    single = random_chunks(np.random.default_rng(5), sizes + [1] * DECODE, G=1)
    grouped = [(np.repeat(q, 4, axis=0), k, v) for q, k, v in single]
    lone = simulate(case.policy(), single, 9, prompt_chunks=len(sizes))
    group = simulate(case.policy(gqa=gqa), grouped, 9, prompt_chunks=len(sizes))
    assert [s.kept for s in lone] == [s.kept for s in group]


def test_t07_one_score_for_the_layer_with_one_kv_head():
    for name in ("h2o", "tova", "snapkv"):
        case = BY_NAME[name]
        chunks = random_chunks(np.random.default_rng(6), [9, 9, 1, 1], H=1, G=3)
        a = simulate(case.policy(), chunks, 7, prompt_chunks=2)
        b = simulate(case.policy(gqa="all_heads"), chunks, 7, prompt_chunks=2)
        assert [s.kept for s in a] == [s.kept for s in b]


@EVERY
def test_t08_two_runs_agree(case: Case, mode: str):
    assert_same(run(case, mode, 9), run(case, mode, 9))


@pytest.mark.parametrize("case", [c for c in CASES if c.exact_budget], ids=lambda c: c.name)
def test_t08_all_equal_inputs_are_decided_by_the_tie_rule(case: Case):
    """Identical keys, queries and values: whatever is kept must not depend on the head."""
    mode = case.modes[0]
    sizes = prompt_sizes(case, mode) + [1] * DECODE
    chunks = [(np.ones((4, m, 4)), np.ones((2, m, 4)), np.ones((2, m, 4))) for m in sizes]
    steps = simulate(case.policy(), chunks, 9, prompt_chunks=len(sizes) - DECODE)
    for step in steps:
        assert step.kept[0] == step.kept[1]


def test_t09_column_sums_from_lse_equal_the_matrix():
    rng = np.random.default_rng(7)
    q, k = rng.standard_normal((3, 5, 4)), rng.standard_normal((9, 4))
    pos, q_pos, scale = [0, 1, 4, 5, 8, 9, 10, 11, 12], [8, 9, 10, 11, 12], 0.5
    probs, _ = attend(q, q_pos, k, k, pos, scale)
    for w in (1, 3, 5, 9):
        expected = np.zeros((3, 9))
        for h in range(3):
            for i in range(5 - min(w, 5), 5):
                logits = [scale * float(q[h, i] @ k[j]) if pos[j] <= q_pos[i] else -math.inf for j in range(9)]
                lse = math.log(sum(math.exp(x) for x in logits))
                expected[h] += [math.exp(x - lse) for x in logits]
        sums = column_sums(probs, w)
        np.testing.assert_allclose(sums, expected, rtol=1e-12)
        np.testing.assert_allclose(sums.sum(axis=1), min(w, 5), rtol=1e-12)


def rope(x: np.ndarray, position: float) -> np.ndarray:
    """Rotate the pairs (x_i, x_{i + D/2}) by position * 10000^(-2i/D)."""
    half = len(x) // 2
    angle = position * 10000.0 ** (-np.arange(half) / half)
    a, b = x[:half], x[half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)])


def test_t10_cache_positions_equal_absolute_ones_before_the_first_eviction():
    raw = random_chunks(np.random.default_rng(8), [6, 1, 1])
    rotated, start = [], 0
    for q, k, v in raw:
        turn = [np.array([[rope(r, start + i) for i, r in enumerate(rows)] for rows in x]) for x in (q, k)]
        rotated.append((*turn, v))
        start += q.shape[1]
    absolute = simulate(Sink(), rotated, 8, prompt_chunks=1)
    assert_same(simulate(Sink(), raw, 8, prompt_chunks=1, rotate=rope), absolute, 1e-12)


def test_t10_cache_positions_after_eviction_equal_delta_rotation():
    """Post-RoPE keys turned by new index - old index at each compaction: the same function."""
    raw = random_chunks(np.random.default_rng(9), [6] + [1] * 6, H=1, G=2)
    steps = simulate(Sink(2), raw, 5, prompt_chunks=1, rotate=rope)
    keys: dict[int, np.ndarray] = {}
    values: dict[int, np.ndarray] = {}
    start = 0
    for (q, k, v), step in zip(raw, steps, strict=True):
        m = q.shape[1]
        for i in range(m):
            keys[start + i] = rope(k[0, i], len(keys))
            values[start + i] = v[0, i]
        pos = sorted(keys)
        turned = np.array([[rope(r, len(pos) - m + i) for i, r in enumerate(rows)] for rows in q])
        k_now, v_now = np.array([keys[p] for p in pos]), np.array([values[p] for p in pos])
        _, out = attend(turned, list(range(start, start + m)), k_now, v_now, pos, 0.5)
        np.testing.assert_allclose(step.output, out, atol=1e-12)
        old = {p: j for j, p in enumerate(pos)}
        keys = {p: rope(keys[p], j - old[p]) for j, p in enumerate(step.kept[0])}
        values = {p: values[p] for p in step.kept[0]}
        start += m


def test_t10_cache_positions_are_refused_for_eaa():
    chunks = random_chunks(np.random.default_rng(9), [6, 1])
    with pytest.raises(ValueError, match="AAE"):
        simulate(presets.make("hashevict/paper"), chunks, 5, prompt_chunks=1, rotate=rope)


@EVERY
def test_t13_a_reused_policy_object_carries_nothing_over(case: Case, mode: str):
    policy = case.policy()
    run(case, mode, 9, seed=10, policy=policy)
    assert_same(run(case, mode, 9, seed=11, policy=policy), run(case, mode, 9, seed=11))


@pytest.mark.parametrize("case", with_mode("once"), ids=lambda c: c.name)
def test_t14_one_shot_prompt_output_is_dense(case: Case):
    """A-21: the logit of the first generated token is computed before anything is evicted."""
    if case.policy().sequential_prompt:
        pytest.skip("evicts while it reads the prompt")
    chunks = random_chunks(np.random.default_rng(12), [24, 1])
    once = simulate(case.policy(prefill_evict="once_after_prompt"), chunks, 9, prompt_chunks=1)
    dense = simulate(Dense(), chunks, 9, prompt_chunks=1)
    np.testing.assert_array_equal(once[0].output, dense[0].output)


def test_triggers_of_section_1_2():
    chunks = random_chunks(np.random.default_rng(13), [6, 6, 6, 1, 1])

    def sizes(prefill_evict: str, decode_evict: str) -> list[int]:
        policy = presets.make("tova/keydiff", prefill_evict=prefill_evict, decode_evict=decode_evict)
        return [len(step.kept[0]) for step in simulate(policy, chunks, 5, prompt_chunks=3)]

    assert sizes("after_each_block", "every_step") == [5, 5, 5, 5, 5]
    assert sizes("after_each_block", "never") == [5, 5, 5, 6, 7]
    assert sizes("once_after_prompt", "every_step") == [6, 12, 5, 5, 5]
    assert sizes("once_after_prompt", "never") == [6, 12, 5, 6, 7]
    assert sizes("none", "every_step") == [6, 12, 18, 5, 5]


def test_block_mode_dense_prefill_equals_one_shot_attention():
    whole = joined(random_chunks(np.random.default_rng(14), [17]))
    one = simulate(Dense(), [whole], None, prompt_chunks=1)[0].output
    parts = simulate(Dense(), split(whole, [5, 5, 5, 2]), None, prompt_chunks=4)
    np.testing.assert_allclose(np.concatenate([s.output for s in parts], axis=1), one, atol=1e-14)


def test_layers_are_independent_without_cross_layer_state():
    layers = [random_chunks(np.random.default_rng(s), [9, 9, 1]) for s in (20, 21)]
    both = simulate_layers(presets.make("h2o/keydiff"), layers, 7, prompt_chunks=2)
    for chunks, steps in zip(layers, both, strict=True):
        assert_same(steps, simulate(presets.make("h2o/keydiff"), chunks, 7, prompt_chunks=2))
