"""RULER: synthetic retrieval, tracing and counting, made here for any tokenizer and length (tasks.md section 4)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from tasks import ruler_counting, ruler_samples
from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, grid, repeats, sources_hash, texts_hash, whole
from tasks.data import revision_of
from tasks.haystack import BOOKS
from tasks.metrics.answers import postprocessed, string_match_all
from tasks.ruler_samples import RulerDraft, RulerSettings
from tasks.templates import FOLDER


@dataclass(frozen=True)
class Ruler(Task):
    """RULER: needles of several kinds, variable tracking and word counting, at any length in the model's own tokens.

    A length is RULER's: prompt, start of the answer and the tokens to generate together, special tokens included.
    Each sample has the largest context that fits, to the word (essays and lists of words) or line (noise, needles).
    The model's chat format comes on top. ``prefix_in_prompt`` ends the user message with the start of the answer, as
    the ready-made rows that HashEvict used seem to; else it follows the header of the model's turn. With ``questions``
    one context is asked for several of its keys: under ``prompt_split=context`` they share its reading. Score: the
    share of references contained in the prediction.

    Source: NVIDIA/RULER c3f5e3b4, tasks.md section 4. Deviations: haystacks of prose are pages of novels, from a
    paragraph of their own for each sample, not Paul Graham's essays, which may not be passed on; their sentences are
    split by a rule, not by NLTK; sizes are found to one unit instead of 10 to 500; random draws are our own, so that
    samples are similar but not the same; the example of variable tracking takes no more than a quarter of the length.
    """

    name: ClassVar[str] = "ruler"
    version: ClassVar[str] = "1"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    asks_last: ClassVar[bool] = True

    subset: str = "niah_multikey_1"
    lengths: tuple[int, ...] = (4096,)  # tokens, those to generate included
    repeats: int = 100  # samples for each length; RULER has 500
    chat: bool = True  # whether the prompt is a user message, for models with a chat format
    prefix_in_prompt: bool = False
    seed: int = 42
    questions: int = 1  # asked about one context, each a sample of its own; they share a document

    def __post_init__(self) -> None:
        most = RulerSettings.of(self.subset).questions
        whole("ruler.questions", self.questions, 1)
        if self.questions > most:
            raise TaskError(
                f"ruler.questions={self.questions}, but a context of {self.subset} answers {most}: use {most} or less, "
                "or subset=niah_multikey_1, whose contexts answer 4."
            )
        object.__setattr__(self, "lengths", grid("ruler.lengths", self.lengths, 1))
        repeats("ruler.repeats", self.repeats)
        whole("ruler.seed", self.seed, 0)
        for field in ("chat", "prefix_in_prompt"):
            if getattr(self, field) not in (True, False):
                raise TaskError(f"ruler.{field} must be true or false; got {getattr(self, field)!r}.")

    @property
    def label(self) -> str:
        """``ruler/cwe``."""
        return f"{self.name}/{self.subset}"

    def revision(self) -> dict[str, str]:
        """The novels and word lists, the settings and prompts, and the code of the metric."""
        lists = (revision_of(f"wonderwords/{name}") for name in ("nouns", "adjectives", "verbs"))
        return {
            "data": texts_hash(files_hash(*BOOKS), *lists),
            "prompts": files_hash(FOLDER / "ruler.yaml"),
            "metrics": sources_hash(string_match_all),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Repeats outermost, so that every prefix covers the lengths."""
        return [
            sample
            for turn, length in product(range(self.repeats), self.lengths)
            for sample in self._samples_of_context(tokenizer, length, turn)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """RULER's ``string_match_all`` of the post-processed prediction."""
        return {"string_match": string_match_all(postprocessed(prediction), sample.references)}

    def _samples_of_context(self, tokenizer: Tokenizer, length: int, turn: int) -> list[Sample]:
        """One for each question about a context, which is as large as fits under the longest of them."""
        settings = RulerSettings.of(self.subset)
        drafts = [self._draft(settings, tokenizer, length, turn, number) for number in range(self.questions)]
        sizes = [self._fitted(settings, draft, tokenizer, length) for draft in drafts]
        return [
            self._sample(settings, draft, min(sizes), length, turn, f"-q{number}" if self.questions > 1 else "")
            for number, draft in enumerate(drafts)
        ]

    def _fitted(self, settings: RulerSettings, draft: RulerDraft, tokenizer: Tokenizer, length: int) -> int:
        size = draft.fitted(lambda text: len(tokenizer.encode(text)), length - settings.max_new_tokens)
        if size is None:
            least = len(tokenizer.encode(draft.prompt(draft.least) + draft.answer)) + settings.max_new_tokens
            raise TaskError(
                f"ruler.lengths has {length}, which is too short: the shortest prompt of {self.subset} and "
                f"{settings.max_new_tokens} tokens to generate take about {least}. Use {-(-least * 5 // 4)} or more."
            )
        return size

    def _sample(
        self, settings: RulerSettings, draft: RulerDraft, size: int, length: int, turn: int, number: str
    ) -> Sample:
        prompt = draft.prompt(size)
        return Sample(
            id=f"L{length}-r{turn}{number}",
            prompt=prompt + draft.answer if self.prefix_in_prompt else prompt,
            question=draft.question + draft.answer if self.prefix_in_prompt else draft.question,
            answer_prefix="" if self.prefix_in_prompt else draft.answer,
            references=draft.references,
            max_new_tokens=settings.max_new_tokens,
            chat=self.chat,
            document=draft.document or f"L{length}-r{turn}",
            axes={"length": length},
        )

    def _draft(
        self, settings: RulerSettings, tokenizer: Tokenizer, length: int, turn: int, question: int = 0
    ) -> RulerDraft:
        # Strings seed `random` by SHA-512, the same on every machine.
        rng = random.Random(f"ruler/{self.seed}/{self.subset}/{length}/{turn}")
        if settings.kind == "niah":
            return ruler_samples.needle_draft(settings, rng, length, turn, question)
        if settings.kind == "variable_tracking":
            return ruler_samples.variable_tracking_draft(
                settings, rng, length, lambda text: len(tokenizer.encode(text))
            )
        if settings.kind == "common_words_extraction":
            return ruler_counting.common_words_draft(settings, rng, length)
        return ruler_counting.frequent_words_draft(settings, rng, length)
