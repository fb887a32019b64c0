"""Decode: one token per row and pass, greedy, drawn or teacher-forced. Finished rows leave, rows of later waves join.

A `Sampler` decides what one row feeds next. A `DecodeBatch` runs the rows of one `Batch` in lockstep;
`ContinuousBatching` lets rows whose prompts have been read since take the places of finished ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from harness.engine.batch.batch import Batch
from harness.engine.decode.merge import merge_batches, merge_key
from harness.engine.requests import Ledger, Request, RequestOutput

if TYPE_CHECKING:
    from harness.engine.model_runner import ModelRunner


OUTCOMES_EVERY = 15.0  # seconds, at most, that the outcome of a finished row is held back while others decode


class Sampler(Protocol):
    """Chooses the tokens of one row."""

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed next; None once the row is finished.

        ``logits`` (vocabulary,) follow all tokens fed so far; ``first_choice`` is the token of the largest.
        """
        ...

    def outcome(self, ledger: Ledger) -> RequestOutput:
        """The row's result."""
        ...


@dataclass
class GreedySampler:
    """Generates the model's first choice; stop tokens are barred from the first ``min_new_tokens``."""

    row: Request
    stops: frozenset[int]  # the row's own and the model's
    tokens: list[int] = field(default_factory=list)  # generated so far

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed; None after the last one, which need not be fed."""
        if not self.row.max_new_tokens:
            return None
        token = self._choice(first_choice, logits)
        self.tokens.append(token)
        done = len(self.tokens) == self.row.max_new_tokens or token in self.stops
        return None if done or (self.row.until is not None and self.row.until(self.tokens)) else token

    def outcome(self, ledger: Ledger) -> RequestOutput:
        """The generated tokens, without the stop token."""
        return RequestOutput(ledger, [token for token in self.tokens if token not in self.stops])

    def _choice(self, first_choice: int, logits: Tensor) -> int:
        if first_choice in self.stops and len(self.tokens) < self.row.min_new_tokens:
            return int(self._without_stops(logits).argmax(-1))
        return first_choice

    def _without_stops(self, logits: Tensor) -> Tensor:
        return logits.index_fill(-1, torch.tensor(sorted(self.stops), device=logits.device), -torch.inf)


@dataclass
class RandomSampler(GreedySampler):
    """Draws each token: temperature first, then the fewest tokens whose probabilities reach ``top_p``.

    A row has its own random numbers, one for each token. Equal rows under several policies therefore draw at the same
    points of their distributions, so that their answers differ only as far as their caches do.
    """

    def __post_init__(self) -> None:
        self.numbers = random.Random(self.row.seed)

    def _choice(self, first_choice: int, logits: Tensor) -> int:
        if self.stops and len(self.tokens) < self.row.min_new_tokens:
            logits = self._without_stops(logits)
        tokens, mass = nucleus(logits, self.row.temperature, self.row.top_p)
        point = self.numbers.random() * mass[-1]
        return int(tokens[torch.searchsorted(mass, point, right=True).clamp(max=len(tokens) - 1)])


def nucleus(logits: Tensor, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """The tokens that may be drawn, likeliest first, and the probability up to and with each of them, fp64.

    These are the fewest tokens whose probabilities at this temperature reach ``top_p`` (Holtzman et al. 2020, arXiv
    1904.09751): the order of transformers, which scales before it cuts.
    """
    ordered, tokens = (logits.double() / temperature).softmax(-1).sort(descending=True, stable=True)
    mass = ordered.cumsum(-1)
    kept = max(1, int((mass - ordered < top_p).sum()))
    return tokens[:kept], mass[:kept]


@dataclass
class TeacherForcing:
    """Feeds the row's continuation and keeps the likelihood of each of its tokens."""

    row: Request
    nll: list[Tensor] = field(default_factory=list)
    greedy: bool = True

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The next token of the continuation; None at the last one, whose likelihood is now known."""
        token = self.row.continuation[len(self.nll)]
        self.nll.append(-logits.float().log_softmax(-1)[token])
        self.greedy &= first_choice == token
        return None if len(self.nll) == len(self.row.continuation) else token

    def outcome(self, ledger: Ledger) -> RequestOutput:
        """Nats per token of the continuation."""
        return RequestOutput(ledger, nll=torch.stack(self.nll).tolist(), greedy=self.greedy)


@dataclass
class DecodeBatch:
    """Rows of one batch that decode in lockstep.

    Finished rows wait as padding until they are half of the batch. Then they leave, and the others go on in a smaller
    batch, or merged with rows whose prompts have been read meanwhile. Each outcome is given out once.
    """

    runner: ModelRunner
    batch: Batch
    indices: list[int]  # of each row among the caller's
    samplers: list[Sampler]
    next_tokens: list[int | None]  # what each row feeds next; None once it is finished
    given_out: set[int] = field(default_factory=set)  # of the caller's indices: finished rows whose outcomes it has

    @staticmethod
    def start(
        runner: ModelRunner, batch: Batch, indices: Sequence[int], logits: Tensor, samplers: Sequence[Sampler]
    ) -> DecodeBatch:
        """After the prompts: ``logits`` (R, vocabulary) are those that follow them."""
        return DecodeBatch(runner, batch, list(indices), list(samplers), _next_tokens(samplers, logits))

    @property
    def active(self) -> list[int]:
        """Rows that are not finished."""
        return [row for row, token in enumerate(self.next_tokens) if token is not None]

    @property
    def slots(self) -> int:
        """Slots that the active rows need at most."""
        return sum(self.batch.rows[row].capacity for row in self.active)

    @property
    def width(self) -> int:
        """Slots that each row attends over, at most: those of the row that needs most."""
        return max((self.batch.rows[row].capacity for row in self.active), default=0)

    def run(self, observe: Callable[[int], None]) -> Iterator[tuple[int, RequestOutput]]:
        """Decode until every row is finished: the caller's indices and the outcomes."""
        while self.active:
            yield from self.advance(observe)
        yield from self.pop_finished()

    def advance(self, observe: Callable[[int], None]) -> Iterator[tuple[int, RequestOutput]]:
        """One pass. Finished rows leave before it once they are half of the batch: their indices and outcomes."""
        if 2 * len(self.active) <= len(self.next_tokens) and not self.batch.watchers:
            yield from self.pop_finished()
        logits = self.runner.step(self.batch, [[] if token is None else [token] for token in self.next_tokens])
        observe(sum(self.batch.feed.widths))
        self.next_tokens = _next_tokens(self.samplers, logits[:, -1], [token is None for token in self.next_tokens])

    def pop_finished(self) -> Iterator[tuple[int, RequestOutput]]:
        """Remove the finished rows: the caller's indices and the outcomes that it does not have yet."""
        active = self.active
        if len(active) == len(self.next_tokens):
            return
        yield from self.new_outcomes()
        if active:
            self.batch, _ = merge_batches((self.batch, active))
        self.indices = [self.indices[row] for row in active]
        self.samplers = [self.samplers[row] for row in active]
        self.next_tokens = [self.next_tokens[row] for row in active]

    def new_outcomes(self) -> Iterator[tuple[int, RequestOutput]]:
        """The caller's indices and outcomes of finished rows that it does not have yet. The rows stay."""
        finished = [row for row, token in enumerate(self.next_tokens) if token is None]
        new = [row for row in finished if self.indices[row] not in self.given_out]
        if new:
            ledgers = self.runner.ledgers(self.batch)
            self.given_out |= {self.indices[row] for row in new}
            yield from ((self.indices[row], self.samplers[row].outcome(ledgers[row])) for row in new)

    @staticmethod
    def merged(parts: Sequence[DecodeBatch]) -> DecodeBatch:
        """All rows of these, whose batches have equal `merge_key`s."""
        if len(parts) == 1:
            return parts[0]
        batch, order = merge_batches(*((each.batch, range(len(each.next_tokens))) for each in parts))
        indices = [index for each in parts for index in each.indices]
        samplers = [sampler for each in parts for sampler in each.samplers]
        next_tokens = [token for each in parts for token in each.next_tokens]
        return DecodeBatch(
            parts[0].runner, batch, [indices[row] for row in order], [samplers[row] for row in order],
            [next_tokens[row] for row in order], set().union(*(each.given_out for each in parts)),
        )  # fmt: skip


