"""What is computed of prompts before the rows that need it: the oracle's future, and KVzip's repetition.

`look_ahead` reads and decodes the prompts of all oracle rows densely. For each token, layer and KV head it records the
attention that the token receives in all later passes; `CacheView.future` shows that to the policy.

`repeated` lets the model repeat the prompts of KVzip's rows, densely and one prompt at a time, for all budgets of a
prompt at once, and notes what every slot receives (policies.md 3.28); `CacheView.repetition` shows that.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, DynamicCache, PreTrainedModel

from harness.engine.attention.attend import attend, attending_by, capped, probabilities
from harness.engine.attention.mask import AttentionMask
from harness.engine.batch.batch import Batch
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.decode.logits import NextLogits
from harness.engine.requests import Prompting, Request
from policies import DENSE

if TYPE_CHECKING:
    from harness.engine.model_runner import ModelRunner


TOKENS_AT_ONCE = 64  # of a dense run that is recorded by the token: (R, H, G, 64, N) fp32 numbers exist at one time


class Future(Protocol):
    """The attention that each token of some rows still receives in their dense run."""

    def of(self, rows: Sequence[int], lengths: Sequence[int], layer: int | None = None) -> Tensor:
        """(r, H, T + new): received by each token in all passes after the first ``lengths`` tokens of these rows.

        Of one layer; of all of them (r · L, H, T + new) where none is given.
        """
        ...

    def for_rows(self, rows: Sequence[int]) -> Future:
        """The same for some of the rows."""
        ...


class Recorder:
    """A watcher of a dense run: what each token receives in each step, by layer.

    A step is a pass, or ``by_token`` a query row of it: rows that read token by token need to know what is left after
    each, and the dense run is the same in blocks. Memory: steps × L × prompts × H × (T + new) fp32 numbers; meant for
    short prompts and small models.
    """

    def __init__(self, by_token: bool = False) -> None:
        self.by_token = by_token
        self.steps: dict[int, list[Tensor]] = defaultdict(list)  # by layer: (R, H, T + new) per step
        self.lengths: list[list[int]] = []  # per step: tokens that each row has read

    def attended(self, work: LayerPass) -> None:
        """Record what the tokens receive in one layer of one pass; zeros in the first, which is no row's future."""
        rows, heads = work.positions.shape[:2]
        length = work.batch.fed.shape[1]
        if not self.lengths:
            self.steps[work.index].append(work.query.new_zeros(rows, heads, length, dtype=torch.float32))
            return
        if self.by_token:
            received = probabilities(work.query, work.keys, work.mask, work.scaling, work.softcap).mean(2)
        else:
            received = work.attention_of(slice(0, rows)).received("all").unsqueeze(2)
        steps = received.shape[2]
        token = torch.where(work.positions >= 0, work.positions, length).long().unsqueeze(2).expand_as(received)
        given = received.new_zeros(rows, heads, steps, length + 1).scatter_(-1, token, received)
        self.steps[work.index].extend(given[..., :-1].unbind(2))

    def evicted(self, work: LayerPass) -> None:
        """Nothing is evicted in a dense run."""

    def predicted(self, batch: Batch, logits: Tensor) -> None:
        """After a pass: note how many tokens each row has read after each of its steps."""
        steps = batch.feed.width if self.by_token and self.lengths else 1
        for missing in reversed(range(steps)):  # rows are right-aligned
            fed = zip(batch.lengths, batch.feed.widths, strict=True)
            self.lengths.append([length - min(missing, width) for length, width in fed])

    def future(self) -> Tensor:
        """(steps, R, L, H, T + new): what each token receives in all steps after this one. Empties the record."""
        layers = sorted(self.steps)
        rows, heads, length = self.steps[layers[0]][0].shape
        found = self.steps[layers[0]][0].new_zeros(len(self.lengths), rows, len(layers), heads, length)
        for place, layer in enumerate(layers):
            steps = self.steps.pop(layer)
            for number in range(len(steps) - 1, 0, -1):
                found[number - 1, :, place] = found[number, :, place] + steps[number]
        return found


