"""An exercise: a context, and questions about it with their answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """``answer`` follows ``text`` directly: it starts with a space and ends before a line break."""

    text: str
    answer: str
    references: tuple[str, ...]  # what a scorer looks for in a prediction


@dataclass(frozen=True)
class Exercise:
    """Training asks all ``questions`` one after the other, a task only the first.

    ``predictable`` is whether the context is prose: lists of random words cannot be predicted, and training gives
    them little weight.
    """

    context: str
    questions: tuple[Question, ...]
    form: str = ""
    predictable: bool = True

    @property
    def prompt(self) -> str:
        """The context and the first question."""
        return f"{self.context}\n{self.questions[0].text}"


def asked_of(count: int, least: int = 6, share: int = 6) -> int:
    """How many of ``count`` entries training asks about: one in ``share``, ``least`` of a short list."""
    return min(max(least, count // share), count)
