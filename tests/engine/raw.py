"""The engine's own path over raw tensors: cache, attention and eviction of one layer, without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.attention.model_parts import CacheRope
from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import attend_and_evict
from harness.engine.batch.feed import Feed
from harness.engine.requests import Prompting, Request
from policies import Policy
from policies.view import Rotation

Chunk = tuple[Tensor, Tensor, Tensor]


@dataclass
class Step:
    """Kept positions per KV head, ascending, the attention output (H·G, m, D), and the state beside the slots."""

    kept: list[list[int]]
    output: Tensor
    positions: Tensor  # (H, n) as they lie, -1 = empty
    state: dict[str, Tensor]  # (H, n, …) by name

    def carried(self, name: str, head: int) -> dict[int, object]:
        """What is carried for each kept token of a head, by position."""
        places, values = self.positions[head].tolist(), self.state[name][head].tolist()
        return {place: value for place, value in sorted(zip(places, values, strict=True)) if place >= 0}


def plain_rotation(positions: int, width: int) -> Rotation:
    """The rotary table of most models, for keys of this width."""
    angles = torch.arange(positions)[:, None] * 10_000.0 ** (-torch.arange(0, width, 2) / width)
    return Rotation(angles.cos(), angles.sin())


def some_projection(chunks: Sequence[Chunk]) -> Callable[[int], Tensor]:
    """An output projection W_O (H, G, D, 5) that is the same in all layers and for all query heads of a group."""
    (queries, _, _), (heads, _, width) = chunks[0][0].shape, chunks[0][1].shape
    matrix = torch.randn(heads, 1, width, 5, generator=torch.Generator().manual_seed(11))
    return lambda layer: matrix.expand(-1, queries // heads, -1, -1)


def run_layer(
    policy: Policy,
    chunks: Sequence[Chunk],
    budget: int,
    prompt_chunks: int,
    prompting: Prompting | None = None,
    rope: CacheRope | None = None,
    tokens: Sequence[int] | None = None,
) -> list[Step]:
    """One layer; ``chunks``: (q (H·G, m, D), k (H, m, D), v (H, m, D)), the first ``prompt_chunks`` the prompt.

    ``tokens``: ids of prompt and generation, for policies that read them.
    """
    return run_layers(policy, [chunks], budget, prompt_chunks, prompting, rope, tokens)[0]


def run_layers(
    policy: Policy,
    layers: Sequence[Sequence[Chunk]],
    budget: int,
    prompt_chunks: int,
    prompting: Prompting | None = None,
    rope: CacheRope | None = None,
    tokens: Sequence[int] | None = None,
    output_heads: Callable[[int], Tensor] | None = None,
) -> list[list[Step]]:
    """Several layers in lockstep, as a model runs them: ``layers[l]`` are the chunks of layer l.

    ``output_heads``: W_O by layer, `some_projection` if not given.
    """
    chunks = layers[0]
    sizes = [query.shape[1] for query, _, _ in chunks]
    length, decoded = sum(sizes[:prompt_chunks]), len(chunks) - prompt_chunks
    fed = [0] * sum(sizes) if tokens is None else list(tokens)
    row = Request(fed[:length], policy, budget, decoded + 1)
    plan = prompting or (Prompting("one_shot") if prompt_chunks == 1 else Prompting("blocked", sizes[0]))
    batch = Batch([row], plan, layers=len(layers), device=torch.device("cpu"))
    batch.rope = rope
    batch.rotation = plain_rotation(sum(sizes) + 512, chunks[0][0].shape[-1])
    batch.output_heads = output_heads or some_projection(chunks)
    steps: list[list[Step]] = [[] for _ in layers]
    start = 0
    for number, size in enumerate(sizes):
        phase = "prompt" if number < prompt_chunks else "decode"
        batch.begin(Feed.right_aligned([fed[start : start + size]], [start], batch.device), phase)
        outputs = []
        for index, layer in enumerate(batch.cache.layers):
            query, keys, values = layers[index][number]
            seen = layer.update(keys[None], values[None])
            outputs.append(attend_and_evict(batch, index, query[None], *seen, query.shape[-1] ** -0.5, None))
        batch.evict_deferred()
        batch.finish()
        for index, (layer, output) in enumerate(zip(batch.cache.layers, outputs, strict=True)):
            held = [sorted(head[head >= 0].tolist()) for head in layer.slot_positions[0]]
            state = {key.name: layer.state(key)[0].clone() for key in layer.states}
            steps[index].append(Step(held, output[0].transpose(0, 1), layer.slot_positions[0].clone(), state))
        start += size
    (ledger,) = batch.statistics.ledgers(batch.cache, batch.lengths, [group.rows for group in batch.groups])
    assert ledger.invalid == "", ledger.invalid
    return steps
