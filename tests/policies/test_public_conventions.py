"""Presets named after public implementations keep what those keep (policies.md 3 and 9)."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from engine.presets import policy
from engine.raw import run_layers
from public_code import PRESETS, Kept, Layer, Public, adakv_snapkv, everything, kvpress_line, snapkv_library

from policies import Policy, PolicyError, Protect, Schedule, build
from policies.ada import AdaKV
from policies.pyramid import PyramidKV, layer_slots
from policies.snapkv import SnapKV

# Tokens, budget, KV heads, query heads per KV head. Of 150 tokens, 80 make kvpress's pyramid steep, 110 limit the first
# layer of every pyramid to the prompt, and 70 leave kvpress none. Of 400 slots kvpress makes more safe than its window.
SHAPES = [
    (150, 70, 2, 2), (150, 80, 3, 1), (150, 110, 2, 4), (150, 149, 1, 3), (230, 40, 2, 3), (230, 121, 4, 2),
    (700, 400, 2, 2),
]  # fmt: skip
LAYERS = 4


def drawn(tokens: int, heads: int, group: int, seed: int) -> list[Layer]:
    """Keys of different lengths, heads of different sharpness."""
    rng = np.random.default_rng(seed)
    sharp = rng.uniform(0.5, 3, (heads, group, 1, 1))
    return [
        Layer(
            sharp * rng.normal(size=(heads, group, tokens, 16)).astype("f4"),
            (rng.uniform(0.5, 1.5, (heads, tokens, 1)) * rng.normal(size=(heads, tokens, 16))).astype("f4"),
            rng.normal(size=(heads, tokens, 16)).astype("f4"),
            number,
            LAYERS,
        )
        for number in range(LAYERS)
    ]


def ours(chosen: Policy, layers: list[Layer], budget: int) -> list[Kept]:
    """What the engine keeps of the same prompt, read at once, layer by layer."""
    chunks = []
    for layer in layers:
        q, k, v = (torch.from_numpy(each).float() for each in (layer.q, layer.k, layer.v))
        chunks.append([(q.flatten(0, 1), k, v)])
    return [steps[-1].kept for steps in run_layers(chosen, chunks, budget, 1)]


def shapes_for(public: Public) -> list[tuple[int, int, int, int]]:
    return [shape for shape in SHAPES if shape[1] >= public.smallest]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_preset_keeps_what_the_public_code_keeps(preset):
    public = PRESETS[preset]
    for seed, (tokens, budget, heads, group) in enumerate(shapes_for(public)):
        layers = drawn(tokens, heads, group, seed)
        expected = [public.kept(layer, budget) for layer in layers]
        assert ours(policy(preset), layers, budget) == expected, (public.where, tokens, budget)


@pytest.mark.parametrize(
    ("preset", "convention"), [("snapkv/original", snapkv_library), ("snapkv/adakv", adakv_snapkv)]
)
def test_3_6_snapkv_as_released_repeats_keys_to_every_query_head(preset, convention):
    """FasterDecoding/SnapKV selects per query head: our preset where every query head has keys of its own."""
    for layer in drawn(150, 2, 3, 5):
        q, k = layer.q.reshape(6, 1, 150, 16), layer.k.repeat(3, axis=0)
        repeated = replace(layer, q=q, k=k, v=layer.v.repeat(3, axis=0))
        assert ours(policy(preset), [repeated], 60) == [convention(repeated, 60)]


def changed(preset: str) -> dict[str, Policy]:
    """The preset with one part of its convention changed, by what was changed."""
    base = policy(preset)
    scorer = base.scorer if base.prompt_stage is None else base.prompt_stage.scorer
    values = {
        "window": lambda window: window - 1,
        "kernel": lambda kernel: kernel + 2,
        "pool": lambda pool: "max" if pool != "max" else "avg",
        "pool_over": lambda over: {"all": "prefix", "prefix": "all"}[over],
        "heads": lambda heads: {"kv": "layer", "layer": "kv"}[heads],
        "anchor": lambda anchor: "mean",
        "lag": lambda lag: lag - 1,
        "compare": lambda compare: "across",
        "leverage": lambda leverage: "kv_avg",
    }
    scorers = {
        field.name: replace(scorer, **{field.name: values[field.name](getattr(scorer, field.name))})
        for field in fields(scorer)
        if field.name in values
    }

    def with_scorer(other) -> Policy:
        if base.prompt_stage is None:
            return replace(base, scorer=other)
        return replace(base, prompt_stage=replace(base.prompt_stage, scorer=other))

    variants = {name: with_scorer(other) for name, other in scorers.items()}
    protect = base.protect if base.prompt_stage is None else base.prompt_stage.protect
    for name in ("sinks", "recent"):
        fewer = replace(protect, **{name: max(0, getattr(protect, name) - 1)})
        if fewer != protect:
            in_stage = base.prompt_stage and replace(base.prompt_stage, protect=fewer)
            variants[name] = replace(base, protect=fewer) if in_stage is None else replace(base, prompt_stage=in_stage)
    if base.allocator is not None:
        variants["allocator"] = replace(base, allocator=None)
    if isinstance(base.allocator, PyramidKV | AdaKV):
        pyramid = isinstance(base.allocator, PyramidKV) or base.allocator.base == "pyramid"
        others = {"window": base.allocator.window - 1} | ({"beta": 1, "schedule": "exact"} if pyramid else {})
        if isinstance(base.allocator, AdaKV):
            safeguard = base.allocator.mix == "safeguard"
            convex = {"alpha": 0.3, "normalize": not base.allocator.normalize, "rounding": "largest_remainder"}
            others |= {"alpha": 0.95, "mix": "convex"} if safeguard else convex
        for name, value in others.items():
            variants[f"allocator.{name}"] = replace(base, allocator=replace(base.allocator, **{name: value}))
    return variants


SPECIFIC = [(preset, what) for preset in PRESETS for what in changed(preset)]


@pytest.mark.parametrize(("preset", "what"), SPECIFIC)
def test_another_convention_would_be_noticed(preset, what):
    public, variant = PRESETS[preset], changed(preset)[what]
    for seed, (tokens, budget, heads, group) in enumerate(shapes_for(public)):
        layers = drawn(tokens, heads, group, seed)
        if ours(variant, layers, budget) != [public.kept(layer, budget) for layer in layers]:
            return
    pytest.fail(f"{preset} keeps the same with another {what}")


# The new schedules by hand.


def test_3_7_kvpress_by_hand():
    assert layer_slots(400, 1000, 64, 4, 20, "kvpress") == (400, 400, 400, 400)  # the last layer would hold 20
    assert layer_slots(500, 1000, 64, 4, 20, "kvpress") == (936, 645, 355, 64)
    assert layer_slots(1600, 9000, 64, 3, 20, "kvpress") == (3120, 1600, 80)
    assert layer_slots(1600, 9000, 64, 1, 20, "kvpress") == (1600,)


@pytest.mark.parametrize("tokens", [150, 700, 1001, 5000])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.61, 0.9])
@pytest.mark.parametrize("layers", [2, 6, 32])
def test_3_7_kvpress_by_its_line(tokens, share, layers):
    budget = int(tokens * share)
    assert list(layer_slots(budget, tokens, 64, layers, 20, "kvpress")) == kvpress_line(tokens, budget, layers)


def test_3_7_kvcache_factory_builds_no_pyramid_for_short_prompts():
    for tokens, expected in ((59, (40, 40, 40)), (63, (40, 40, 40)), (64, (56 + 8, 32 + 8, 8 + 8))):
        assert layer_slots(40, tokens, 8, 3, 20, "kvcache_factory") == expected
    assert layer_slots(40, 64, 8, 3, 20, "public_code") == (64, 40, 16)
    assert layer_slots(40, 63, 8, 3, 20, "public_code") == (63, 40, 17)


def test_3_8_a_safeguard_keeps_each_heads_best():
    """Nine tokens share head 0's attention, head 1 looks at all: the nine come first, unless shares are safe."""
    keys = torch.zeros(2, 20, 4)
    query = torch.zeros(2, 20, 4)
    query[..., 0] = 1
    keys[0, 3:12, 0] = 20.0
    keys[1, :, 0] = torch.arange(20) / 100
    scorer = SnapKV(window=1, kernel=1, pool="none", pool_over="prefix")

    def kept(alpha: float) -> Kept:
        once = Schedule("after_prompt", "never")
        chosen = Policy(
            "", scorer, allocator=AdaKV(1, alpha, mix="safeguard"), protect=Protect(recent=1), schedule=once
        )
        return run_layers(chosen, [[(query, keys, keys)]], 8, 1)[0][0].kept

    assert kept(0.0) == [[*range(3, 12), 19], [*range(14, 20)]]
    assert kept(0.25) == kept(0.0)
    assert kept(0.95) == [[*range(4, 12), 19], [*range(13, 20)]]
    assert kept(1.0) == [[*range(5, 12), 19], [*range(12, 20)]]
    # 8 slots and a window of 1: alpha 0.95 makes the best int(7.6) - 1 = 6 of each prefix safe, 1.0 all 7.


