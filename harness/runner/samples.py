"""From a task's sample to requests of the engine, and from the engine's outcomes to rows of the results.

A sample's text is cut in the middle, put into the chat format and encoded, in LongBench's order (tasks.md 2.3):
fill, cut, wrap, encode. Its tokens become one request, or one for each of its continuations. The outcomes become one
row per metric. All that lies between a configuration and the engine, or the engine and a row, is part of a cell's
identity (`harness.config.identity`), so this module holds nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.config.cell import Cell, greatest
from harness.config.identity import hash_data
from harness.config.model import ModelSpec
from harness.engine.requests import RepeatPrompt, Request, RequestOutput
from harness.errors import UserError
from tasks.base import Likelihood, Sample, Task, TaskError

if TYPE_CHECKING:
    from harness.runner.plan import Job

# KVzip's instructions before the first piece of a context and before all others (NVIDIA/kvpress, KVzipPress).
REPEAT = "\n\nRepeat the previous context exactly."
REPEAT_PART = "\n\nRepeat the part of the previous context exactly, starting with"
DATE = "26 Jul 2024"  # for templates that name the day (Llama 3.1), or results would change with it


# Prompts: from text to tokens.


@dataclass(frozen=True)
class PromptEncoder:
    """Encodes prompts for one model. ``context``: positions that it has; None where its configuration does not say."""

    tokenizer: Any
    chat: bool = False  # whether samples that want a chat format get the tokenizer's
    double_bos: bool = False  # the second beginning-of-text token of AdaKV's released code
    context: int | None = None

    @staticmethod
    def for_model(model: ModelSpec) -> PromptEncoder:
        """Loads the tokenizer. Raises `UserError` where ``model.chat`` is set and the tokenizer has no chat format."""
        tokenizer = model.tokenizer()
        has_template = getattr(tokenizer, "chat_template", None) is not None
        if model.chat and not has_template:
            raise UserError(f"The tokenizer of model {model.name} has no chat format: set model.chat=false.")
        context = getattr(model.config().get_text_config(), "max_position_embeddings", None)
        return PromptEncoder(tokenizer, has_template if model.chat is None else model.chat, model.double_bos, context)

    def encode(self, sample: Sample) -> list[int]:
        """The prompt's tokens, special ones included."""
        return self._encode_text(sample, self._fitted(sample))[: sample.truncate_to]

    def context_tokens(self, sample: Sample) -> int:
        """How many of these tokens stand before the question. A token with characters of both belongs to the question.

        Raises `TaskError` where the sample has no question, or the prompt was cut into it.
        """
        question = sample.question.strip()  # chat formats may strip what surrounds a message
        wrapped, special = self._wrapped(sample, self._fitted(sample))
        start = wrapped.rfind(question) if question else -1
        if start < 0:
            raise TaskError(
                f"Sample {sample.id} has no question that ends its prompt as it is fed, so prompt_split=context cannot "
                "hold it back: use prompt_split=whole, or a longer max_length."
            )
        start -= len(sample.question) - len(sample.question.lstrip())
        encoded = self.tokenizer(wrapped, add_special_tokens=special, return_offsets_mapping=True)
        ends = [end for _, end in encoded["offset_mapping"]]
        context = next((place for place, end in enumerate(ends) if end > start), len(ends))
        if not context:
            raise TaskError(f"Sample {sample.id} is all question: there is no context to compress.")
        return context

    def repeat_prompt(self, sample: Sample) -> RepeatPrompt:
        """What asks the model to repeat this sample's context, in kvpress' words and in the chat format."""
        answer = "\n"
        if sample.chat and self.chat:
            mark = "#" * 13
            asked = [{"role": "user", "content": f"context\n{mark}"}]
            wrapped = self.tokenizer.apply_chat_template(
                asked, tokenize=False, add_generation_prompt=True, date_string=DATE
            )
            answer = wrapped.partition(mark)[2]

        def encoded(text: str) -> tuple[int, ...]:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))

        return RepeatPrompt(encoded(REPEAT), encoded(REPEAT_PART), encoded(answer))

    def _fitted(self, sample: Sample) -> str:
        """The prompt's text, its middle cut out where it would be too long."""
        text = sample.prompt
        limit = self._max_text_tokens(sample)
        while limit is not None:
            text = truncate_middle(self.tokenizer, sample.prompt, limit)
            # Cutting between other characters than the tokenizer would can cost some tokens more.
            excess = len(self._encode_text(sample, text)) + sample.max_new_tokens - (self.context or 2**62)
            if excess <= 0 or limit <= 0:
                break
            limit -= excess
        return text

    def stops(self, sample: Sample) -> frozenset[int]:
        """The last token of each of the sample's stop texts."""
        encoded = (self.tokenizer.encode(text, add_special_tokens=False) for text in sample.stop_tokens)
        return frozenset(tokens[-1] for tokens in encoded)

    def _max_text_tokens(self, sample: Sample) -> int | None:
        """Tokens that the prompt's text may keep, or None where nothing may be cut."""
        if sample.longest is None:
            return None
        if self.context is None:
            return sample.longest
        wrapping = len(self._encode_text(sample, ""))
        return min(sample.longest, self.context - sample.max_new_tokens - wrapping)

    def _encode_text(self, sample: Sample, text: str) -> list[int]:
        wrapped, special = self._wrapped(sample, text)
        return list(self.tokenizer.encode(wrapped, add_special_tokens=special))

    def _wrapped(self, sample: Sample, text: str) -> tuple[str, bool]:
        """The text as it is encoded, and whether the tokenizer adds special tokens to it."""
        if not (sample.chat and self.chat):
            return text + sample.answer_prefix, True
        messages = [{"role": "system", "content": sample.system}] if sample.system else []
        messages.append({"role": "user", "content": text})
        wrapped = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, date_string=DATE
        )
        wrapped += sample.answer_prefix
        begins = self.tokenizer.bos_token is not None and wrapped.startswith(self.tokenizer.bos_token)
        return wrapped, self.double_bos or not begins


