"""From a task's sample to requests of the engine, and from the engine's outcomes to rows of the results.

A sample's tokens (`harness.runner.prompt_encoder`) become one request, or one for each of its continuations. The
outcomes become one row per metric. All that lies between a configuration and the engine, or the engine and a row, is
part of a cell's identity (`harness.config.identity`), so these two modules hold nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from harness.config.cell import Cell, greatest
from harness.config.identity import hash_data
from harness.config.model import ModelSpec
from harness.engine.requests import RepeatPrompt, Request, RequestOutput
from harness.runner.prompt_encoder import PromptEncoder, StopTexts, split_continuations, truncate_at_stops
from tasks.base import Likelihood, Sample, Task

if TYPE_CHECKING:
    from harness.runner.plan import Job


class Prompts:
    """The samples of cells, the first ``Cell.limit`` of their task, each encoded once for all cells."""

    def __init__(self) -> None:
        self._builders: dict[ModelSpec, RequestBuilder] = {}
        self._tasks: dict[tuple[ModelSpec, Task], _TaskPrompts] = {}
        self._expected: dict[tuple[ModelSpec, Task], int | None] = {}

    def expect(self, cells: Iterable[Cell]) -> None:
        """These cells will be asked for: a task's samples are then made once, as many as the largest of them has."""
        for cell in cells:
            key = cell.model, cell.task
            self._expected[key] = greatest((cell.limit, self._expected.get(key, 0)))

    def samples_of(self, cell: Cell) -> list[tuple[Sample, list[int], int]]:
        """Every sample of a cell, its prompt's tokens, and the slots that the budget grants it (0 for dense)."""
        encoded = self._of_task(cell, cell.limit).first(cell.limit)
        if cell.policy.is_dense:
            return [(sample, tokens, 0) for sample, tokens in encoded]
        lengths: list[int] = []
        if cell.budget.is_of_task:
            lengths = [len(tokens) for _, tokens in self._of_task(cell, None).first(None)]
        return [(s, tokens, cell.budget.slots_for(len(tokens), s.max_new_tokens, lengths)) for s, tokens in encoded]

    def sample(self, cell: Cell, sample_id: str) -> tuple[Sample, list[int]]:
        """One sample of a cell and its prompt's tokens. No other sample is encoded. Raises KeyError."""
        return self._of_task(cell, cell.limit).one(sample_id)

    def encoder(self, model: ModelSpec) -> PromptEncoder:
        """The model's encoder; its tokenizer is loaded once."""
        return self.request_builder(model).encoder

    def request_builder(self, model: ModelSpec) -> RequestBuilder:
        """The model's builder of requests, one for all cells."""
        if model not in self._builders:
            self._builders[model] = RequestBuilder(PromptEncoder.for_model(model))
        return self._builders[model]

    def _of_task(self, cell: Cell, count: int | None) -> _TaskPrompts:
        key = cell.model, cell.task
        if key not in self._tasks:
            self._tasks[key] = _TaskPrompts(self.encoder(cell.model), cell.task)
        self._tasks[key].make(greatest((count, self._expected.get(key, 0))))
        return self._tasks[key]


class _TaskPrompts:
    """The first samples of a task, as many as were needed so far, each encoded when it is first needed."""

    def __init__(self, encoder: PromptEncoder, task: Task) -> None:
        self.encoder, self.task = encoder, task
        self.asked: int | None = 0
        self.samples: Sequence[Sample] = ()
        self.place: dict[str, int] = {}
        self.tokens: dict[int, list[int]] = {}

    def make(self, count: int | None) -> None:
        """See to it that the first ``count`` samples are there; None = all. A task's first samples stay the same."""
        if self.asked is None or (count is not None and count <= self.asked):
            return
        self.asked = count
        self.samples = self.task.first(self.encoder.tokenizer, count)
        self.place = {sample.id: place for place, sample in enumerate(self.samples)}

    def first(self, count: int | None) -> list[tuple[Sample, list[int]]]:
        return [self._encoded(place) for place in range(len(self.samples[:count]))]

    def one(self, sample_id: str) -> tuple[Sample, list[int]]:
        return self._encoded(self.place[sample_id])

    def _encoded(self, place: int) -> tuple[Sample, list[int]]:
        if place not in self.tokens:
            self.tokens[place] = self.encoder.encode(self.samples[place])
        return self.samples[place], self.tokens[place]


