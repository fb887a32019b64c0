"""After the prompt: greedy generation, or given text, one token per row and pass. Finished rows leave the cohort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from harness.engine.cohort import Cohort
from harness.engine.ledger import Ledger
from harness.engine.narrowing import narrowed
from harness.engine.rows import Outcome, Row

if TYPE_CHECKING:
    from harness.engine.run import Engine


class Speaker(Protocol):
    """Says what one row feeds next."""

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed, from the logits (vocabulary,) that follow all earlier ones and the largest of them; None
        once there is nothing more to feed."""
        ...

    def outcome(self, ledger: Ledger) -> Outcome:
        """What it came to."""
        ...


@dataclass
class Greedy:
    """Generates: the first choice of the model, from which ``stops`` are barred among the first tokens."""

    row: Row
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

    def outcome(self, ledger: Ledger) -> Outcome:
        """The stop token is not returned."""
        return Outcome(ledger, [token for token in self.said if token not in self.stops])


@dataclass
class Given:
    """Feeds the row's continuation and keeps the likelihood of each of its tokens."""

    row: Row
    nll: list[Tensor] = field(default_factory=list)
    greedy: bool = True

    def next(self, first_choice: int, logits: Tensor) -> int | None:
        """The token to feed; None at the last, whose likelihood is known."""
        token = self.row.continuation[len(self.nll)]
        self.nll.append(-logits.float().log_softmax(-1)[token])
        self.greedy &= first_choice == token
        return None if len(self.nll) == len(self.row.continuation) else token

    def outcome(self, ledger: Ledger) -> Outcome:
        """Nats per token of the continuation."""
        return Outcome(ledger, nll=torch.stack(self.nll).tolist(), greedy=self.greedy)


def decode(
    engine: Engine,
    cohort: Cohort,
    following: Tensor,
    speakers: Sequence[Speaker],
    observe: Callable[[int], None],
) -> Iterator[tuple[int, Outcome]]:
    """Feed every row what its speaker says until it says no more: the rows' places and outcomes, as they finish.

    ``following`` (R, vocabulary): the logits after the prompts. Rows that are finished wait as padding until they are
    half of the cohort; then the others go on without them.
    """
    places = list(range(len(cohort.rows)))
    said = _next(speakers, places, following)
    while True:
        speaking = [row for row, token in enumerate(said) if token is not None]
        if not speaking or (2 * len(speaking) <= len(said) and not cohort.watchers):
            ledgers = engine.ledgers(cohort)
            finished = [row for row, token in enumerate(said) if token is None]
            yield from ((places[row], speakers[places[row]].outcome(ledgers[row])) for row in finished)
            if not speaking:
                return
            cohort = narrowed(cohort, speaking)
            places, said = [places[row] for row in speaking], [said[row] for row in speaking]
        logits = engine.step(cohort, [[] if token is None else [token] for token in said])[:, -1]
        observe(sum(cohort.feed.widths))
        waiting = [token is None for token in said]
        said = _next(speakers, places, logits, waiting)


def _next(
    speakers: Sequence[Speaker], places: Sequence[int], logits: Tensor, waiting: Sequence[bool] | None = None
) -> list[int | None]:
    """By row of the cohort; rows that wait are not asked."""
    first = logits.argmax(-1).tolist()
    return [
        None if waiting is not None and waiting[row] else speakers[place].next(first[row], logits[row])
        for row, place in enumerate(places)
    ]
