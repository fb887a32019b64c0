"""After the prompt: greedy generation, or given text, one token per row and pass. Finished rows leave, others come."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from harness.engine.batch.batch import Batch
from harness.engine.decode.merge import merge_batches, merge_key
from harness.engine.requests.ledger import Ledger
from harness.engine.requests.request import Request, RequestOutput

if TYPE_CHECKING:
    from harness.engine.engine import Engine


class Sampler(Protocol):
    """Says what one row feeds next."""

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed, from the logits (vocabulary,) that follow all earlier ones and the largest of them; None
        once there is nothing more to feed."""
        ...

    def outcome(self, ledger: Ledger) -> RequestOutput:
        """What it came to."""
        ...


@dataclass
class GreedySampler:
    """Generates: the first choice of the model, from which ``stops`` are barred among the first tokens."""

    row: Request
    stops: frozenset[int]  # the row's own and the model's
    said: list[int] = field(default_factory=list)

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed; None after the last, which nobody has to feed."""
        if not self.row.max_new_tokens:
            return None
        token = first_choice
        if token in self.stops and len(self.said) < self.row.min_new_tokens:
            barred = torch.tensor(sorted(self.stops), device=logits.device)
            token = int(logits.index_fill(-1, barred, -torch.inf).argmax(-1))
        self.said.append(token)
        done = len(self.said) == self.row.max_new_tokens or token in self.stops
        return None if done or (self.row.until is not None and self.row.until(self.said)) else token

    def outcome(self, ledger: Ledger) -> RequestOutput:
        """The stop token is not returned."""
        return RequestOutput(ledger, [token for token in self.said if token not in self.stops])


@dataclass
class TeacherForcing:
    """Feeds the row's continuation and keeps the likelihood of each of its tokens."""

    row: Request
    nll: list[Tensor] = field(default_factory=list)
    greedy: bool = True

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed; None at the last, whose likelihood is known."""
        token = self.row.continuation[len(self.nll)]
        self.nll.append(-logits.float().log_softmax(-1)[token])
        self.greedy &= first_choice == token
        return None if len(self.nll) == len(self.row.continuation) else token

    def outcome(self, ledger: Ledger) -> RequestOutput:
        """Nats per token of the continuation."""
        return RequestOutput(ledger, nll=torch.stack(self.nll).tolist(), greedy=self.greedy)


@dataclass
class DecodeBatch:
    """Rows of one cohort that generate, or feed given text, in lockstep.

    Rows that are finished wait as padding until they are half of the cohort; then they leave, and the others go on in
    a smaller one, or together with others whose prompts have been read meanwhile.
    """

    engine: Engine
    cohort: Batch
    places: list[int]  # of each row among the caller's
    speakers: list[Sampler]
    said: list[int | None]  # what each row feeds next; None once it is finished

    @staticmethod
    def begun(
        engine: Engine, cohort: Batch, places: Sequence[int], following: Tensor, speakers: Sequence[Sampler]
    ) -> DecodeBatch:
        """After the prompts: ``following`` (R, vocabulary) are the logits that came next."""
        return DecodeBatch(engine, cohort, list(places), list(speakers), _next(speakers, following))

    @property
    def speaking(self) -> list[int]:
        """Rows that are not finished."""
        return [row for row, token in enumerate(self.said) if token is not None]

    def go_on(self, observe: Callable[[int], None], until: int = 0) -> Iterator[tuple[int, RequestOutput]]:
        """Feed what is said until at most ``until`` rows speak: places and outcomes of those that leave."""
        while len(self.speaking) > until:
            if 2 * len(self.speaking) <= len(self.said) and not self.cohort.watchers:
                yield from self.leave()
            logits = self.engine.step(self.cohort, [[] if token is None else [token] for token in self.said])[:, -1]
            observe(sum(self.cohort.feed.widths))
            self.said = _next(self.speakers, logits, [token is None for token in self.said])
        yield from self.leave()

    def leave(self) -> Iterator[tuple[int, RequestOutput]]:
        """All that are finished, with their places and outcomes."""
        finished = [row for row, token in enumerate(self.said) if token is None]
        if not finished:
            return
        ledgers = self.engine.ledgers(self.cohort)
        yield from ((self.places[row], self.speakers[row].outcome(ledgers[row])) for row in finished)
        speaking = self.speaking
        if speaking:
            self.cohort, _ = merge_batches((self.cohort, speaking))
        self.places = [self.places[row] for row in speaking]
        self.speakers = [self.speakers[row] for row in speaking]
        self.said = [self.said[row] for row in speaking]

    def joined_by(self, others: DecodeBatch) -> DecodeBatch:
        """All rows of both, which must be of one `kind`."""
        cohort, order = merge_batches(*((talk.cohort, range(len(talk.said))) for talk in (self, others)))
        places, speakers = self.places + others.places, self.speakers + others.speakers
        said = self.said + others.said
        return DecodeBatch(
            self.engine, cohort, [places[row] for row in order], [speakers[row] for row in order],
            [said[row] for row in order],
        )  # fmt: skip


class ContinuousBatching:
    """The places of rows that decode together: those of finished rows go to rows whose prompts have been read since.

    Rows come in waves. A wave may begin to speak once no more rows than it has still speak of those before it, so that
    two waves at most are held at one time.
    """

    def __init__(self, observe: Callable[[int], None]) -> None:
        self.observe = observe
        self._waiting: dict[
            Hashable, DecodeBatch
        ] = {}  # by kind of cohort: at most as many rows as the last wave brought

    def take(self, talk: DecodeBatch, is_last: bool) -> Iterator[tuple[int, RequestOutput]]:
        """Let a wave's rows speak beside those that wait: places and outcomes of all that finish. Rows of the last wave
        go on to their end, those of others until the next one fits beside them."""
        wave = len(talk.said)
        yield from talk.leave()
        if not talk.said:
            return
        whose = merge_key(talk.cohort)  # as they came: those that are left may need fewer slots
        waiting = self._waiting.pop(whose, None)
        together = talk if waiting is None else waiting.joined_by(talk)
        yield from together.go_on(self.observe, 0 if is_last else wave)
        if together.said:
            self._waiting[whose] = together

    def clear(self) -> Iterator[tuple[int, RequestOutput]]:
        """After the last wave: those that still wait."""
        for talk in self._waiting.values():
            yield from talk.go_on(self.observe)
        self._waiting.clear()


def _next(speakers: Sequence[Sampler], logits: Tensor, waiting: Sequence[bool] | None = None) -> list[int | None]:
    """By row of the cohort; rows that wait are not asked."""
    first = logits.argmax(-1).tolist()
    return [
        None if waiting is not None and waiting[row] else speaker.next(first[row], logits[row])
        for row, speaker in enumerate(speakers)
    ]
