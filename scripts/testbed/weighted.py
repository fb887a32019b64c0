"""Token ids with the loss weight of each, and what the weights are."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST = 16.0  # the first token of an answer, which says whether the right place was found,
ANSWER = 8.0  # and the tokens after it
PROSE = 1.0
RANDOM = 0.1  # words and numbers drawn at random, where they stand for the first time
ASKING = 0.3  # the text of a question
BOS = 0


@dataclass
class Tokens:
    """Ids with the loss weight of each."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, ids: list[int], weights: list[float]) -> None:
        """Tokens and their loss weights, behind those before."""
        self.ids += ids
        self.weights += weights

    def first(self, count: int) -> Tokens:
        """No more than ``count`` of them."""
        return Tokens(self.ids[:count], self.weights[:count])

    def __len__(self) -> int:
        return len(self.ids)
