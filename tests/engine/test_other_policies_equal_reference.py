"""Promise 3 for policies that compress one prompt, evict before attention, or are no ranking (policies.md 3.4-3.17).

What counts as agreement is in `against_reference`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from against_reference import drawn_chunks, share_agreed, tensors
from hypothesis import given, settings
from hypothesis import strategies as st
from raw import run_layer
from reference.engine import simulate
from reference.presets import make

from harness.engine.requests import Prompting
from policies import Policy, Protect, Schedule
from policies.baselines import Recency
from policies.buzz import Buzz
from policies.chunkkv import ChunkKV
from policies.cur import CUR
from policies.dropkv import DropKV
from policies.fastgen import FastGen
from policies.h2o import H2O
from policies.hashevict import HashEvict, projection_of
from policies.keydiff import KeyDiff
from policies.l2 import L2
from policies.lagkv import LagKV
from policies.policy import PromptStage
from policies.qfilters import QFilters
from policies.rkv import RKV
from policies.scissorhands import Scissorhands
from policies.selection import SkipLayers
from policies.snapkv import SnapKV
from policies.structure import StructuralPolicy
from policies.tova import TOVA

AFTER_PROMPT = Schedule("after_prompt")
ONCE_THEN_FIRST = Schedule("after_prompt", evict_first=True)
TOKEN_BY_TOKEN = Schedule("each_block", evict_first=True)
SCHEDULES = {"blocked": Schedule(), "one_shot": AFTER_PROMPT}
FED = {"blocked": {}, "one_shot": {"prefill_evict": "once_after_prompt"}}
NOTHING, BAND = Protect(), Protect(sinks=2, recent=3)
SNAP3 = {"window": 3, "kernel": 3}
SNAP16X5 = PromptStage(SnapKV(window=16, kernel=5, pool="avg_nopad"), Protect(sinks=2, recent=16))
SEED, BITS, WIDTH = 3, 8, 8
R = projection_of(SEED, 0, BITS, WIDTH).double().numpy()
TOKENS = [int(t) for t in np.random.default_rng(5).integers(0, 12, 400)]


@dataclass(frozen=True)
class Pair:
    """The fast policy, the reference preset with its parameters, and how prompts are fed."""

    fast: Policy
    preset: str
    parameters: dict[str, Any] = field(default_factory=dict)
    feed: str = "one_shot"
    ties: bool = False  # integer scores: equal scores are exact in both programs
    smallest: int = 1  # budget


def keydiff(**parameters: str) -> Pair:
    return Pair(Policy("", KeyDiff(**parameters)), "keydiff/default", parameters, feed="blocked")


def lagkv(feed: str = "blocked", **parameters: Any) -> Pair:
    settings = {"lag": 5, **parameters}
    fast = Policy("", LagKV(sinks=2, **settings), protect=Protect(sinks=2), schedule=SCHEDULES[feed])
    ranked = settings.get("compare", "within") == "within"  # ranks are whole: nothing lies near a tie
    return Pair(fast, "lagkv", {"sink": 2, **settings, **FED[feed]}, feed, ties=ranked, smallest=2)


def cur(feed: str = "blocked", **parameters: Any) -> Pair:
    settings = {"window": 4, **parameters}
    fast = Policy("", CUR(**settings), protect=Protect(sinks=2), schedule=SCHEDULES[feed])
    return Pair(fast, "cur", {"sink": 2, **settings, **FED[feed]}, feed, smallest=2)


def rkv(feed: str = "blocked", **parameters: Any) -> Pair:
    settings = {"window": 3, "kernel": 3, **parameters}
    fast = Policy("", RKV(**settings), protect=Protect(recent=3), schedule=SCHEDULES[feed])
    return Pair(fast, "rkv", settings | FED[feed], feed, smallest=3)


def dropkv(feed: str = "blocked", **parameters: Any) -> Pair:
    settings = {"window": 3, "kernel": 3, **parameters}
    protect = Protect(recent=settings["window"])
    fast = Policy("", DropKV(**settings), protect=protect, schedule=SCHEDULES[feed])
    return Pair(fast, "dropkv", settings | FED[feed], feed, smallest=settings["window"])


def qfilters(feed: str = "blocked") -> Pair:
    filters = np.random.default_rng(7).normal(size=(1, 2, 8)).tolist()  # one layer
    fast = Policy("", QFilters(filters), schedule=SCHEDULES[feed])
    return Pair(fast, "qfilters", {"filters": filters, **FED[feed]}, feed)


def chunkkv(base: Any, preset: str, feed: str = "blocked", protect: Protect = NOTHING, **parameters: Any) -> Pair:
    fast = Policy("", ChunkKV(base, 4), protect=protect, schedule=SCHEDULES[feed])
    parameters = {"size": 4, **parameters, **FED[feed]}
    return Pair(fast, f"chunkkv+{preset}", parameters, feed, smallest=max(1, protect.smallest_budget()))


def hashevict(hash_of: str, group_rule: str = "sum") -> Pair:
    scorer = HashEvict(BITS, hash_of, group_rule, SEED)
    parameters = {"bits": BITS, "hash_of": hash_of, "group_rule": group_rule, "sink": 2, "recent": 3, "R": R}
    fast = Policy("", scorer, protect=BAND, schedule=TOKEN_BY_TOKEN)
    return Pair(fast, "hashevict/paper", parameters, "token_fed", ties=True, smallest=6)


def buzz(feed: str = "one_shot", **parameters: Any) -> Pair:
    sizes = {"window": 4, "stride": 3, "threshold": 9}
    schedule = Schedule("after_prompt" if feed == "one_shot" else "each_block")
    prefill = {"one_shot": parameters.pop("prefill", "loop"), "blocked": "single"}[feed]
    fast = StructuralPolicy("", structure=Buzz(sinks=2, prefill=prefill, **sizes, **parameters), schedule=schedule)
    theirs = {"loop": "loop", "single": "code" if feed == "one_shot" else "stream"}[prefill]
    return Pair(fast, "buzz/default", {"sink": 2, "prefill": theirs, **sizes, **parameters}, feed, smallest=15)


def fastgen(**parameters: Any) -> Pair:
    ours = {"special_ids": (0,), "punctuation_ids": (1, 2), "sinks": 2} | parameters
    theirs = {"tokens": TOKENS, "special_ids": {0}, "punct_ids": {1, 2}, "sink": 2} | parameters
    fast = StructuralPolicy("", structure=FastGen(**ours), schedule=ONCE_THEN_FIRST)
    return Pair(fast, "fastgen/hashevict", theirs)


PAIRS = {
    "keydiff-rawmean": keydiff(anchor="mean"),
    "keydiff-median": keydiff(anchor="median"),
    "keydiff-pairwise": keydiff(anchor="pairwise"),
    "keydiff-dot": keydiff(metric="dot"),
    "keydiff-euclid": keydiff(metric="euclid"),
    "keydiff-rawmean-dot": keydiff(anchor="mean", metric="dot"),
    "keydiff-median-euclid": keydiff(anchor="median", metric="euclid"),
    "tova-original": Pair(Policy("", TOVA("layer"), schedule=AFTER_PROMPT), "tova/original"),
    "h2o-mean": Pair(Policy("", H2O("mean"), schedule=AFTER_PROMPT), "h2o/keydiff", {"accumulate": "mean"}),
    "h2o-coldcompress": Pair(
        Policy("", H2O("mean"), protect=BAND, schedule=ONCE_THEN_FIRST, prompt_stage=SNAP16X5),
        "h2o/coldcompress", {"sink": 2, "recent": 3}, smallest=6,
    ),
    "l2": Pair(Policy("", L2()), "l2/original", {"skip_layers": (), "prefill_evict": "after_each_block"}, "blocked"),
    "l2-original": Pair(Policy("", L2(), schedule=AFTER_PROMPT, allocator=SkipLayers((1,))), "l2/original",
                        {"skip_layers": (1,)}),
    "l2-skipped": Pair(Policy("", L2(), schedule=AFTER_PROMPT, allocator=SkipLayers((0,))), "l2/original"),
    "l2-hashevict": Pair(
        Policy("", L2(), protect=BAND, schedule=ONCE_THEN_FIRST), "l2/hashevict", {"sink": 2, "recent": 3}, smallest=6
    ),
    "hashevict": hashevict("query"),
    "hashevict-key": hashevict("key"),
    "hashevict-mean-query": hashevict("query", "mean_query"),
    "hashevict-min": hashevict("query", "min"),
    "hashevict-majority": hashevict("query", "majority"),
    "hashevict-released-code": Pair(
        Policy("", HashEvict(BITS, "key", seed=SEED), protect=BAND, schedule=ONCE_THEN_FIRST,
               prompt_stage=PromptStage(Recency(), Protect(sinks=2))),
        "hashevict/released-code", {"bits": BITS, "sink": 2, "recent": 3, "R": R}, ties=True, smallest=6,
    ),
    "scissorhands": Pair(
        Policy("", Scissorhands(), protect=BAND, schedule=ONCE_THEN_FIRST, prompt_stage=SNAP16X5),
        "scissorhands/hashevict", {"sink": 2, "recent": 3}, smallest=6,
    ),
    "scissorhands-short-history": Pair(
        Policy("", Scissorhands(history=5), schedule=ONCE_THEN_FIRST,
               prompt_stage=PromptStage(SNAP16X5.scorer, Protect(recent=16))),
        "scissorhands/hashevict", {"sink": 0, "recent": 0, "history": 5}, smallest=2,
    ),
    "buzz": buzz(),
    "buzz-code": buzz(prefill="single"),
    "buzz-stream": buzz("blocked"),
    "buzz-no-max": buzz(new_rule="interval"),
    "buzz-swapped": buzz(swap_strides=True),
    "buzz-fast": buzz(accumulate=False),
    "lagkv": lagkv(),
    "lagkv-once": lagkv("one_shot"),
    "lagkv-long": lagkv(lag=9),
    "lagkv-across": lagkv(compare="across"),
    "rkv": rkv(),
    "rkv-once": rkv("one_shot"),
    "rkv-two-recent": rkv(beta=2, threshold=0.2, lam=0.4),
    "rkv-none-recent": rkv(beta=0),
    "qfilters": qfilters(),
    "qfilters-once": qfilters("one_shot"),
    "dropkv": dropkv(),
    "dropkv-once": dropkv("one_shot"),
    "dropkv-one-row": dropkv(window=1, kernel=1),
    "cur": cur(),
    "cur-once": cur("one_shot"),
    "cur-average": cur(leverage="kv_avg"),
    "cur-key": cur(leverage="key"),
    "cur-value": cur(leverage="value", window=0),
    "chunkkv": chunkkv(SnapKV(**SNAP3), "snapkv/keydiff", protect=Protect(recent=3), **SNAP3),
    "chunkkv-once": chunkkv(KeyDiff(), "keydiff/default", "one_shot"),
    "chunkkv-h2o": chunkkv(H2O(), "h2o/keydiff"),
    "chunkkv-rkv": chunkkv(RKV(**SNAP3), "rkv", protect=Protect(recent=3), **SNAP3),
    "fastgen": fastgen(),
    "fastgen-cheap": fastgen(recovery=0.5),
    "fastgen-special": fastgen(recovery=0.0),
    "fastgen-full": fastgen(recovery=1.1),
    "fastgen-mixed": fastgen(recovery=0.7, heavy_frac=0.15, window_frac=0.45),
    "fastgen-visible": fastgen(recovery=0.3, self_visible=True, history=3),
}  # fmt: skip


def compare(name: str, total: int, block: int, decode: int, budget: int, group: int, kind: str, seed: int) -> float:
    """Assert agreement; returns the share of chunks that were compared before a near tie."""
    pair = PAIRS[name]
    budget = max(budget, pair.smallest)
    prompting = Prompting("blocked", block) if pair.feed == "blocked" else Prompting(pair.feed)
    sizes = [stop - start for start, stop in prompting.chunks(total, budget)]
    chunks = drawn_chunks(seed, sizes + [1] * decode, group, kind)
    is_fastgen = "fastgen" in name
    parameters = pair.parameters | ({"max_len": max(budget, total)} if is_fastgen else {})
    limit = None if is_fastgen or "buzz" in name else budget
    slow = simulate(make(pair.preset, **parameters), chunks, limit, prompt_chunks=len(sizes))
    fast = run_layer(pair.fast, tensors(chunks), budget, len(sizes), prompting, tokens=TOKENS[: total + decode])
    return share_agreed(slow, fast, exact_ties=pair.ties)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_same_survivors_on_random_tensors(name, data):
    total = data.draw(st.integers(1, 40), "prompt tokens")
    compare(
        name,
        total,
        block=data.draw(st.integers(1, total), "block"),
        decode=data.draw(st.integers(0, 8), "decode steps"),
        budget=data.draw(st.integers(1, total + 8), "budget"),
        group=data.draw(st.sampled_from((1, 2, 4)), "group"),
        kind=data.draw(st.sampled_from(("normal", "zero keys", "sharp", "equal values")), "kind"),
        seed=data.draw(st.integers(0, 10_000), "seed"),
    )


@pytest.mark.parametrize("name", PAIRS)
def test_same_survivors_over_fifty_steps(name):
    compare(name, total=53, block=16, decode=50, budget=24, group=2, kind="normal", seed=11)


@pytest.mark.parametrize("name", PAIRS)
def test_comparisons_are_not_cut_short(name):
    shares = [compare(name, 31, 9, 12, 20, 2, "normal", seed) for seed in range(8)]
    assert np.mean(shares) > 0.9
