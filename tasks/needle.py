"""The needle in a haystack of the literature: one sentence about San Francisco in long prose (tasks.md section 3).

Each line of the literature has a variant of its own: prompt, question, generation and headline metric. Their texts are
in ``prompts/needle_in_a_haystack.yaml``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, grid, nearest, repeats, sources_hash, whole
from tasks.haystack import NOVELS, Haystack, haystack_hash, haystack_texts, most_that_fit
from tasks.metrics.overlap import contains_phrase, rouge1_f, rouge1_recall, word_overlap
from tasks.templates import FOLDER, fill, prompts, question_of

_TEXTS: Any = prompts("needle_in_a_haystack")
_MESSAGES = [message["content"] for message in _TEXTS["gkamradt"]["openai_messages"]]
_WU, _FU = _TEXTS["retrieval_head"], _TEXTS["headkv"]

NEEDLE: str = _TEXTS["needle"]
PHRASE: str = _WU["real_needle"]  # what an answer should repeat
WORDS = PHRASE + "."  # HeadKV counts words with the full stop attached

FULL_STOP = re.compile(r"(?<!\.)\.(?=\s)")
CHARACTERS = 8  # of prose per token: more than the tokens of any tokenizer have
LEAST = 8  # words and marks that still count as a haystack

SCORES: dict[str, Callable[[str], float]] = {
    "contains": lambda prediction: contains_phrase(prediction, PHRASE),
    "rouge1_recall": lambda prediction: rouge1_recall(prediction, PHRASE),
    "rouge1_f": lambda prediction: rouge1_f(prediction, NEEDLE),
    "word_overlap": lambda prediction: word_overlap(prediction, WORDS),
}


@dataclass(frozen=True)
class Needle(Task):
    """Needle in a haystack of the literature: one sentence about San Francisco, hidden at a depth of long prose.

    ``variant``: ``gkamradt`` (the original), ``wu`` (Retrieval Head, cited by K-VEC), ``fu`` (PyramidKV and HeadKV,
    cited by K-VEC) and ``grid`` (KeyDiff and CAOTE, as tasks.md 3.4 recommends) differ in prompt, generation and
    headline metric; all four metrics are always computed. Lengths are tokens of the whole prompt, special tokens and
    question included, chat format not; a prompt is never longer, and shorter only by what the next word would have
    added. With ``buffer`` tokens, lengths are the literature's instead: context and needle have ``length - buffer``
    tokens (200 there) and the question comes on top. Depth is the percentage of the context's characters before the
    needle, which then moves back to the end of a sentence.

    Source: tasks.md 3, repositories named in ``prompts/needle_in_a_haystack.yaml``. Deviations: haystacks are pages of
    novels, from a paragraph of its own for each length and repeat, unless ``haystack`` names a folder of text files;
    depths count characters and sentence ends are found in the text (a full stop before a blank), so that it is the same
    for all tokenizers; no beginning-of-text marker stands in the text; no LLM judge.
    """

    name: ClassVar[str] = "needle"
    path_fields: ClassVar[tuple[str, ...]] = ("haystack",)
    version: ClassVar[str] = "1"
    asks_last: ClassVar[bool] = True

    variant: str = "grid"
    lengths: tuple[int, ...] = (1000, 2000, 4000, 8000)  # tokens
    depths: tuple[int, ...] = (0, 11, 22, 33, 44, 56, 67, 78, 89, 100)  # percent
    repeats: int = 1  # samples for each length and depth
    haystack: str = NOVELS  # or a folder
    buffer: int | None = None  # tokens
    chat: bool = True  # whether models with a chat format are asked in it, where the variant knows one
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant not in list(VARIANTS):
            raise TaskError(f"needle knows no variant '{self.variant}'. {nearest(str(self.variant), VARIANTS)}")
        if self.chat not in (True, False):
            raise TaskError(f"needle.chat must be true or false; got {self.chat!r}.")
        object.__setattr__(self, "lengths", grid("needle.lengths", self.lengths, 1))
        object.__setattr__(self, "depths", grid("needle.depths", self.depths, 0, 100))
        object.__setattr__(self, "haystack", str(self.haystack))
        repeats("needle.repeats", self.repeats)
        whole("needle.seed", self.seed, 0)
        if self.buffer is not None:
            whole("needle.buffer", self.buffer, 0)

    @property
    def label(self) -> str:
        """``needle/wu``."""
        return f"{self.name}/{self.variant}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The variant's headline metric, then the others."""
        first = VARIANTS[self.variant].headline
        return (first, *(name for name in SCORES if name != first))

    def revision(self) -> dict[str, str]:
        """The haystack's texts, the wordings, and the code of the metrics."""
        return {
            "data": haystack_hash(self.haystack),
            "prompts": files_hash(FOLDER / "needle_in_a_haystack.yaml"),
            "metrics": sources_hash(contains_phrase),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Repeats outermost, then diagonals of the grid: every prefix covers lengths and depths evenly."""
        return list(self._samples(tokenizer))

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """All four, against the phrase ``eat a sandwich and … on a sunny day`` or the whole needle (`rouge1_f`)."""
        return {name: SCORES[name](prediction) for name in self.metrics}

    def _samples(self, tokenizer: Tokenizer) -> Iterator[Sample]:
        for repeat in range(self.repeats):
            contexts = {length: self._context(length, repeat) for length in self.lengths}
            for length, depth in diagonals(self.lengths, self.depths):
                prompt = contexts[length].prompt(tokenizer, depth)
                if prompt is None:
                    raise TaskError(
                        f"needle.lengths has {length}, which is too short for needle, question and some text with this "
                        "tokenizer. Use more."
                    )
                yield self._sample(contexts[length], prompt, length, depth, repeat)

    def _context(self, length: int, repeat: int) -> NeedleContext:
        texts = haystack_texts(self.haystack)
        rng = random.Random(f"needle/{self.seed}/{length}/{repeat}")
        text = (rng.randrange(len(texts.texts)) + repeat) % len(texts.texts)
        found = texts.texts[text]
        offset = found.paragraph(near=rng.randrange(len(found.text)))
        haystack = Haystack(texts.running(text, offset, CHARACTERS * length))
        variant = VARIANTS[self.variant]
        return NeedleContext(haystack, self._template(variant), length, self.buffer, f"{found.name}@{offset}")

    def _template(self, variant: NeedleVariant) -> str:
        template = variant.chat_prompt if self.chat and variant.chat_prompt else variant.prompt
        return fill(template, context="{context}", question=variant.question)

    def _sample(self, context: NeedleContext, prompt: str, length: int, depth: int, repeat: int) -> Sample:
        variant = VARIANTS[self.variant]
        chat = self.chat and variant.chat_prompt is not None
        return Sample(
            id=f"L{length}-d{depth}-r{repeat}",
            prompt=prompt,
            question=question_of(self._template(variant), "context"),
            references=(PHRASE,),
            max_new_tokens=variant.max_new_tokens,
            stop_tokens=variant.stop_tokens,
            chat=chat,
            system=variant.system if chat else "",
            document=context.document,
            axes={"length": length, "depth": depth},
        )


@dataclass(frozen=True)
class NeedleContext:
    """The samples of one length and repeat before a depth is chosen."""

    haystack: Haystack
    template: str
    length: int  # tokens
    buffer: int | None  # tokens
    document: str

    @cached_property
    def stops(self) -> list[int]:
        """Offsets after full stops."""
        return [found.end() for found in FULL_STOP.finditer(self.haystack.text)]

    def prompt(self, tokenizer: Tokenizer, depth: int) -> str | None:
        """The longest prompt that has the length, or None where even the shortest has more tokens."""

        def measure(pieces: int) -> int:
            context = self.context(pieces, depth)
            if self.buffer is not None:
                return len(tokenizer.encode(context))
            return len(tokenizer.encode(fill(self.template, context=context)))

        limit = self.length - (self.buffer or 0)
        if measure(LEAST) > limit:
            return None
        pieces = most_that_fit(measure, limit, LEAST, len(self.haystack.cuts))
        return fill(self.template, context=self.context(pieces, depth))

    def context(self, pieces: int, depth: int) -> str:
        """The first ``pieces`` words and marks with the needle in them."""
        text = self.haystack.text[: self.haystack.cuts[pieces - 1]]
        if depth == 100:
            return text + NEEDLE
        target = len(text) * depth // 100
        place = max((stop for stop in self.stops if stop <= target), default=0)
        return text[:place] + NEEDLE + text[place:]


def diagonals(first: Sequence[int], second: Sequence[int]) -> Iterator[tuple[int, int]]:
    """All pairs; each run of ``len(first)`` has every one of ``first``, and as many of ``second`` as it can."""
    for shift in range(len(second)):
        for index, item in enumerate(first):
            yield item, second[(index * len(second) // len(first) + shift) % len(second)]


@dataclass(frozen=True)
class NeedleVariant:
    """One line of the literature. ``chat_prompt`` is for models with a chat format; None where none is used."""

    prompt: str
    chat_prompt: str | None
    question: str
    max_new_tokens: int
    headline: str  # the metric that its tables show
    system: str = ""
    stop_tokens: tuple[str, ...] = ()


_RETRIEVAL_HEAD = NeedleVariant(
    prompt=_WU["prompt"],
    chat_prompt=_WU["chat_prompt_for_chat_models"],
    question=_WU["question"],
    max_new_tokens=_WU["max_new_tokens"],
    headline="rouge1_recall",
    stop_tokens=("\n",),
)

VARIANTS: dict[str, NeedleVariant] = {
    # Two user messages in a row, which most chat formats refuse, become two paragraphs of one.
    "gkamradt": NeedleVariant(
        prompt="\n\n".join(_MESSAGES),
        chat_prompt="\n\n".join(_MESSAGES[1:]),
        question=_TEXTS["gkamradt"]["question"],
        max_new_tokens=_TEXTS["gkamradt"]["max_new_tokens"],
        headline="contains",
        system=_MESSAGES[0],
    ),
    "wu": _RETRIEVAL_HEAD,
    "fu": NeedleVariant(
        prompt=_FU["prompt"],
        chat_prompt=None,
        question=_FU["question"],
        max_new_tokens=_FU["max_new_tokens"],
        headline="word_overlap",
        stop_tokens=("\n",),
    ),
    # KeyDiff and CAOTE state neither prompt nor score (tasks.md 3.4): Wu's prompt, success as in a yes-or-no judgement.
    "grid": NeedleVariant(
        prompt=_RETRIEVAL_HEAD.prompt,
        chat_prompt=_RETRIEVAL_HEAD.chat_prompt,
        question=_RETRIEVAL_HEAD.question,
        max_new_tokens=_RETRIEVAL_HEAD.max_new_tokens,
        headline="contains",
        stop_tokens=_RETRIEVAL_HEAD.stop_tokens,
    ),
}