@dataclass(frozen=True)
class DenseFutures:
    """The recorded futures of some prompts: one dense run per prompt, for all budgets of the oracle."""

    number: Mapping[Hashable, int] = field(default_factory=dict)  # by prompt: its row in ``future``
    future: Tensor = field(default_factory=lambda: torch.zeros(0))  # (steps, prompts, L, H, T + new)
    seen: Sequence[Sequence[int]] = ()  # by prompt: tokens read after each recorded step, ascending
    prompting: Prompting = field(default_factory=Prompting)
    repetitions: Mapping[Hashable, Tensor] = field(default_factory=dict)  # by `repetition_key`

    def attach_to(self, batch: Batch) -> None:
        """Let the oracle rows of a batch look ahead, and others see what their repeated prompts gave."""
        batch.repetitions = [
            self.repetitions[repetition_key(row)] if row.policy.repeats is not None else None for row in batch.rows
        ]
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

    def of(self, rows: Sequence[int], lengths: Sequence[int], layer: int | None = None) -> Tensor:
        """(r or r · L, H, T + new), see `Future`."""
        prompts = [self.prompts[row] for row in rows]
        future = self.recorded.future
        seen = [self.recorded.seen[prompt] for prompt in prompts]
        steps = [min(bisect_left(each, length), len(future) - 1) for each, length in zip(seen, lengths, strict=True)]
        return future[steps, prompts].flatten(0, 1) if layer is None else future[steps, prompts, layer]


@dataclass(frozen=True)
class FutureOfParts:
    """`Future` of rows merged from several batches, whose prompts were recorded apart."""

    each: Sequence[tuple[Future, int]]  # by row: what was recorded, and the row there

    def for_rows(self, rows: Sequence[int]) -> FutureOfParts:
        """The same for some of the rows."""
        return FutureOfParts([self.each[row] for row in rows])

    def of(self, rows: Sequence[int], lengths: Sequence[int], layer: int | None = None) -> Tensor:
        """(r or r · L, H, T + new), of the longest."""
        known = [self.each[row] for row in rows]
        found = [future.of([row], [length], layer) for (future, row), length in zip(known, lengths, strict=True)]
        longest = max(each.shape[-1] for each in found)
        return torch.cat([F.pad(each, (0, longest - each.shape[-1])) for each in found])


def look_ahead(runner: ModelRunner, rows: Sequence[Request], prompting: Prompting) -> DenseFutures:
    """Read and decode every prompt of an oracle row densely, and record it; repeat others."""
    repetitions = repeated(runner.model, rows)
    oracles = dense_runs(rows, prompting)
    if not oracles:
        return DenseFutures(repetitions=repetitions)
    recorder = Recorder(by_token=prompting.regime == "token_fed")
    dense = [replace(row, policy=replace(DENSE, rope=row.policy.rope), budget=0) for row in oracles]
    batch = Batch(
        dense,
        prompting,
        runner.config.num_hidden_layers,
        runner.model.device,
        [chunks_ahead(row, prompting) for row in oracles],
    )
    batch.watchers = (recorder,)
    collector = NextLogits.of(len(dense))
    runner.read_prompts(batch, collector)
    logits = runner.read_questions(batch, collector.logits)
    for _ in runner.decode_batch(batch, range(len(dense)), logits).run(lambda tokens: None):
        pass
    number = {_prompt(row, prompting): index for index, row in enumerate(oracles)}
    seen = list(zip(*recorder.lengths, strict=True))
    return DenseFutures(number, recorder.future(), seen, prompting, repetitions)


def dense_runs(rows: Sequence[Request], prompting: Prompting) -> list[Request]:
    """The oracle's rows, one of each prompt: what is read and decoded densely before the others.

    Of rows that read token by token it is the one with the smallest budget, whose first chunk ends first.
    """
    by_prompt: dict[Hashable, Request] = {}
    for row in rows:
        if row.policy.hindsight:
            known = by_prompt.setdefault(_prompt(row, prompting), row)
            if row.budget < known.budget:
                by_prompt[_prompt(row, prompting)] = row
    return list(by_prompt.values())


def chunks_ahead(row: Request, prompting: Prompting) -> list[tuple[int, int]]:
    """The passes in which its prompt is read densely: its own, or blocks where it is fed token by token."""
    first, *others = row.chunks(prompting)
    if prompting.regime != "token_fed" or not others:
        return [first, *others]
    stops = [*range(first[1], others[-1][1], TOKENS_AT_ONCE), others[-1][1]]
    return [first, *itertools.pairwise(stops)]


def _prompt(row: Request, prompting: Prompting) -> Hashable:
    ending = (row.max_new_tokens, row.min_new_tokens, row.stops, row.until, tuple(row.continuation))
    drawn = (row.temperature, row.top_p, row.seed)
    fed = () if prompting.regime == "token_fed" else tuple(row.chunks(prompting))
    return (tuple(row.tokens), tuple(row.question), ending, drawn, fed)


