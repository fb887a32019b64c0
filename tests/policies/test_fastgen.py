"""FastGen (policies.md 3.12, T-29): profiling, the sets of each hybrid, and who takes in new tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import fastgen as slow
from views import Given, view

from policies import Policy, PolicyError, Schedule, build
from policies.fastgen import FastGen
from policies.structure import StructuralPolicy

ONCE_THEN_FIRST = Schedule("after_prompt", evict_first=True)
PROMPT = 30
TOKENS = [int(t) for t in np.random.default_rng(5).integers(0, 12, 60)]
SPECIAL = {p for p in range(PROMPT) if TOKENS[p] == 0}
MARKS = [p for p, token in enumerate(TOKENS) if token in (1, 2)]


def fastgen(**parameters):
    return FastGen(**{"special_ids": [0], "punctuation_ids": [2, 1], "sinks": 2, **parameters})


def causal(seed, total=PROMPT):
    attention = np.tril(np.random.default_rng(seed).random((total, total)) ** 4)
    return attention / attention.sum(axis=1, keepdims=True)


def profiled(structure, attention, budget=1):
    """The view of a prompt with this attention (T, T), after the structure's update."""
    total = len(attention)
    window = slow.window_size(structure.window_frac, total)
    given = Given(
        torch.tensor(attention.sum(0)).float().view(1, 1, -1),
        torch.tensor(slow.band_sums(attention, window)).float().view(1, 1, -1),
        chunk=total,
    )
    empty = {name: torch.zeros(1, 1, total, *kind.shape, dtype=kind.dtype) for name, kind in structure.state.items()}
    shown = replace(
        view(total, budget=budget),
        attention=given,
        state=empty,
        prompt_lengths=(total,),
        token_ids=torch.tensor([TOKENS]),
    )
    return replace(shown, state=structure.update(shown))


def forced(structure, number, shown):
    """The same view with all heads under one hybrid."""
    return replace(shown, state={**shown.state, "hybrid": torch.full_like(shown.state["hybrid"], number)})


def places(shown, mask):
    return shown.positions[mask].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_3_12_the_first_hybrid_that_recovers_enough_is_chosen(seed):
    """policies.md 3.12, T-29."""
    attention = causal(seed)
    reference = slow.FastGen(tokens=TOKENS, special_ids={0}, punct_ids={1, 2}, sink=2)
    reference.prompt_tokens = PROMPT
    masks = reference.masks(attention.sum(0), PROMPT)
    masses = [slow.recovered_mass(attention, static, window) for static, window in masks[:4]]
    last = 0
    for recovery in np.linspace(0, 1.01, 60):
        if min(abs(mass - recovery) for mass in masses) < 1e-5:
            continue
        number = int(profiled(fastgen(recovery=float(recovery)), attention).state["hybrid"][0, 0, 0])
        assert number == slow.choose(masses, recovery)
        assert number >= last
        last = number
    assert last == slow.FULL


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("made_for", [30, 41])
def test_3_12_what_each_hybrid_keeps_of_the_prompt(number, made_for):
    """policies.md 3.12."""
    attention, structure = causal(9), fastgen()
    reference = slow.FastGen(tokens=TOKENS, special_ids={0}, punct_ids={1, 2}, sink=2)
    reference.prompt_tokens = PROMPT
    static, window = reference.masks(attention.sum(0), made_for)[number - 1]
    shown = forced(structure, number, profiled(structure, attention, budget=made_for))
    mask, broken = structure.keep(shown)
    assert places(shown, mask) == [j for j in range(PROMPT) if j in static or j >= PROMPT - window]
    assert not broken.any()


def decoding(structure, number, positions, length, budget, means=None):
    """A view before the token at ``length`` is attended; the engine has set one slot of the budget aside."""
    n = len(positions)
    ring = torch.zeros(1, 1, n, structure.history)
    ring[..., 0] = 1.0 if means is None else torch.tensor(means)
    state = {
        "ring": ring,
        "observations": torch.ones(1, 1, n),
        "hybrid": torch.full((1, 1, n), number, dtype=torch.uint8),
    }
    shown = view(positions=positions, length=length, budget=budget - 1)
    return replace(
        shown,
        state=state,
        phase="decode",
        prompt_lengths=(PROMPT,),
        token_ids=torch.tensor([TOKENS]),
        attention=Given(),
    )


def ordinary(after):
    return next(t for t in range(after, 60) if TOKENS[t] > 2)


@pytest.mark.parametrize(("number", "takes"), [(1, False), (2, False), (3, True), (4, True), (5, True)])
def test_3_12_cheap_heads_refuse_ordinary_tokens(number, takes):
    """policies.md 3.12."""
    structure, t = fastgen(), ordinary(PROMPT)
    held = sorted(SPECIAL | {0, 1} | {p for p in MARKS if p < t})
    held += [p for p in range(t) if p not in held][: 2 + len(SPECIAL) + len(MARKS) - len(held)]
    assert structure.admits(decoding(structure, number, sorted(held), t, 40)).item() is takes


