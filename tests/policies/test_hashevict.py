"""HashEvict (policies.md 3.14, T-31): codes, group rules, and the exact parallel prompt stage."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import hashevict as slow
from views import Given, kept, view

from policies import Policy, PolicyError, Protect, hashevict
from policies.hashevict import NEVER, HashEvict, bits_set, projection_of, simulate_evictions

EXAMPLE = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
KEYS = [[2, 1], [-1, -0.2], [0.3, -1], [-0.5, 1]]


@pytest.fixture
def by_hand(monkeypatch):
    """The projection of the worked example instead of a drawn one."""
    monkeypatch.setattr(hashevict, "projection_of", lambda *_: EXAMPLE)


def asked_by(query, new_key, scorer):
    shown = view(keys=KEYS, budget=3)
    codes = scorer.codes(shown.keys, 0).to(scorer.state["codes"].dtype)
    asked = torch.tensor(query).float().view(1, 1, 1, 2)
    arriving = torch.tensor(new_key).float().view(1, 1, 1, 2)
    return replace(shown, state={"codes": codes}, attention=Given(asked=asked), arriving=arriving)


@pytest.mark.usefixtures("by_hand")
def test_3_14_the_two_variants_disagree_maximally():
    """policies.md 3.14, T-31."""
    query, new_key = [1, 0.5], [-1, 0.4]
    by_query, by_key = HashEvict(bits=4), HashEvict(bits=4, hash_of="key")
    assert by_query.score(asked_by(query, new_key, by_query)).flatten().tolist() == [0, -4, -2, -2]
    assert by_key.score(asked_by(query, new_key, by_key)).flatten().tolist() == [-3, -1, -3, -1]
    assert kept(Policy("", by_query), asked_by(query, new_key, by_query)) == [0, 2, 3]
    assert kept(Policy("", by_key), asked_by(query, new_key, by_key)) == [1, 2, 3]


@pytest.mark.usefixtures("by_hand")
def test_3_14_zero_maps_to_one():
    """policies.md 3.14."""
    assert HashEvict(bits=4).codes(torch.zeros(2), 0) == 0b1111


@pytest.mark.parametrize("bits", [1, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64])
def test_codes_of_any_length_survive_storage(bits):
    torch.manual_seed(bits)
    scorer = HashEvict(bits=bits)
    keys = torch.randn(1, 2, 40, 6)
    codes = scorer.codes(keys, 0)
    stored = codes.to(scorer.state["codes"].dtype)
    projection = projection_of(0, 0, bits, 6)
    signs = keys @ projection.T >= 0
    by_hand = (signs[..., :1, :] != signs).sum(-1)
    assert torch.equal(bits_set(codes[..., :1] ^ scorer._whole(stored)), by_hand)
    assert scorer.state["codes"].nbytes == max(1, 2 ** math.ceil(math.log2(bits / 8)))


def test_3_14_expected_distance_is_the_angle():
    """policies.md 3.14, T-31."""
    x, y = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.5, 0.8, -0.2])
    angle = torch.arccos(torch.cosine_similarity(x, y, dim=0)).item() / math.pi
    total = sum(int(bits_set(HashEvict(64, seed=s).codes(x, 0) ^ HashEvict(64, seed=s).codes(y, 0))) for s in range(80))
    assert total / (80 * 64) == pytest.approx(angle, abs=0.021)  # three standard errors


def test_layers_and_seeds_have_their_own_projections():
    drawn = [projection_of(seed, layer, 8, 4) for seed in (0, 1) for layer in (0, 1, 2)]
    assert len({tuple(p.flatten().tolist()) for p in drawn}) == 6
    assert projection_of(0, 1, 8, 4) is projection_of(0, 1, 8, 4)


@pytest.mark.parametrize("rule", ["sum", "mean_query", "min", "majority"])
@pytest.mark.parametrize("group", [1, 2, 3, 4])
def test_a_14_group_rules_equal_the_reference(rule, group):
    """policies.md 3.14."""
    torch.manual_seed(group)
    scorer = HashEvict(8, group_rule=rule)
    queries, keys = torch.randn(1, 2 * group, 1, 5), torch.randn(1, 2, 9, 5)
    distance = scorer.distance(scorer.query_codes(queries, keys[:, :, :1], 0), scorer.codes(keys, 0).unsqueeze(-2))
    R = projection_of(0, 0, 8, 5).double().numpy()
    for head in range(2):
        own = queries[0, head * group : (head + 1) * group, 0].double().numpy()
        codes = [slow.code(R, key) for key in keys[0, head].double().numpy()]
        assert distance[0, head, 0].tolist() == [slow.group_distance(R, own, code, rule) for code in codes]


def test_new_keys_are_written_behind_the_old_codes():
    scorer = HashEvict(16)
    shown = view(keys=KEYS, budget=3)
    chunk = shown.keys[:, :, 2:]
    old = torch.tensor([[[7, 9, 0, 0]]], dtype=torch.int16)
    state = scorer.update(replace(shown, arriving=chunk, state={"codes": old}))["codes"]
    assert state.dtype == torch.int16
    assert state[0, 0, :2].tolist() == [7, 9]
    assert torch.equal(state[..., 2:], scorer.codes(chunk, 0).to(torch.int16))


def test_1_3_a_nan_that_asks_is_reported():
    scorer = HashEvict(4)
    for query, new_key, hash_of, broken in [
        ([math.nan, 1], [1, 1], "query", True), ([1, 1], [1, math.nan], "key", True),
        ([1, 1], [1, math.nan], "query", False),
    ]:  # fmt: skip
        scorer = HashEvict(4, hash_of)
        _, is_nan = Policy("", scorer).keep(asked_by(query, new_key, scorer))
        assert is_nan.tolist() == [broken]


def test_sinks_and_the_ten_newest_are_protected_before_the_new_token_enters():
    """policies.md 3.14, T-31."""
    torch.manual_seed(1)
    scorer = HashEvict(8)
    keys = torch.randn(30, 4)
    shown = view(keys=keys.tolist(), budget=20, length=30)
    state = {"codes": scorer.codes(shown.keys, 0).to(torch.uint8)}
    asked = replace(
        shown, state=state, attention=Given(asked=torch.randn(1, 2, 1, 4)), arriving=torch.randn(1, 1, 1, 4)
    )
    stay = kept(Policy("", scorer, protect=Protect(sinks=4, recent=10)), asked)
    assert {*range(4), *range(20, 30)} <= set(stay)


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"bits": 0}, "1 to 64 bits"), ({"bits": 65}, "1 to 64 bits"), ({"hash_of": "value"}, "not one of query, key"),
    ({"group_rule": "max"}, "not one of sum, mean_query, min, majority"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        HashEvict(**parameters)


@pytest.mark.parametrize(("sinks", "recent", "budget"), [
    (0, 0, 7), (2, 3, 9), (4, 10, 20), (4, 10, 9), (4, 10, 3), (0, 0, 1), (2, 3, 60),
])  # fmt: skip
@pytest.mark.parametrize(
    ("hash_of", "rule"), [("key", "sum"), ("query", "sum"), ("query", "min"), ("query", "majority")]
)
def test_6_4_eviction_steps_equal_the_sequential_rule(sinks, recent, budget, hash_of, rule):
    """policies.md 3.14, T-31."""
    total, heads, group, rows = 45, 2, 3, 2
    torch.manual_seed(budget)
    queries, keys = torch.randn(rows, heads * group, total, 6), torch.randn(rows, heads, total, 6)
    scorer = HashEvict(8, hash_of, rule)
    evicted_at = simulate_evictions(
        scorer.query_codes(queries, keys, 0), scorer.codes(keys, 0), budget, sinks, recent, scorer
    )
    R = projection_of(0, 0, 8, 6).double().numpy()
    for row, head in np.ndindex(rows, heads):
        own = queries[row, head * group : (head + 1) * group].double().numpy()
        codes = [slow.code(R, key) for key in keys[row, head].double().numpy()]

        def distance(t: int, j: int, own=own, codes=codes) -> float:
            if hash_of == "key":
                return slow.hamming(codes[t], codes[j])
            return slow.group_distance(R, own[:, t], codes[j], rule)

        expected = slow.eviction_steps(distance, total, budget, sinks, recent)
        assert [math.inf if e == NEVER else e for e in evicted_at[row, head].tolist()] == expected
    now = torch.arange(total)
    alive = (now[None, :] <= now[:, None]) & (now[:, None] < evicted_at.unsqueeze(-2))
    assert int(alive.sum(-1).max()) == min(budget, total)
