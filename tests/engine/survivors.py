"""A watcher that records the survivors of every pass, and the policies that the catalogue's tests run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from presets import EVICTING, policy
from tiny import tiny_model
from torch import Tensor

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request, RequestOutput, reason_against
from policies import Policy, Protect, Schedule
from policies.baselines import Recency
from policies.duo_attention import DuoAttention
from policies.headkv import HeadKV
from policies.kvec import KVec
from policies.qfilters import QFilters
from policies.snapkv import SnapKV

FILTERS = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(4)).tolist()  # layers, KV heads, D
PROFILE = [[0.5, 0.1, 0.2, 0.9], [0.3, 0.3, 0.1, 0.2], [0.8, 0.1, 0.1, 0.4]]
SNAP = SnapKV(window=8, pool="max", pool_over="prefix")
ONCE = Schedule(prompt="after_prompt", decode="never")
MADE_HERE = {  # presets of these need a profile, or more heads than the tiny models have
    "headkv": Policy("headkv", SNAP, allocator=HeadKV(PROFILE), protect=Protect(recent=8), schedule=ONCE),
    "duo_attention": Policy(
        "duo_attention", Recency(), allocator=DuoAttention(PROFILE), protect=Protect(2, 8), schedule=ONCE
    ),
    "qfilters": Policy("qfilters", QFilters(FILTERS)),
    "kvec": Policy("kvec", KVec(O=6, O_prime=12, delta=1), protect=Protect(recent=6), schedule=ONCE),
}
BUDGET = 40
SHIPPED = {name: policy(name) for name in EVICTING if policy(name).protect.smallest_budget() <= BUDGET}
ALL: dict[str, Policy] = {name: each for name, each in SHIPPED.items() if each.token_filter is None} | MADE_HERE


def able(feed: Prompting) -> list[str]:
    """Names of the cache policies that work in this regime."""
    return [name for name, chosen in ALL.items() if not reason_against(chosen, feed)]


@dataclass
class Survivors:
    """Per pass: the logits, and per layer and KV head of the first row the positions held."""

    held: list[list[list[list[int]]]] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    layers: list[list[list[int]]] = field(default_factory=list)

    def attended(self, work) -> None:
        """Nothing is recorded before eviction."""

    def evicted(self, work) -> None:
        """Record the positions that one layer holds."""
        self.layers.append([sorted(head[head >= 0].tolist()) for head in work.layer.slot_positions[0]])

    def predicted(self, batch, logits: Tensor) -> None:
        """Record the logits of one pass."""
        self.held.append(self.layers)
        self.logits.append(logits.clone())
        self.layers = []


def generated(
    chosen: Policy, feed: Prompting, tokens: Sequence[int], budget: int, new: int
) -> tuple[Survivors, RequestOutput]:
    """One row through a fresh tiny model; computed once, since many tests compare with the same run."""
    return _generated(chosen, feed, tuple(tokens), budget, new)


@cache
def _generated(
    chosen: Policy, feed: Prompting, tokens: tuple[int, ...], budget: int, new: int
) -> tuple[Survivors, RequestOutput]:
    seen = Survivors()
    engine = Engine(tiny_model("llama"), watchers=[seen])
    return seen, engine.generate([Request(list(tokens), chosen, budget, new)], feed)[0]


def unlike_dense(name: str) -> bool:
    """Whether a policy differs from dense without evicting: another softmax, or budgets that are no sizes."""
    return ALL[name].logit_scale != "none" or name.startswith("fastgen")
