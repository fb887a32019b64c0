"""What a task is: it yields samples and scores predictions. It knows no model, no policy and no budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable


class TaskError(ValueError):
    """A task that cannot be built or scored as asked. The message is a sentence with the remedy."""


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that tasks may use (to measure lengths, never to guess a model)."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str: ...


@dataclass(frozen=True)
class Sample:
    """One prompt with everything needed to score what a model makes of it.

    ``id`` is unique within the task and stable across runs, machines and ``limit``. Samples with the same
    ``document`` are not independent: statistics resample documents, not samples. ``axes`` are the coordinates
    that figures group by (length, depth, …).
    """

    id: str
    prompt: str
    references: tuple[str, ...] = ()
    max_new_tokens: int = 0  # tokens; 0 for tasks that score the prompt itself (perplexity)
    truncate_to: int | None = None  # tokens; the runner keeps the first so many of the encoded prompt
    document: str = ""
    axes: Mapping[str, str | int | float] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """A frozen dataclass whose fields are its protocol: they enter the identity of every cell that uses it."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    version: ClassVar[str]  # raised by hand whenever prompts, data or scoring change
    mode: ClassVar[Literal["generate", "perplexity"]]
    metrics: ClassVar[tuple[str, ...]]  # names of the scores, the headline metric first

    def samples(self, tokenizer: Tokenizer) -> Sequence[Sample]:
        """All samples, in an order whose every prefix covers the axes evenly (so that ``limit`` stays fair)."""
        ...

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """Each metric of ``metrics`` in [0, 1]; never called in perplexity mode."""
        ...
