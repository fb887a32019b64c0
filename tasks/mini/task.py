"""What all tasks of the mini suite share: samples of given lengths from the held-out material."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import ClassVar

from tasks import revision
from tasks.base import Sample, Task, TaskError, Tokenizer
from tasks.checks import grid, whole
from tasks.haystack import most_that_fit
from tasks.mini.exercise import Exercise
from tasks.mini.material import Material, material, sources
from tasks.novels import BOOKS

SMALLEST = 60  # characters of context; what each writer must have besides is added by itself


def found(reference: str, prediction: str) -> float:
    """1 if the reference occurs in the prediction, else 0: RULER's string match.

    What follows it does not count: under eviction a model often finds an answer and forgets to stop.
    """
    return float(reference in prediction)


@dataclass(frozen=True)
class MiniTask(Task):
    """Samples of ``lengths`` tokens (special tokens and question included), ``repeats`` of each.

    A prompt is never longer than asked, and shorter by less than what the next word, line or passage would add.
    Generation ends with the line. A sample depends on the seed and on its own length and repeat only.
    """

    version: ClassVar[str] = "2"
    scorers: ClassVar[tuple[Callable[..., object], ...]]  # their sources are part of the revision
    max_new_tokens: ClassVar[int] = 12

    lengths: tuple[int, ...] = (512, 1024)  # tokens
    repeats: int = 20  # samples for each length
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", grid(f"{self.name}.lengths", self.lengths, 1))
        object.__setattr__(self, "repeats", whole(f"{self.name}.repeats", self.repeats, 1))
        object.__setattr__(self, "seed", whole(f"{self.name}.seed", self.seed, 0))

    @staticmethod
    def write(rng: random.Random, source: Material, size: int) -> Exercise:
        """An exercise with about ``size`` characters of context."""
        raise NotImplementedError

    def revision(self) -> dict[str, str]:
        """The held-out novels, the words and wordings, and the scoring functions."""
        return {
            "data": revision.of_files(*BOOKS),
            "prompts": revision.of_files(*sources()),
            "metrics": revision.of_sources(*self.scorers),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Repeats outermost: every prefix covers the lengths evenly."""
        return self.first(tokenizer)

    def first(self, tokenizer: Tokenizer, count: int | None = None) -> list[Sample]:
        """Only these are made."""
        points = islice(product(range(self.repeats), self.lengths), count)
        return [self._sample(tokenizer, length, repeat) for repeat, length in points]

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """Whether the first reference is found."""
        return {"string_match": found(sample.references[0], prediction)}

    def _sample(self, tokenizer: Tokenizer, length: int, repeat: int) -> Sample:
        def draft(size: int) -> Exercise:
            rng = random.Random(f"{self.name}/{self.seed}/{length}/{repeat}")
            return self.write(rng, material("test"), size)

        def tokens(size: int) -> int:
            return len(tokenizer.encode(draft(size).prompt))

        if (needed := tokens(SMALLEST)) > length:
            raise TaskError(
                f"{self.name}.lengths has {length}, which is too short: the smallest prompt takes {needed} tokens "
                f"with this tokenizer. Use {needed * 5 // 4 // 8 * 8 + 8} or more."
            )
        exercise = draft(most_that_fit(tokens, length, SMALLEST, 12 * length))
        question = exercise.questions[0]
        return Sample(
            id=f"L{length}-r{repeat}",
            prompt=exercise.prompt,
            references=question.references,
            max_new_tokens=self.max_new_tokens,
            until=("\n",),
            document=f"{self.name}-L{length}-r{repeat}",
            axes={"length": length} | ({"form": exercise.form} if exercise.form else {}),
        )
