"""What a task is, and what every task needs to be one: checks of its settings and hashes of its contents.

A task yields samples and scores predictions. It knows no model, no policy and no budget.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

Mode = Literal["generate", "perplexity", "continuations"]
WHOLE_CONTEXT = 2**31  # for `Sample.longest`: cut only what the model has no positions for


class TaskError(ValueError):
    """A task that cannot be built or scored as asked. The message is a sentence with the remedy."""


class MissingDataError(TaskError):
    """The data of a task are not on this machine. The message names the command that fetches them.

    ``data_set``: its name, where the others of its group may be there.
    """

    def __init__(self, message: str, data_set: str = "") -> None:
        super().__init__(message)
        self.data_set = data_set


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that tasks may use (to measure lengths, never to guess a model)."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]:
        """Token ids of a text, with the model's special tokens unless told otherwise."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str:
        """The text of token ids."""


@dataclass(frozen=True)
class Sample:
    """One prompt, with everything that is needed to score a model's answer to it.

    ``id`` is unique within the task and stable across runs, machines and ``limit``. Samples with the same
    ``document`` are not independent: statistics resample documents, not samples. ``axes`` are the coordinates
    that figures group by (length, depth, …); ``details`` is what only the scorer needs, and is not stored.

    From text to tokens (`harness.runner.prompt_encoder`), in this order: the middle of ``prompt`` is cut out down to
    ``longest`` tokens; ``system`` and ``prompt`` become messages of the model's chat format where ``chat`` says so
    and the model has one; ``answer_prefix`` follows; the first ``truncate_to`` tokens are kept.
    """

    id: str
    prompt: str
    references: tuple[str, ...] = ()
    max_new_tokens: int = 0  # tokens; 0 for tasks that score given text
    min_new_tokens: int = 0  # tokens; no stop token is chosen before
    stop_tokens: tuple[str, ...] = ()  # texts; the last token of each also ends the generation
    until: tuple[str, ...] = ()  # texts; generation ends once one occurs, and the prediction is what stands before it
    continuations: tuple[str, ...] = ()  # in mode "continuations": texts whose likelihood after the prompt is scored
    chat: bool = False  # whether the prompt is one user message
    system: str = ""  # the message before it, with ``chat`` only
    answer_prefix: str = ""  # the start of the answer, given to the model
    question: str = ""  # the end of ``prompt`` that asks about the rest; ``prompt_split=context`` holds it back
    longest: int | None = None  # tokens; beyond (or beyond the model's context) the middle is cut out. None: never cut
    truncate_to: int | None = None  # tokens; the first so many of the encoded prompt
    temperature: float = 0.0  # above 0 tokens are drawn (`tasks.sampled`)
    top_p: float = 1.0
    seed: int = 0  # of the draws
    document: str = ""
    axes: Mapping[str, str | int | float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Likelihood:
    """Likelihood of one continuation after its prompt. ``greedy``: whether it is the model's greedy output."""

    nats: float  # log likelihood, natural logarithm, all tokens together
    tokens: int
    greedy: bool


class Task:
    """The base of every task: a frozen dataclass whose fields are its protocol and enter the identity of its cells.

    ``name`` is its name in the registry, ``label`` its name in tables: one task may stand for many data sets. ``mode``
    and ``metrics`` may be properties where they depend on the data set.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    version: ClassVar[str]  # raised by hand whenever prompts, data or scoring change
    path_fields: ClassVar[tuple[str, ...]] = ("data",)  # fields with paths of data; not part of a cell's identity
    asks_last: ClassVar[bool] = False  # whether its samples say which end of the prompt is the question

    @property
    def label(self) -> str:
        """The name in rows, tables and figures: ``longbench/qasper``."""
        return self.name

    @property
    def mode(self) -> Mode:
        """What the model gives: text, the likelihood of the prompt, or the likelihoods of continuations."""
        return "generate"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores, the headline metric first."""
        raise NotImplementedError

    @property
    def settings(self) -> dict[str, Any]:
        """Its fields that enter the identity of a cell: all but the paths of data."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if name not in self.path_fields}

    def revision(self) -> Mapping[str, str]:
        """Content hashes of what decides outputs besides fields and code: ``data``, ``prompts``, ``metrics``.

        Raises `TaskError` where the data is not on this machine.
        """
        raise NotImplementedError

    def samples(self, tokenizer: Tokenizer) -> Sequence[Sample]:
        """All samples, in an order whose every prefix covers the axes evenly (so that ``limit`` stays fair).

        Raises `TaskError` for missing or corrupt data, naming file and row.
        """
        raise NotImplementedError

    def first(self, tokenizer: Tokenizer, count: int | None = None) -> Sequence[Sample]:
        """The first ``count`` of `samples`, all where it is None. Tasks whose samples are slow to make override it."""
        return self.samples(tokenizer)[:count]

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """Each metric of ``metrics`` for a generated text; mode "generate" only."""
        raise TaskError(f"{self.label} asks for no text (mode {self.mode}), so there is no prediction to score.")

    def score_continuations(self, sample: Sample, likelihoods: Sequence[Likelihood]) -> Mapping[str, float]:
        """Each metric of ``metrics`` for the likelihood of each continuation; mode "continuations" only."""
        raise TaskError(f"{self.label} asks for no likelihoods (mode {self.mode}), so there is nothing to score.")


# Checks of settings. Each `TaskError` names the task and the field, and says what to write instead.

Item = TypeVar("Item")


SHOWN = 16  # known names, where none is near


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that offers known names for an unknown one, the nearest first."""
    options = sorted(known)
    close = [each for each in options if each.startswith(f"{name}/")] or difflib.get_close_matches(name, options, n=3)
    if close:
        return f"Did you mean {' or '.join(close[:3])}?"
    if len(options) <= SHOWN:
        return f"Known: {', '.join(options)}."
    return f"The nearest of {len(options)} are {', '.join(difflib.get_close_matches(name, options, n=3, cutoff=0))}."


MOST_REPEATS = 10_000  # RULER has 500


def whole(where: str, value: object, low: int, high: int | None = None) -> int:
    """``value`` as an int from ``low`` to ``high``; ``where`` names the task and the field."""
    span = f"of {low} or more" if high is None else f"from {low} to {high}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TaskError(f"{where} must be a whole number {span}; got {value!r}.") from None
    if number < low or (high is not None and number > high):
        raise TaskError(f"{where} must be a whole number {span}; got {number}.")
    return number


def repeats(where: str, value: object) -> int:
    """Samples of each setting of a synthetic task: 1 or more, and no more than are worth making."""
    number = whole(where, value, 1)
    if number > MOST_REPEATS:
        raise TaskError(f"{where} must be at most {MOST_REPEATS:,} samples of each setting; got {number:,}.")
    return number


def listed(where: str, values: Iterable[Item]) -> tuple[Item, ...]:
    """``values``, any sequence, as a tuple."""
    try:
        return tuple(values)
    except TypeError:
        raise TaskError(f"{where} must be a list in brackets; got {values!r}.") from None


def grid(where: str, values: Iterable[int], low: int, high: int | None = None) -> tuple[int, ...]:
    """``values`` as a tuple of distinct ints from ``low`` to ``high``, in the order given."""
    return distinct(where, tuple(whole(f"Each of {where}", item, low, high) for item in listed(where, values)))


def distinct(where: str, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """``items`` unchanged, if there are any and none is repeated (a repeated one would repeat sample ids)."""
    if not items:
        raise TaskError(f"{where} is empty, so the task has no samples; give at least one.")
    for index, item in enumerate(items):
        if item in items[:index]:
            raise TaskError(f"{where} lists {item} twice; give each once.")
    return items


# Content hashes for `Task.revision`: of data, prompts and scoring code.


def texts_hash(*texts: str) -> str:
    """16 hex digits of texts in this order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()[:16]


def files_hash(*files: Path) -> str:
    """16 hex digits of names and contents, in the order of the names."""
    return _files_hash(tuple((file, file.stat().st_mtime_ns) for file in sorted(files, key=lambda file: file.name)))


@cache
def _files_hash(files: tuple[tuple[Path, int], ...]) -> str:
    """Of files and the times of their last change: every cell of a sweep asks for the hashes of its task's files."""
    digest = hashlib.sha256()
    for file, _ in files:
        content = file.read_bytes()
        digest.update(f"{file.name}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


def sources_hash(*functions: Callable[..., object]) -> str:
    """16 hex digits of the source files in which these functions stand."""
    return files_hash(*{Path(inspect.getfile(function)) for function in functions})


def import_package(module: str, distribution: str, purpose: str) -> Any:
    """The imported ``module`` of the PyPI ``distribution``, for packages that only some scores need.

    Raises `TaskError` with the command that installs it, where it is absent.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TaskError(
            f"{purpose} needs the package {distribution}, which cannot be imported here ({error}): "
            f"install it with 'pip install {distribution}'."
        ) from error
