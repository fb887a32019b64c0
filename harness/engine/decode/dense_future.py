"""The dense run of a prompt, recorded so that the oracle policy can look ahead.

`look_ahead` reads and decodes the prompts of all oracle rows densely. For each token, layer and KV head it records the
attention that the token receives in all later passes; `CacheView.future` shows that to the policy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.batch.batch import Batch
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.decode.logits import NextLogits
from harness.engine.requests import Prompting, Request
from policies import DENSE

if TYPE_CHECKING:
    from harness.engine.engine import Engine


class Future(Protocol):
    """The attention that each token of some rows still receives in their dense run."""

    def of(self, layer: int, rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(r, H, T + new): received by each token in all passes after the first ``lengths`` tokens of these rows."""
        ...

    def for_rows(self, rows: Sequence[int]) -> Future:
        """The same for some of the rows."""
        ...


class Recorder:
    """A watcher of a dense run: what each token receives in each pass, by layer.

    Memory: passes × L × prompts × H × (T + new) fp32 numbers; meant for short prompts and small models.
    """

    def __init__(self) -> None:
        self.passes: dict[int, list[Tensor]] = defaultdict(list)  # by layer: (R, H, T + new) per pass
        self.lengths: list[list[int]] = []  # per pass: tokens that each row has read

    def attended(self, work: LayerPass) -> None:
        """Record what the tokens receive in one layer of one pass."""
        received = work.attention_of(slice(0, len(work.batch.rows))).received("all")
        length = work.batch.fed.shape[1]
        position = torch.where(work.positions >= 0, work.positions, length).long()
        by_token = received.new_zeros(*received.shape[:2], length + 1)
        self.passes[work.index].append(by_token.scatter_(-1, position, received)[..., :-1])

    def evicted(self, work: LayerPass) -> None:
        """Nothing is evicted in a dense run."""

    def predicted(self, batch: Batch, logits: Tensor) -> None:
        """After a pass: note how many tokens each row has read."""
        self.lengths.append(list(batch.lengths))

    def future(self) -> dict[int, Tensor]:
        """By layer: (passes, R, H, T + new), what each token receives in all passes after this one."""
        return {layer: _after(torch.stack(passes)) for layer, passes in self.passes.items()}


@dataclass(frozen=True)
class DenseFutures:
    """The recorded futures of some prompts: one dense run per prompt, for all budgets of the oracle."""

    number: Mapping[Hashable, int] = field(default_factory=dict)  # by prompt: its row in ``future``
    future: Mapping[int, Tensor] = field(default_factory=dict)  # by layer: (passes, prompts, H, T + new)
    seen: Sequence[Sequence[int]] = ()  # by prompt: tokens read after each recorded pass, ascending
    prompting: Prompting = field(default_factory=Prompting)

    def attach_to(self, batch: Batch) -> None:
        """Let the oracle rows of a batch look ahead."""
        prompts = [self.number.get(_prompt(row, self.prompting), -1) for row in batch.rows]
        batch.future = FutureOfRows(self, prompts)


@dataclass(frozen=True)
class FutureOfRows:
    """`Future` of the rows of one batch, each of which reads at its own pace."""

    recorded: DenseFutures
    prompts: Sequence[int]  # by row

    def for_rows(self, rows: Sequence[int]) -> FutureOfRows:
        """The same for some of the rows."""
        return replace(self, prompts=[self.prompts[row] for row in rows])

    def of(self, layer: int, rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(r, H, T + new), see `Future`."""
        prompts = [self.prompts[row] for row in rows]
        future = self.recorded.future[layer]
        seen = [self.recorded.seen[prompt] for prompt in prompts]
        passes = [min(bisect_left(each, length), len(future) - 1) for each, length in zip(seen, lengths, strict=True)]
        return future[passes, prompts]


@dataclass(frozen=True)
class FutureOfParts:
    """`Future` of rows merged from several batches, whose prompts were recorded apart."""

    each: Sequence[tuple[Future, int]]  # by row: what was recorded, and the row there

    def for_rows(self, rows: Sequence[int]) -> FutureOfParts:
        """The same for some of the rows."""
        return FutureOfParts([self.each[row] for row in rows])

    def of(self, layer: int, rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(r, H, T + new), of the longest."""
        known = [self.each[row] for row in rows]
        found = [future.of(layer, [row], [length]) for (future, row), length in zip(known, lengths, strict=True)]
        longest = max(each.shape[-1] for each in found)
        return torch.cat([F.pad(each, (0, longest - each.shape[-1])) for each in found])


def look_ahead(engine: Engine, rows: Sequence[Request], prompting: Prompting) -> DenseFutures:
    """Read and decode every prompt of an oracle row densely, in the same chunks, and record it."""
    oracles = {_prompt(row, prompting): row for row in rows if row.policy.hindsight}
    if not oracles:
        return DenseFutures()
    recorder = Recorder()
    dense = [replace(row, policy=replace(DENSE, rope=row.policy.rope), budget=0) for row in oracles.values()]
    batch = Batch(
        dense,
        prompting,
        engine.config.num_hidden_layers,
        engine.model.device,
        [row.chunks(prompting) for row in oracles.values()],
    )
    batch.watchers = (recorder,)
    collector = NextLogits.of(len(dense))
    engine.read_prompts(batch, collector)
    logits = engine.read_questions(batch, collector.logits)
    for _ in engine.decode_batch(batch, range(len(dense)), logits).run(lambda tokens: None):
        pass
    number = {prompt: index for index, prompt in enumerate(oracles)}
    return DenseFutures(number, recorder.future(), list(zip(*recorder.lengths, strict=True)), prompting)


def _prompt(row: Request, prompting: Prompting) -> Hashable:
    ending = (row.max_new_tokens, row.min_new_tokens, row.stops, row.until, tuple(row.continuation))
    drawn = (row.temperature, row.top_p, row.seed)
    return (tuple(row.tokens), tuple(row.question), ending, drawn, tuple(row.chunks(prompting)))


def _after(passes: Tensor) -> Tensor:
    return passes.sum(0) - passes.cumsum(0)
