"""RULER's needles measured by the likelihood of the right answer instead of by the text that a model writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tasks.base import Likelihood, Mode, Sample, TaskError, Tokenizer, nearest, sources_hash
from tasks.ruler import Ruler
from tasks.ruler_samples import SUBSETS, enumerated

# Needles whose answer can be written in one way only. The numbers of niah_multivalue have no order.
ONE_ANSWER = tuple(name for name in SUBSETS if name.startswith("niah_") and name != "niah_multivalue")


@dataclass(frozen=True)
class RulerAnswers(Ruler):
    """RULER's needles by likelihood: the right answer's probability, and whether greedy decoding would write it.

    The samples are those of the task ruler. The right answer, ``" 4175312"`` or ``" 4175312, 9013844, and 2210487"``,
    follows the start of the answer and is fed as if the model had written it, under eviction.

    Metrics: ``answer_probability``, the geometric mean of the probabilities of its tokens, and ``greedy``, 1 where each
    of them is the model's first choice, so that it would have written this answer. A right or wrong answer is one bit
    of a sample; the probability tells policies apart with far fewer samples. Digits by chance have .1 each.

    Source: ours; the accuracy of LAMBADA in lm-evaluation-harness is ``greedy``.
    """

    name: ClassVar[str] = "ruler_answers"
    version: ClassVar[str] = "1"
    mode: ClassVar[Mode] = "continuations"
    metrics: ClassVar[tuple[str, ...]] = ("answer_probability", "greedy")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset not in ONE_ANSWER:
            raise TaskError(
                f"The right answer of RULER's {self.subset} can be written in several ways, so that it has no one "
                f"likelihood. {nearest(self.subset, ONE_ANSWER)}"
            )

    def revision(self) -> dict[str, str]:
        """As for the task ruler, with the code of these metrics."""
        return super().revision() | {"metrics": sources_hash(answer_probability)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Those of the task ruler, with the right answer as their continuation."""
        return [
            replace(sample, continuations=(f" {enumerated(sample.references)}",), max_new_tokens=0)
            for sample in super().samples(tokenizer)
        ]

    def score_continuations(self, sample: Sample, likelihoods: Sequence[Likelihood]) -> dict[str, float]:
        """Of the right answer, the only continuation."""
        (answer,) = likelihoods
        return {"answer_probability": answer_probability(answer), "greedy": float(answer.greedy)}


def answer_probability(answer: Likelihood) -> float:
    """The geometric mean of the probabilities of an answer's tokens, each given those before it."""
    return math.exp(answer.nats / answer.tokens)
