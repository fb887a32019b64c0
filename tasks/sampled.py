"""Drawn answers: the samples of a task that writes text, each answered several times at a temperature."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tasks.base import Mode, Sample, Task, TaskError, Tokenizer, whole

MOST_ANSWERS = 1_000  # to one question
MOST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn. Temperature 0 is greedy decoding: one answer, always the same."""

    temperature: float = 0.0
    top_p: float = 1.0  # the fewest tokens whose probabilities reach it may be drawn
    answers: int = 1  # to each question
    seed: int = 0  # of the draws; that of the questions is the task's

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise TaskError(f"sampling.temperature must be from 0 (greedy) to 100; got {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise TaskError(f"sampling.top_p must be above 0 and at most 1 (draw from all tokens); got {self.top_p}.")
        whole("sampling.answers", self.answers, 1, MOST_ANSWERS)
        whole("sampling.seed", self.seed, 0, MOST_SEED)
        if self.is_greedy and (self.answers > 1 or self.top_p < 1 or self.seed):
            raise TaskError(
                "sampling.temperature=0 chooses the likeliest token, so answers, top_p and seed mean nothing: "
                "set sampling.temperature, or leave them out."
            )

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0

    @property
    def label(self) -> str:
        """``T=0.6 p=0.95``: what tells its rows from greedy ones and from others."""
        words = [f"T={self.temperature:g}"]
        words += [f"p={self.top_p:g}"] * (self.top_p < 1) + [f"seed={self.seed}"] * (self.seed > 0)
        return " ".join(words)


@dataclass(frozen=True)
class SampledAnswers(Task):
    """A task whose samples are answered ``sampling.answers`` times each; all answers to one question are one document.

    So means are over all answers, and intervals resample questions (`harness.analysis.statistics`). The axis ``answer``
    counts the answers to a question. More answers later keep the ones that are there.
    """

    task: Task
    sampling: Sampling

    @property
    def name(self) -> str:  # type: ignore[override]
        """Of the task."""
        return self.task.name

    @property
    def version(self) -> str:  # type: ignore[override]
        """Of the task."""
        return self.task.version

    @property
    def asks_last(self) -> bool:  # type: ignore[override]
        """As the task."""
        return self.task.asks_last

    @property
    def data(self) -> str:
        """Where the task's rows lie, if it has any."""
        return getattr(self.task, "data", "")

    @property
    def label(self) -> str:
        """``gsm8k/zero_shot (T=0.6 p=0.95)``."""
        return f"{self.task.label} ({self.sampling.label})"

    @property
    def mode(self) -> Mode:
        """As the task: "generate"."""
        return self.task.mode

    @property
    def metrics(self) -> tuple[str, ...]:
        """Of the task."""
        return self.task.metrics

    @property
    def settings(self) -> dict[str, Any]:
        """Of the task and of the draws. The number of answers is left out: it changes none of them."""
        drawn = asdict(self.sampling)
        del drawn["answers"]
        return {**self.task.settings, "sampling": drawn}

    def revision(self) -> Mapping[str, str]:
        """Of the task."""
        return self.task.revision()

    def samples(self, tokenizer: Tokenizer) -> Sequence[Sample]:
        """The answers to each question one after the other."""
        return self._answers(self.task.samples(tokenizer))

    def first(self, tokenizer: Tokenizer, count: int | None = None) -> Sequence[Sample]:
        """The first ``count`` answers."""
        questions = None if count is None else -(-count // self.sampling.answers)
        return self._answers(self.task.first(tokenizer, questions))[:count]

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """Of the task."""
        return self.task.score(sample, prediction)

    def _answers(self, questions: Sequence[Sample]) -> list[Sample]:
        return [
            replace(
                question,
                id=f"{question.id}#{answer}",
                document=question.document or question.id,
                axes={**question.axes, "answer": answer},
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                seed=self._seed(question, answer),
            )
            for question in questions
            for answer in range(self.sampling.answers)
        ]

    def _seed(self, question: Sample, answer: int) -> int:
        text = f"{self.sampling.seed}:{question.id}:{answer}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def with_sampling(task: Task, sampling: Sampling) -> Task:
    """The task with drawn answers; itself where nothing is drawn. Raises `TaskError` where no text is generated."""
    if sampling.is_greedy:
        return task
    if task.mode != "generate":
        raise TaskError(
            f"{task.label} asks for no text (mode {task.mode}), so there is nothing to draw: leave "
            "sampling.temperature out, or choose a task that generates answers."
        )
    return SampledAnswers(task, sampling)
