"""Text to tokens and back: prompts in a model's chat format, continuations, and the texts that end a generation.

A sample's text is cut in the middle, put into the chat format and encoded, in LongBench's order (tasks.md 2.3):
fill, cut, wrap, encode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.config.model import ModelSpec
from harness.engine.requests import RepeatPrompt
from harness.errors import UserError
from tasks.base import Sample, TaskError

# KVzip's instructions before the first piece of a context and before all others (NVIDIA/kvpress, KVzipPress).
REPEAT = "\n\nRepeat the previous context exactly."
REPEAT_PART = "\n\nRepeat the part of the previous context exactly, starting with"
DATE = "26 Jul 2024"  # for templates that name the day (Llama 3.1), or results would change with it


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