# The repetition of prompts.


NAME = "kvreplica_repetition"  # of the attention function of these passes
QUERIES_PER_TILE = 128  # whose probabilities are in memory at one time


class Repetition:
    """The scores of one prompt: ``scores`` (L, H, T) fp32, filled piece by piece while it is repeated."""

    def __init__(self, context: int, sinks: int) -> None:
        self.context, self.sinks = context, sinks  # tokens
        self.piece = range(0)  # that is being repeated
        self.by_layer: dict[int, Tensor] = {}  # (H, T)

    @property
    def scores(self) -> Tensor:
        """(L, H, T)."""
        return torch.stack([self.by_layer[layer] for layer in sorted(self.by_layer)])

    def note(self, layer: int, query: Tensor, keys: Tensor, scaling: float, softcap: float | None) -> None:
        """Of a layer's queries (1, H·G, m, D) and all keys (1, H, T + m, D): each slot's largest probability."""
        heads, own = keys.shape[1], query.shape[2]
        start, stop = self.piece.start, self.piece.stop
        shown = (keys[0, :, : min(self.sinks, start)], keys[0, :, start:stop], keys[0, :, self.context :])
        seen = torch.cat(shown, 1).float().unsqueeze(1)  # (H, 1, n, D)
        grouped = query[0].view(heads, -1, own, query.shape[-1]).float()
        before = seen.shape[2] - own
        index = torch.arange(own, device=query.device)
        strongest = seen.new_zeros(heads, stop - start)
        for first in range(0, own, QUERIES_PER_TILE):
            tile = slice(first, first + QUERIES_PER_TILE)
            logits = capped(grouped[:, :, tile] @ seen.transpose(-1, -2) * scaling, softcap)
            logits[..., before:].masked_fill_(index > index[tile, None], -torch.inf)
            given = logits.softmax(-1)[..., before - (stop - start) : before]
            strongest = strongest.maximum(given.amax((1, 2)))
        if layer not in self.by_layer:
            self.by_layer[layer] = seen.new_zeros(heads, self.context)
        self.by_layer[layer][:, start:stop] = strongest


@torch.inference_mode()
def repeated(model: PreTrainedModel, rows: Sequence[Request]) -> Mapping[Hashable, Tensor]:
    """By `repetition_key`, the scores (L, H, T) of each prompt whose policy reads them."""
    return {repetition_key(row): _repeated(model, row) for row in repeated_prompts(rows)}


def repeated_prompts(rows: Sequence[Request]) -> list[Request]:
    """Of the rows whose policy reads a repetition, one of each prompt."""
    return list({repetition_key(row): row for row in rows if row.policy.repeats is not None}.values())


def repetition_key(row: Request) -> Hashable:
    """Equal for rows whose prompts are repeated alike."""
    return tuple(row.tokens), row.policy.repeats, row.repeat


def _repeated(model: PreTrainedModel, row: Request) -> Tensor:
    assert row.policy.repeats is not None
    _, sinks = row.policy.repeats
    found, cache = Repetition(len(row.tokens), sinks), DynamicCache()
    decoder = model.get_decoder()
    with _noting(model, found):
        decoder(input_ids=_fed(row.tokens, model), past_key_values=cache, use_cache=True)
        for found.piece, tokens in row.pieces_repeated():
            places = torch.arange(found.context, found.context + len(tokens), device=model.device)
            decoder(input_ids=_fed(tokens, model), position_ids=places[None], past_key_values=cache, use_cache=True)
            cache.crop(-len(tokens))
    return found.scores


def _fed(tokens: Sequence[int], model: PreTrainedModel) -> Tensor:
    return torch.tensor([list(tokens)], device=model.device)


@contextmanager
def _noting(model: PreTrainedModel, found: Repetition) -> Iterator[None]:
    """Within it the model attends causally to everything, and a piece that is being repeated is noted."""

    def attend_and_note(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **kwargs: Any
    ) -> Any:
        softcap = kwargs.get("softcap")
        if found.piece:
            found.note(module.layer_idx, query, key, scaling, softcap)
        tokens = torch.ones(query.shape[0], query.shape[2], dtype=torch.bool, device=query.device)
        slots = tokens.new_ones(len(tokens), 1, key.shape[2] - query.shape[2])
        return attend(query, key, value, AttentionMask(tokens, slots, plain=True), scaling, softcap), None

    AttentionInterface.register(NAME, attend_and_note)
    with attending_by(model, NAME):
        yield