def truncate_middle(tokenizer: Any, text: str, limit: int) -> str:
    """``text``, or its first and last ``limit // 2`` tokens, decoded without special tokens and joined with nothing."""
    tokens = tokenizer.encode(text)
    if len(tokens) <= limit:
        return text
    half = max(0, limit) // 2
    first, last = tokens[:half], tokens[len(tokens) - half :]
    return str(tokenizer.decode(first, skip_special_tokens=True) + tokenizer.decode(last, skip_special_tokens=True))


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


# Continuations: texts of which a task wants the likelihood after a prompt.


def split_continuations(sample: Sample, encoder: PromptEncoder) -> tuple[list[int], list[list[int]]]:
    """The tokens of a sample's prompt, and those of each of its continuations.

    As lm-evaluation-harness splits them: blanks at the end of the prompt belong to the continuation, prompt and
    continuation are encoded together, and the continuation is what stands after as many tokens as the prompt has by
    itself. So both have the tokens that they have in running text. In a chat format the prompt is the message as the
    model's template wraps it, up to the first token that a continuation changes. Raises `TaskError` for a
    continuation that adds no token.
    """
    wrapped = sample.chat and encoder.chat
    bare, blank = (sample, "") if wrapped else _without_trailing_blank(sample)
    prompt = encoder.encode(bare)
    texts = [replace(bare, answer_prefix=bare.answer_prefix + blank + text) for text in sample.continuations]
    wholes = [encoder.encode(text) for text in texts]
    if wrapped:
        prompt = prompt[: min(_common_prefix(prompt, whole) for whole in wholes)]
    continuations = [whole[len(prompt) :] for whole in wholes]
    for text, tokens in zip(sample.continuations, continuations, strict=True):
        if not tokens:
            raise TaskError(no_tokens_message(text, f"the prompt of sample {sample.id}"))
    return prompt, continuations


