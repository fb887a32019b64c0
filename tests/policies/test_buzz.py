"""BUZZ (policies.md 3.17, T-34): the traced example, hives, sizes from a budget, and what cannot work."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import buzz as slow
from views import Given, view

from policies import PolicyError, Schedule, build
from policies.buzz import Buzz, best_ratio
from policies.structure import StructuralPolicy

AFTER_PROMPT = Schedule("after_prompt")


class Cache:
    """One row and two heads under a structure; every token has a fixed score, given when it arrives."""

    def __init__(self, structure, score):
        self.structure, self.score, self.length = structure, score, 0
        self.positions = torch.zeros(1, 2, 0, dtype=torch.int32)
        self.state = {
            name: torch.zeros(1, 2, 0, *kind.shape, dtype=kind.dtype) for name, kind in structure.state.items()
        }

    def feed(self, count, phase="decode", budget=0):
        """Append tokens, let them be attended, keep what the structure keeps; True where something went."""
        new = torch.arange(self.length, self.length + count).int().expand(1, 2, -1)
        self.length += count
        place = torch.cat([self.positions, new], -1)
        state = {}
        for name, old in self.state.items():
            state[name] = torch.cat([old, old.new_zeros(1, 2, count)], -1)
        sums = torch.zeros(place.shape)
        sums[..., -count:] = torch.stack([self.score(p) for p in place[..., -count:]])
        shown = replace(
            view(positions=place[0, 0].tolist(), length=self.length, budget=budget),
            positions=place, attention=Given(sums, chunk=count), state=state, phase=phase,
        )  # fmt: skip
        shown = replace(shown, state=self.structure.update(shown))
        mask, _ = self.structure.keep(shown)
        held = int(mask[0, 0].sum())
        self.positions = place[mask].view(1, 2, held)
        self.state = {name: s[mask].view(1, 2, held) for name, s in shown.state.items()}
        return held < place.shape[-1]

    @property
    def tokens(self):
        return self.positions[0, 0].tolist()


def test_3_17_the_traced_example():
    """policies.md 3.17, T-34."""
    cache = Cache(Buzz(sinks=1, window=2, stride=3, threshold=6), lambda p: (7 * p % 10).float())
    cache.feed(3, "prompt")
    seen = {}
    for token in range(3, 24):
        if cache.feed(1):
            seen[token] = cache.tokens
    assert seen == {
        9: [0, 1, 4, 7, 8, 9],
        13: [0, 1, 7, 8, 11, 12, 13],
        16: [0, 1, 8, 14, 15, 16],
        20: [0, 1, 14, 17, 18, 19, 20],
        23: [0, 1, 17, 21, 22, 23],
    }


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sinks=st.integers(0, 4), window=st.integers(0, 5), stride=st.integers(3, 7), threshold=st.integers(5, 14),
    prefill=st.integers(1, 20), steps=st.integers(0, 40), levels=st.sampled_from([1, 3, 1000]),
)  # fmt: skip
def test_3_17_it_is_the_reference_with_ties_too(sinks, window, stride, threshold, prefill, steps, levels):
    """policies.md 3.17."""
    score = {p: float(7919 * p % levels) for p in range(prefill + steps)}
    prefill = min(prefill, sinks + window + threshold)  # the reference's trace does not sweep a prompt
    cache = Cache(Buzz(sinks, window, stride, threshold), lambda p: (7919 * p.long() % levels).float())
    cache.feed(prefill, "prompt")
    swept = [(cache.length - 1, cache.tokens) for _ in range(steps) if cache.feed(1)]
    traced = slow.trace(sinks, window, stride, threshold, prefill, prefill + steps - 1, score)
    assert swept == [(token, tokens) for token, _, _, tokens in traced]


@pytest.mark.parametrize("total", [15, 16, 30, 120, 1000])
def test_3_17_a_long_prompt_is_thinned_until_it_fits_or_swept_once(total):
    """policies.md 3.17, T-34."""
    loop = Cache(Buzz(2, 4, 3, 9), lambda p: p.float())
    loop.feed(total, "prompt")
    assert len(loop.tokens) <= 15
    assert loop.tokens[:2] == [0, 1]
    assert loop.tokens[-4:] == list(range(total - 4, total))
    once = Cache(Buzz(2, 4, 3, 9, prefill="single"), lambda p: p.float())
    once.feed(total, "prompt")
    assert len(once.tokens) == (15 if total == 15 else 6 + -(-(total - 6) // 3))


def test_3_17_variants_on_a_prompt():
    """policies.md 3.17."""

    def middle(**parameters):
        cache = Cache(Buzz(0, 1, 5, 9, prefill="single", **parameters), lambda p: p.float())
        cache.feed(11, "prompt")
        return cache.tokens[:-1]

    assert middle() == [4, 9]
    assert middle(new_rule="interval") == [0, 5]
    assert middle(swap_strides=True) == [2, 5, 8, 9]


def test_3_17_without_accumulation_only_the_current_chunk_counts():
    """policies.md 3.17."""
    shown = replace(view(2, budget=20), attention=Given(torch.tensor([[[0.3, 0.7]]])))
    shown = replace(shown, state={"received": torch.ones(1, 1, 2), "age": torch.zeros(1, 1, 2, dtype=torch.uint8)})
    assert Buzz().update(shown)["received"].flatten().tolist() == pytest.approx([1.3, 1.7])
    assert Buzz(accumulate=False).update(shown)["received"].flatten().tolist() == pytest.approx([0.3, 0.7])


@pytest.mark.parametrize("stride", range(3, 12))
@pytest.mark.parametrize("kind", ["peak", "mean", "post"])
def test_a_12_sizes_from_a_budget(stride, kind):
    """policies.md 3.17."""
    assert best_ratio(stride) == slow.best_ratio(stride)
    for budget in (50, 100, 200, 300, 1024):
        assert Buzz(stride=stride, size_kind=kind).sizes(budget) == slow.sizes(budget, kind, 4, stride)


def test_3_17_the_printed_sizes():
    """policies.md 3.17."""
    assert Buzz().sizes(200) == (36, 160)
    assert Buzz().sizes(300) == (55, 241)  # design/errata.md: the table lists 56 and 240
    assert Buzz(window=160, threshold=400).sizes(10**6) == (160, 400)


def test_peak_sizes_never_hold_more_than_the_budget():
    """policies.md 3.17."""
    cache = Cache(Buzz(), lambda p: (7919 * p.long() % 97).float())
    cache.feed(150, "prompt", budget=50)
    for _ in range(100):
        assert len(cache.tokens) <= 50
        cache.feed(1, budget=50)


def test_only_a_peak_with_a_thinned_prompt_promises_the_budget():
    assert Buzz().keeps_to_budget
    for other in (Buzz(size_kind="mean"), Buzz(prefill="single"), Buzz(window=8, threshold=400)):
        assert not other.keeps_to_budget


def test_a_row_that_fed_nothing_is_not_swept():
    buzz = Buzz(0, 1, 3, 5, prefill="single")
    cache = Cache(buzz, lambda p: p.float())
    cache.feed(30, "prompt")
    assert len(cache.tokens) == 11  # still over the threshold
    waiting = replace(
        view(positions=cache.tokens, length=30), positions=cache.positions, state=cache.state,
        attention=Given(torch.zeros(1, 2, 11), chunk=0),
    )  # fmt: skip
    assert buzz.keep(replace(waiting, state=buzz.update(waiting)))[0].all()


def test_1_3_nan_attention_is_reported():
    state = {"received": torch.tensor([[[0.1, torch.nan]]]), "age": torch.zeros(1, 1, 2, dtype=torch.uint8)}
    assert Buzz().keep(replace(view(2, budget=20), state=state))[1].tolist() == [True]


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"stride": 2}, "stride of at least 3"), ({"window": 10}, "both window and threshold"),
    ({"window": 10, "threshold": 4}, "at least 5 slots"), ({"size_kind": "max"}, "not one of peak, mean, post"),
    ({"prefill": "code"}, "not one of loop, single"), ({"new_rule": "best"}, "not one of local_max, interval"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        Buzz(**parameters)


def test_a_budget_without_a_middle_is_refused():
    policy = StructuralPolicy("", structure=Buzz(), schedule=AFTER_PROMPT)
    policy.check_budget(10)
    with pytest.raises(PolicyError, match="raise the budget"):
        policy.check_budget(9)


@pytest.mark.parametrize(("config", "sentence"), [
    ({"structure": "buz"}, "no structure called 'buz'. Did you mean buzz"),
    ({"structure": {"name": "buzz", "strid": 4}}, "no parameter 'strid'. Did you mean stride"),
    ({"structure": "buzz", "scorer": "tova"}, "remove policy.scorer"),
    ({"structure": "buzz", "protect": {"sinks": 4}}, "remove policy.protect"),
    ({"structure": "buzz", "schedule": {"decode": "never"}}, "decode=each_step"),
    ({"structure": "buzz", "logit_scale": "log2"}, "not one of none, log512"),
])  # fmt: skip
def test_nonsense_compositions_are_refused(config, sentence):
    with pytest.raises(PolicyError, match=sentence):
        build({"name": "mine", **config})


def test_parts_compose():
    policy = build({"name": "mine", "structure": {"name": "buzz", "stride": 4}, "schedule": {"prompt": "after_prompt"},
                    "rope": "cache", "logit_scale": "log512"})  # fmt: skip
    assert policy == StructuralPolicy("mine", structure=Buzz(stride=4), schedule=AFTER_PROMPT, rope="cache",
                                      logit_scale="log512")  # fmt: skip
    assert not policy.is_dense
    assert not policy.uniform