def likelihoods(outcomes: Sequence[RequestOutput]) -> list[Likelihood]:
    """Of each continuation, in order."""
    return [Likelihood(-sum(outcome.nll), len(outcome.nll), outcome.greedy) for outcome in outcomes]


def likeliest(sample: Sample, found: Sequence[Likelihood]) -> str:
    """The continuation with the largest likelihood, all tokens together; the first of equals."""
    return max(zip(sample.continuations, found, strict=True), key=lambda pair: pair[1].nats)[0]


# To the engine and back.


class RequestBuilder:
    """Makes the requests of one model's samples. Continuations are encoded once for all cells."""

    def __init__(self, encoder: PromptEncoder) -> None:
        self.encoder = encoder
        self._split: dict[tuple[Task, str], tuple[list[int], list[list[int]]]] = {}
        self._contexts: dict[tuple[Task, str], int] = {}  # tokens of each sample's context

    def requests(self, cell: Cell, sample: Sample, tokens: list[int], slots: int) -> tuple[Request, ...]:
        """One request for a sample (``tokens``: its prompt), or one for each of its continuations."""
        continuations: list[list[int]] = []
        if cell.task.mode == "continuations":
            tokens, continuations = self._split_once(cell.task, sample)
        context, question = self._without_question(cell, sample, tokens)
        repeat = RepeatPrompt() if cell.policy.repeats is None else self.encoder.repeat_prompt(sample)
        common = Request(context, cell.policy, slots, question=question, repeat=repeat, so_far=cell.budget.so_far)
        if cell.task.mode == "continuations":
            return tuple(replace(common, max_new_tokens=len(each), continuation=each) for each in continuations)
        return (
            replace(
                common,
                max_new_tokens=sample.max_new_tokens,
                min_new_tokens=sample.min_new_tokens,
                stops=self.encoder.stops(sample),
                until=StopTexts(sample.until, self.encoder.tokenizer) if sample.until else None,
                temperature=sample.temperature,
                top_p=sample.top_p,
                seed=sample.seed,
            ),
        )

    def _without_question(self, cell: Cell, sample: Sample, tokens: list[int]) -> tuple[list[int], list[int]]:
        """A prompt's context and its question, empty where the prompt is read whole."""
        if cell.prompting.split == "whole":
            return tokens, []
        key = cell.task, sample.id
        if key not in self._contexts:
            self._contexts[key] = self.encoder.context_tokens(sample)
        return tokens[: self._contexts[key]], tokens[self._contexts[key] :]

    def _split_once(self, task: Task, sample: Sample) -> tuple[list[int], list[list[int]]]:
        key = task, sample.id
        if key not in self._split:
            self._split[key] = split_continuations(sample, self.encoder)
        return self._split[key]


def result_rows(job: Job, outcomes: Sequence[RequestOutput], encoder: PromptEncoder) -> list[dict[str, Any]]:
    """The ``samples`` rows of one (cell, sample), one per metric (docs/results-schema.md)."""
    task, sample = job.cell.task, job.sample
    outcome = outcomes[job.rows.index(job.row)]
    prediction = truncate_at_stops(encoder.tokenizer.decode(outcome.tokens, skip_special_tokens=True), sample.until)
    weight = 1.0
    scores: Mapping[str, float]
    if task.mode == "perplexity":
        weight = float(len(outcome.nll))
        scores = {"nll": sum(outcome.nll) / max(1.0, weight)}
    elif task.mode == "continuations":
        found = likelihoods(outcomes)
        prediction, scores = likeliest(sample, found), task.score_continuations(sample, found)
    else:
        scores = task.score(sample, prediction)
    common = {
        "sample_id": sample.id,
        "weight": weight,
        "prediction": prediction,
        "reference": sample.references[0] if sample.references else "",
        "document": sample.document,
        **{f"axis_{name}": value for name, value in sample.axes.items()},
        "task_fingerprint": hash_data(job.cell.protocol),
        "prompt_tokens": job.row.prompt_tokens,
        "new_tokens": len(outcome.tokens),
        "chat": sample.chat and encoder.chat,
        **asdict(outcome.ledger),
    }
    return [{"metric": metric, "value": value, **common} for metric, value in scores.items()]