@pytest.mark.parametrize(
    ("allocator", "sentence"),
    [
        ({"name": "ada", "mix": "both"}, "not one of convex, safeguard"),
        ({"name": "ada", "mix": "safeguard", "normalize": True}, "at their defaults"),
        ({"name": "ada", "mix": "safeguard", "base": "pyramid"}, "at their defaults"),
        ({"name": "ada", "mix": "safeguard", "rounding": "public_code"}, "at their defaults"),
        ({"name": "ada", "schedule": "kvpress"}, "not one of exact, public_code."),
        ({"name": "pyramid", "schedule": "factory"}, "not one of exact, public_code, kvcache_factory, kvpress"),
    ],
)
def test_nonsense_is_refused(allocator, sentence):
    with pytest.raises(PolicyError) as refused:
        build({"name": "mine", "scorer": "snapkv", "schedule": {"prompt": "after_prompt"}, "allocator": allocator})
    assert sentence in str(refused.value)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("spare", [0, 1, 50])
def test_a_prompt_within_its_budget_stays_whole_whatever_the_public_code_does(preset, spare):
    layers = drawn(90, 2, 2, 0)
    assert ours(policy(preset), layers, 90 + spare) == [everything(layer) for layer in layers]


def test_what_holds_its_budget_says_so():
    assert policy("ada_snapkv/kvpress").keeps_to_budget
    for preset in ("pyramidkv/kvpress", "pyramidkv/kvcache_factory", "ada_snapkv/public_code"):
        assert not policy(preset).keeps_to_budget
