"""The engine's own path over raw tensors: cache, attention and settling of one layer, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine import Prompting, Row
from harness.engine.attention import attend
from harness.engine.cohort import Cohort
from harness.engine.settle import settle
from harness.engine.step import Feed
from policies import Policy


@dataclass
class Step:
    """Kept positions per KV head, ascending, and the attention output (H·G, m, D)."""

    kept: list[list[int]]
    output: Tensor


def run_layer(
    policy: Policy, chunks: Sequence[tuple[Tensor, Tensor, Tensor]], budget: int, prompt_chunks: int
) -> list[Step]:
    """``chunks``: (q (H·G, m, D), k (H, m, D), v (H, m, D)) in fp32, the first ``prompt_chunks`` of them the prompt."""
    sizes = [query.shape[1] for query, _, _ in chunks]
    length, decoded = sum(sizes[:prompt_chunks]), len(chunks) - prompt_chunks
    row = Row([0] * length, policy, budget, decoded + 1)
    feed_plan = Prompting("one_shot") if prompt_chunks == 1 else Prompting("blocked", sizes[0])
    cohort = Cohort([row], feed_plan, layers=1, device=torch.device("cpu"))
    layer = cohort.cache.layers[0]
    steps, start = [], 0
    for number, (query, keys, values) in enumerate(chunks):
        phase = "prompt" if number < prompt_chunks else "decode"
        cohort.begin(Feed.of([[0] * sizes[number]], [start], cohort.device), phase)
        seen_keys, seen_values = layer.update(keys[None], values[None])
        scaling = query.shape[-1] ** -0.5
        output = attend(query[None], seen_keys, seen_values, cohort.visible, scaling)
        settle(cohort, layer, query[None], seen_keys, seen_values, scaling, None)
        cohort.finish()
        held = [sorted(head[head >= 0].tolist()) for head in layer.positions[0]]
        steps.append(Step(held, output[0].transpose(0, 1)))
        start += sizes[number]
    (ledger,) = cohort.tally.ledgers(cohort.cache, cohort.lengths)
    assert ledger.invalid == ""
    return steps