def no_tokens_message(text: str, after: str) -> str:
    """The error sentence about a continuation that has no likelihood."""
    return (
        f"The continuation {text!r} adds no token to {after}, so that it has no likelihood: give another text, or put "
        "a blank between them."
    )


def likelihoods(outcomes: Sequence[RequestOutput]) -> list[Likelihood]:
    """Of each continuation, in order."""
    return [Likelihood(-sum(outcome.nll), len(outcome.nll), outcome.greedy) for outcome in outcomes]


def likeliest(sample: Sample, found: Sequence[Likelihood]) -> str:
    """The continuation with the largest likelihood, all tokens together; the first of equals."""
    return max(zip(sample.continuations, found, strict=True), key=lambda pair: pair[1].nats)[0]


def _without_trailing_blank(sample: Sample) -> tuple[Sample, str]:
    """The sample without the blanks that end its prompt, and those blanks."""
    if sample.answer_prefix:
        bare = sample.answer_prefix.rstrip()
        return replace(sample, answer_prefix=bare), sample.answer_prefix[len(bare) :]
    bare = sample.prompt.rstrip()
    return replace(sample, prompt=bare), sample.prompt[len(bare) :]


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# Stop texts: they end a generation, whatever tokens they are written in.


@dataclass(frozen=True)
class StopTexts:
    """For ``Request.until``: whether the last token completed one of ``texts`` (none of them empty)."""

    texts: tuple[str, ...]
    tokenizer: Any

    def __call__(self, tokens: Sequence[int]) -> bool:
        # A token that adds text adds at least one byte, so a text ends in the last token only if it lies within so
        # many; two more, because the first token of a piece may be decoded without its leading space.
        reach = max(len(text.encode()) for text in self.texts) + 2
        ending = self.tokenizer.decode(tokens[-reach:], skip_special_tokens=True)
        return any(text in ending for text in self.texts)


def truncate_at_stops(text: str, stops: Sequence[str]) -> str:
    """What stands before each of ``stops``, taken in turn."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


# To the engine and back.


class RequestBuilder:
    """Makes the requests of one model's samples. Continuations are encoded once for all cells."""

    def __init__(self, encoder: PromptEncoder) -> None:
        self.encoder = encoder
        self._split: dict[tuple[Task, str], tuple[list[int], list[list[int]]]] = {}
        self._contexts: dict[tuple[Task, str], int] = {}  # tokens of each sample's context

    def requests(self, cell: Cell, sample: Sample, tokens: list[int], slots: int) -> tuple[Request, ...]:
        """One request for a sample (``tokens``: its prompt), or one for each of its continuations."""
        if cell.task.mode == "continuations":
            prompt, continuations = self._split_once(cell.task, sample)
            repeat = self._repeat(cell, sample)
            prompt, question = self._without_question(cell, sample, prompt)
            return tuple(
                Request(
                    prompt,
                    cell.policy,
                    slots,
                    len(each),
                    continuation=each,
                    question=question,
                    repeat=repeat,
                    so_far=cell.budget.so_far,
                )
                for each in continuations
            )
        until = StopTexts(sample.until, self.encoder.tokenizer) if sample.until else None
        tokens, question = self._without_question(cell, sample, tokens)
        request = Request(
            tokens,
            cell.policy,
            slots,
            sample.max_new_tokens,
            min_new_tokens=sample.min_new_tokens,
            stops=self.encoder.stops(sample),
            until=until,
            question=question,
            temperature=sample.temperature,
            top_p=sample.top_p,
            seed=sample.seed,
            repeat=self._repeat(cell, sample),
            so_far=cell.budget.so_far,
        )
        return (request,)

    def _repeat(self, cell: Cell, sample: Sample) -> RepeatPrompt:
        return RepeatPrompt() if cell.policy.repeats is None else self.encoder.repeat_prompt(sample)

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