class ContinuousBatching:
    """Rows come in waves and decode together: rows of a later wave take the places of finished ones.

    Rows wait until their whole wave has been read. Then whatever has most rows decodes, until those that still wait
    need no more slots than this wave brought: the next one finds its place, and two waves at most are held at one time.
    A row costs less, the more decode beside it, so the smallest batches wait longest, for rows to join them.
    """

    def __init__(self, observe: Callable[[int], None], slots_worth_a_pass: int) -> None:
        self.observe, self.slots_worth_a_pass = observe, slots_worth_a_pass
        self._waiting: dict[Hashable, list[DecodeBatch]] = {}  # by `merge_key` as they came; merged once they decode
        self._brought = 0  # slots, by the wave that is being read
        self._next_look = time.monotonic() + OUTCOMES_EVERY  # for finished rows that have not left their batch

    def add(self, part: DecodeBatch) -> Iterator[tuple[int, RequestOutput]]:
        """Rows of the wave whose prompts are read: the caller's indices and outcomes of those that need no step.

        Watched rows decode at once and by themselves.
        """
        self._brought += sum(row.capacity for row in part.batch.rows)
        yield from part.run(self.observe) if part.batch.watchers else part.pop_finished()
        if part.next_tokens:
            self._waiting.setdefault(merge_key(part.batch), []).append(part)

    def make_room(self) -> Iterator[tuple[int, RequestOutput]]:
        """After a wave: decode until another one fits. Indices and outcomes of all rows that finish."""
        while sum(part.slots for parts in self._waiting.values() for part in parts) > self._brought:
            yield from self._advance()
        for parts in self._waiting.values():
            for part in parts:
                yield from part.pop_finished()
        self._brought = 0

    def drain(self) -> Iterator[tuple[int, RequestOutput]]:
        """After the last wave: decode all rows to their end."""
        while self._waiting:
            yield from self._advance()

    def _advance(self) -> Iterator[tuple[int, RequestOutput]]:
        """One pass of the most rows that had better decode together."""
        lots = [(key, *join(parts, self.slots_worth_a_pass)) for key, parts in self._waiting.items()]
        key, joined, others = max(lots, key=lambda lot: sum(len(part.active) for part in lot[1]))
        if len(joined) > 1:
            for part in joined:
                yield from part.pop_finished()
        decoding = DecodeBatch.merged(joined)
        self._waiting[key] = [decoding, *others]
        yield from decoding.advance(self.observe)
        if not decoding.active:
            yield from decoding.pop_finished()
            self._waiting[key] = others
        if not self._waiting[key]:
            del self._waiting[key]
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + OUTCOMES_EVERY
            for part in [part for parts in self._waiting.values() for part in parts]:
                yield from part.new_outcomes()