@pytest.mark.parametrize(("number", "takes"), [(1, False), (2, True), (3, True), (4, True), (5, True)])
def test_3_12_punctuation_is_appended_where_it_is_kept(number, takes):
    """policies.md 3.12, T-29."""
    structure, t = fastgen(), next(p for p in MARKS if p >= PROMPT)
    everything = list(range(t))
    shown = decoding(structure, number, everything, t, 40)
    assert structure.admits(shown).item() is takes
    assert structure.keep(shown)[0].all()  # and nobody has to leave for it


def test_3_12_places_left_are_filled():
    """policies.md 3.12: a special token among the first ones leaves one place of the head's budget free."""
    structure, t = fastgen(), ordinary(PROMPT)
    few = sorted(SPECIAL | {0, 1})[:-1]
    assert structure.admits(decoding(structure, 1, few, t, 40)).item()


@pytest.mark.parametrize("number", [3, 4])
def test_3_12_a_full_head_drops_the_least_attended_of_what_it_may(number):
    """policies.md 3.12."""
    made_for = 20
    structure, t = fastgen(), ordinary(PROMPT + 2)
    torch.manual_seed(number)
    means = torch.rand(t)
    shown = decoding(structure, number, list(range(t)), t, max(made_for, PROMPT), means.tolist())
    window = set(range(t - 9 + 1, t)) if number == 4 else set()  # round(0.3 * 30) = 9, the arriving token included
    free = [p for p in range(t) if p not in SPECIAL | {0, 1} | set(MARKS) | window]
    mask, _ = structure.keep(shown)
    assert set(range(t)) - set(places(shown, mask)) == {min(free, key=lambda p: float(means[p]))}


def test_3_12_a_head_with_room_drops_nothing():
    """policies.md 3.12."""
    structure, t = fastgen(), ordinary(PROMPT)
    assert structure.keep(decoding(structure, 3, sorted(SPECIAL | {0, 1}), t, 40))[0].all()


def test_3_12_new_slots_inherit_their_heads_hybrid_and_one_observation():
    """policies.md 3.12."""
    structure = fastgen(history=4)
    shown = decoding(structure, 3, [0, 1, 5, 31], 32, 40)
    state = {name: tensor.clone() for name, tensor in shown.state.items()}
    for tensor in state.values():
        tensor[..., 3:] = 0 if tensor.dim() == 3 else tensor[..., 3:]
    state["ring"][0, 0, 3] = 0
    shown = replace(shown, attention=Given(torch.tensor([[[0.4, 0.3, 0.2, 0.1]]])), state=state)
    after = structure.update(shown)
    assert after["hybrid"].flatten().tolist() == [3] * 4
    assert after["observations"].flatten().tolist() == [2, 2, 2, 1]
    assert after["ring"][0, 0, 3].tolist() == pytest.approx([0.1, 0, 0, 0])  # 32 mod 4


def test_5_3_state_bytes_are_told():
    """policies.md 3.12."""
    assert sum(kind.nbytes for kind in FastGen().state.values()) == 4 * 400 + 4 + 1


def test_1_3_nan_attention_is_reported():
    structure, attention = fastgen(), causal(1)
    attention[-1, 3] = math.nan
    shown = profiled(structure, attention)
    assert structure.keep(shown)[1].tolist() == [True]


def test_the_tokenizer_must_be_known():
    structure = FastGen()
    with pytest.raises(PolicyError, match=r"set policy\.structure\.special_ids"):
        profiled(structure, causal(0))


@pytest.mark.parametrize("schedule", [
    Schedule(), Schedule("after_prompt"), Schedule("each_block", evict_first=True),
    Schedule("after_prompt", "never", evict_first=True),
], ids=str)  # fmt: skip
def test_other_schedules_are_refused(schedule):
    with pytest.raises(PolicyError, match="evict_first: true"):
        StructuralPolicy("", structure=fastgen(), schedule=schedule)


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"heavy_frac": 1.5}, "from 0 to 1"), ({"sinks": 0}, "at least 1"), ({"history": 0}, "at least 1"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        fastgen(**parameters)


def test_lists_of_ids_become_part_of_a_hashable_policy():
    schedule = {"prompt": "after_prompt", "evict_first": True}
    policy = build(
        {"structure": {"name": "fastgen", "special_ids": [7, 5], "punctuation_ids": []}, "schedule": schedule}
    )
    assert policy.structure.special_ids == (5, 7)
    assert hash(policy) == hash(replace(policy))


def test_other_policies_admit_every_token():
    assert Policy("").admits(view(3)).tolist() == [[True]]
    assert Policy("").self_visible
    assert not StructuralPolicy("", structure=fastgen(), schedule=ONCE_THEN_FIRST).self_visible
