"""The dense run of a prompt, recorded so that the oracle can look ahead."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.batch.batch import Batch, Future
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.decode.logits import NextLogits
from harness.engine.requests.request import Prompting, Request
from policies import DENSE

if TYPE_CHECKING:
    from harness.engine.engine import Engine


class Recorder:
    """A watcher of a dense run: what each slot receives in each pass, by layer and place in the text.

    Memory: passes × L × prompts × H × (T + new) fp32 numbers; meant for short prompts and small models.
    """

    def __init__(self) -> None:
        self.passes: dict[int, list[Tensor]] = defaultdict(list)  # by layer: (R, H, T + new) per pass
        self.lengths: list[list[int]] = []  # per pass: tokens that each row has read

    def attended(self, work: LayerPass) -> None:
        """One layer of one pass."""
        received = work.attention_of(slice(0, len(work.cohort.rows))).received("all")
        length = work.cohort.fed.shape[1]
        place = torch.where(work.positions >= 0, work.positions, length).long()
        by_place = received.new_zeros(*received.shape[:2], length + 1)
        self.passes[work.index].append(by_place.scatter_(-1, place, received)[..., :-1])

    def settled(self, work: LayerPass) -> None:
        """Nothing is evicted in a dense run."""

    def predicted(self, cohort: Batch, logits: Tensor) -> None:
        """A pass is over. Logits are not needed."""
        self.lengths.append(list(cohort.lengths))

    def future(self) -> dict[int, Tensor]:
        """By layer: (passes, R, H, T + new), what each place receives in all passes after this one."""
        return {layer: _after(torch.stack(passes)) for layer, passes in self.passes.items()}


@dataclass(frozen=True)
class Hindsight:
    """Recorded futures: one dense run per prompt, whatever the number of budgets that look back from it."""

    number: Mapping[Hashable, int] = field(default_factory=dict)  # by prompt: its row in ``future``
    future: Mapping[int, Tensor] = field(default_factory=dict)  # by layer: (passes, prompts, H, T + new)
    seen: Sequence[Sequence[int]] = ()  # by prompt: tokens read after each recorded pass, ascending
    prompting: Prompting = field(default_factory=Prompting)

    def show(self, cohort: Batch) -> None:
        """Give a cohort the futures of its oracle rows."""
        prompts = [self.number.get(_prompt(row, self.prompting), -1) for row in cohort.rows]
        cohort.future = FutureOfRows(self, prompts)


@dataclass(frozen=True)
class FutureOfRows:
    """`harness.engine.batch.batch.Future` for the rows of one cohort, each of which reads at its own pace."""

    hindsight: Hindsight
    prompts: Sequence[int]  # by row

    def for_rows(self, rows: Sequence[int]) -> FutureOfRows:
        """Of some of the rows."""
        return replace(self, prompts=[self.prompts[row] for row in rows])

    def of(self, layer: int, rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(r, H, T + new)."""
        prompts = [self.prompts[row] for row in rows]
        recorded = self.hindsight.future[layer]
        seen = [self.hindsight.seen[prompt] for prompt in prompts]
        passes = [min(bisect_left(each, length), len(recorded) - 1) for each, length in zip(seen, lengths, strict=True)]
        return recorded[passes, prompts]


@dataclass(frozen=True)
class FutureOfParts:
    """The same for rows of several cohorts, whose prompts were recorded apart."""

    each: Sequence[tuple[Future, int]]  # by row: what was recorded, and the row there

    def for_rows(self, rows: Sequence[int]) -> FutureOfParts:
        """Of some of the rows."""
        return FutureOfParts([self.each[row] for row in rows])

    def of(self, layer: int, rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(r, H, T + new), of the longest."""
        known = [self.each[row] for row in rows]
        found = [future.of(layer, [row], [length]) for (future, row), length in zip(known, lengths, strict=True)]
        longest = max(each.shape[-1] for each in found)
        return torch.cat([F.pad(each, (0, longest - each.shape[-1])) for each in found])


def look_ahead(engine: Engine, rows: Sequence[Request], prompting: Prompting) -> Hindsight:
    """Read and decode every prompt of an oracle row densely, in the same chunks, and record it."""
    asking = {_prompt(row, prompting): row for row in rows if row.policy.hindsight}
    if not asking:
        return Hindsight()
    recorder = Recorder()
    dense = [replace(row, policy=replace(DENSE, rope=row.policy.rope), budget=0) for row in asking.values()]
    cohort = Batch(
        dense,
        prompting,
        engine.config.num_hidden_layers,
        engine.model.device,
        [row.chunks(prompting) for row in asking.values()],
    )
    cohort.watchers = (recorder,)
    heard = NextLogits.of(len(dense))
    engine.read_prompts(cohort, heard)
    for _ in engine.talk(cohort, range(len(dense)), heard.following).go_on(lambda tokens: None):
        pass
    number = {prompt: index for index, prompt in enumerate(asking)}
    return Hindsight(number, recorder.future(), list(zip(*recorder.lengths, strict=True)), prompting)


def _prompt(row: Request, prompting: Prompting) -> Hashable:
    ending = (row.max_new_tokens, row.min_new_tokens, row.stops, row.until, tuple(row.continuation))
    return (tuple(row.tokens), ending, tuple(row.chunks(prompting)))


def _after(passes: Tensor) -> Tensor:
    return passes.sum(0) - passes.cumsum(0)
