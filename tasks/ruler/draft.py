"""A RULER sample before its size is settled, and the settings of each subset (``tasks/prompts/ruler.yaml``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tasks.base import TaskError
from tasks.checks import nearest
from tasks.haystack import most_that_fit
from tasks.templates import fill, prompts

GENERATED = ("niah", "variable_tracking", "common_words_extraction", "freq_words_extraction")  # not the QA subsets
SUBSETS: tuple[str, ...] = tuple(name for name, row in prompts("ruler")["tasks"].items() if row["task"] in GENERATED)


@dataclass(frozen=True)
class Settings:
    """One subset as RULER's ``synthetic.yaml`` and ``constants.py`` have it."""

    kind: str  # one of GENERATED
    arguments: Mapping[str, Any]
    template: str
    answer_prefix: str
    max_new_tokens: int

    @classmethod
    def of(cls, subset: str) -> Settings:
        """`TaskError` with the nearest where there is no such subset."""
        if subset not in SUBSETS:
            raise TaskError(f"RULER has no subset '{subset}'. {nearest(str(subset), SUBSETS)}")
        row = prompts("ruler")["tasks"][subset]
        base = prompts("ruler")["base"][row["task"]]
        return cls(row["task"], row["args"], base["template"], base["answer_prefix"], base["tokens_to_generate"])


@dataclass(frozen=True)
class Draft:
    """All of a sample but the size of its context, which is counted in words or lines.

    ``example`` is an answered question that stands before the asked one.
    """

    template: str
    answer_prefix: str
    fields: Mapping[str, object]
    context: Callable[[int], str]
    least: int  # the smallest context that holds everything asked for
    most: int  # the largest that there is material for
    references: tuple[str, ...]
    example: str = ""
    document: str = ""  # where the text was taken from, if from a text

    def prompt(self, size: int) -> str:
        """The prompt with ``size`` units of context."""
        return self.example + fill(self.template, context=self.context(size), **self.fields)

    @cached_property
    def answer(self) -> str:
        """The start of the answer."""
        return fill(self.answer_prefix, **self.fields)

    def fitted(self, tokens: Callable[[str], int], limit: int) -> str | None:
        """The prompt with the largest context for which it and the start of the answer measure ``limit`` at most.

        None where even the smallest does not fit. Raises `TaskError` where there is too little material.
        """

        def measure(size: int) -> int:
            return tokens(self.prompt(size) + self.answer)

        base = measure(self.least)
        if base > limit:
            return None
        step = min(self.most - self.least, 16)
        each = max((measure(self.least + step) - base) / max(step, 1), 0.25)
        # Twice what the first units promise is enough, and keeps the search away from prompts many times too long.
        most = min(self.most, self.least + 16 + int(2 * (limit - base) / each))
        size = most_that_fit(measure, limit, self.least, most)
        if size == self.most:
            raise TaskError(
                f"ruler.lengths has more than word lists and novels can fill: they make a prompt of {measure(size)} "
                "tokens (RULER's longer English word list is not included). Use less."
            )
        return self.prompt(size)