def join(parts: Sequence[DecodeBatch], slots_worth_a_pass: int) -> tuple[list[DecodeBatch], list[DecodeBatch]]:
    """The batch with most active rows and those that had better decode with it, and the others.

    A batch that joins saves a pass of its own, in which all weights are read. In return, rows attend over as many empty
    slots as they have fewer than the widest. It joins where these are worth less, ``slots_worth_a_pass`` for each pass
    that is saved, and where they are not more than the slots in use: empty slots take memory, too.
    """
    first = max(parts, key=lambda part: len(part.active))
    joined: list[DecodeBatch] = [first]
    others: list[DecodeBatch] = []
    for part in sorted((part for part in parts if part is not first), key=lambda part: abs(part.width - first.width)):
        lot = [*joined, part]
        widest, used = max(each.width for each in lot), sum(each.width * len(each.active) for each in lot)
        empty = widest * sum(len(each.active) for each in lot) - used
        pays = empty <= min(slots_worth_a_pass * len(joined), used)
        (joined if pays else others).append(part)
    return joined, others


def _next_tokens(
    samplers: Sequence[Sampler], logits: Tensor, finished: Sequence[bool] | None = None
) -> list[int | None]:
    """By row of the batch; None for rows that are finished."""
    first_choices = logits.argmax(-1).tolist()
    return [
        None if finished is not None and finished[row] else sampler.next(first_choices[row], logits[row])
        for row, sampler in enumerate(samplers)
    ]
