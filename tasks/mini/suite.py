"""The tasks of the mini suite: their names, lengths and scores. What they ask is written in `tasks.mini.exercises`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, grid, sources_hash, whole
from tasks.haystack import BOOKS, most_that_fit
from tasks.metrics.longbench_scores import code_similarity
from tasks.metrics.overlap import rouge_l
from tasks.mini import exercises
from tasks.mini.material import Exercise, ExerciseMaterial, material, sources, wordings

SMALLEST = 60  # characters of context; writers add what they need besides


def found(reference: str, prediction: str) -> float:
    """1 if the reference occurs in the prediction, else 0: RULER's string match.

    What follows it does not count: under eviction a model often finds an answer and forgets to stop.
    """
    return float(reference in prediction)


@dataclass(frozen=True)
class MiniTask(Task):
    """The base of the suite: samples of ``lengths`` tokens (special tokens and question included), ``repeats`` of each.

    A prompt is never longer than asked, and shorter by less than what the next word, line or passage would add.
    Generation ends with the line. A sample depends on the seed and on its own length and repeat only.
    """

    version: ClassVar[str] = "2"
    scorers: ClassVar[tuple[Callable[..., object], ...]]  # their sources are part of the revision
    max_new_tokens: ClassVar[int] = 12

    lengths: tuple[int, ...] = (512,)  # tokens
    repeats: int = 240  # samples for each length
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", grid(f"{self.name}.lengths", self.lengths, 1))
        object.__setattr__(self, "repeats", whole(f"{self.name}.repeats", self.repeats, 1))
        object.__setattr__(self, "seed", whole(f"{self.name}.seed", self.seed, 0))

    @staticmethod
    def write(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
        """An exercise with about ``size`` characters of context."""
        raise NotImplementedError

    def exercise(self, rng: random.Random, size: int, repeat: int) -> Exercise:
        """The exercise of sample number ``repeat``, of held-out material."""
        return self.write(rng, material("test"), size)

    def revision(self) -> dict[str, str]:
        """The held-out novels, the words and wordings, and the scoring functions."""
        return {
            "data": files_hash(*BOOKS),
            "prompts": files_hash(*sources()),
            "metrics": sources_hash(*self.scorers),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Repeats outermost: every prefix covers the lengths evenly."""
        return self.first(tokenizer)

    def first(self, tokenizer: Tokenizer, count: int | None = None) -> list[Sample]:
        """Only these are made."""
        points = islice(product(range(self.repeats), self.lengths), count)
        return [self._sample(tokenizer, length, repeat) for repeat, length in points]

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """Whether the first reference is found."""
        return {"string_match": found(sample.references[0], prediction)}

    def _sample(self, tokenizer: Tokenizer, length: int, repeat: int) -> Sample:
        def draft(size: int) -> Exercise:
            rng = random.Random(f"{self.name}/{self.seed}/{length}/{repeat}")
            return self.exercise(rng, size, repeat)

        measured: dict[str, int] = {}  # contexts grow by whole lines: most sizes give a prompt that was measured before

        def tokens(size: int) -> int:
            prompt = draft(size).prompt
            if prompt not in measured:
                measured[prompt] = len(tokenizer.encode(prompt))
            return measured[prompt]

        if (needed := tokens(SMALLEST)) > length:
            raise TaskError(
                f"{self.name}.lengths has {length}, which is too short: the smallest prompt takes {needed} tokens "
                f"with this tokenizer. Use {needed * 5 // 4 // 8 * 8 + 8} or more."
            )
        exercise = draft(most_that_fit(tokens, length, SMALLEST, 12 * length, of_limit=4))
        question = exercise.questions[0]
        return Sample(
            id=f"L{length}-r{repeat}",
            prompt=exercise.prompt,
            references=question.references,
            max_new_tokens=self.max_new_tokens,
            until=("\n",),
            document=f"{self.name}-L{length}-r{repeat}",
            axes={"length": length, **exercise.axes},
        )


def same_number(gold: str, prediction: str) -> float:
    """1 if the first word of the prediction is the number, else 0."""
    return float(prediction.split()[:1] == [gold])


@dataclass(frozen=True)
class SingleDocQA(MiniTask):
    """Single-document QA, mini: one of four facts in pages of a held-out novel, in eight wordings, three held out."""

    name: ClassVar[str] = "longbench_mini/single_doc_qa"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    write = staticmethod(exercises.write_single_doc_qa)
    scorers = (found,)


@dataclass(frozen=True)
class MultiDocQA(MiniTask):
    """Multi-document QA, mini: the code of a thing's owner over ten documents; the two facts stand in different ones.

    The prompt ends in the middle of the answer, which names the owner first: one hop at a time. Six documents have
    facts, and the one with the asked code stands at the places of ``gold_at`` in turn, as in Lost in the Middle. Score:
    string match of the code.
    """

    name: ClassVar[str] = "longbench_mini/multi_doc_qa"
    version: ClassVar[str] = "3"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 20
    write = staticmethod(exercises.write_multi_doc_qa)
    scorers = (found,)

    gold_at: tuple[int, ...] = (0, 4, 9)  # places of the document with the code, from 0

    def __post_init__(self) -> None:
        MiniTask.__post_init__(self)
        places = grid(f"{self.name}.gold_at", self.gold_at, 0, exercises.DOCUMENTS - 1)
        object.__setattr__(self, "gold_at", places)

    def exercise(self, rng: random.Random, size: int, repeat: int) -> Exercise:
        """Places take turns over the repeats."""
        place = self.gold_at[repeat % len(self.gold_at)]
        return exercises.write_ten_documents(rng, material("test"), size, place)


def without_marks(prediction: str) -> str:
    """A summary without the words that introduce each of its points."""
    for index in range(1, exercises.POINTS + 1):
        prediction = prediction.replace(wordings()["summary"]["point"].format(n=index, s=""), "")
    return prediction


@dataclass(frozen=True)
class Summary(MiniTask):
    """Summary, mini: three sentences are marked as key points between pages of held-out novels, and to be repeated.

    Score: ROUGE-L (F, as LongBench computes it) against the three sentences, their marks taken out of both.
    """

    name: ClassVar[str] = "longbench_mini/summary"
    metrics: ClassVar[tuple[str, ...]] = ("rouge_l",)
    max_new_tokens: ClassVar[int] = 120
    write = staticmethod(exercises.write_summary)
    scorers = (rouge_l,)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """ROUGE-L without the words that introduce each point."""
        return {"rouge_l": rouge_l(without_marks(prediction), sample.references[0])}


@dataclass(frozen=True)
class FewShot(MiniTask):
    """Few-shot labels, mini: the label of two words that a list of labelled examples has, once or twice.

    Four labels; labels, words and the form of the lines are held out. Score: string match of the label.
    """

    name: ClassVar[str] = "longbench_mini/few_shot"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 4
    write = staticmethod(exercises.write_few_shot)
    scorers = (found,)


@dataclass(frozen=True)
class PassageRetrieval(MiniTask):
    """Passage retrieval, mini: the number of the passage of a held-out novel whose last 14 words are quoted.

    Numbers stand behind the passages, in no order. Score: string match of the number.
    """

    name: ClassVar[str] = "longbench_mini/passage_retrieval"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 5
    write = staticmethod(exercises.write_passage_retrieval)
    scorers = (found,)


@dataclass(frozen=True)
class PassageCount(MiniTask):
    """Passage count, mini: one to six passages of held-out novels under the same mark. Score: the exact number."""

    name: ClassVar[str] = "longbench_mini/passage_count"
    metrics: ClassVar[tuple[str, ...]] = ("count",)
    max_new_tokens: ClassVar[int] = 3
    write = staticmethod(exercises.write_passage_count)
    scorers = (same_number,)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """1.0 where the first number is the count."""
        return {"count": same_number(sample.references[0], prediction)}


@dataclass(frozen=True)
class Code(MiniTask):
    """Code completion, mini: a call is assigned to a name for the second time; the line is to be completed.

    Score: edit similarity of the first line (LongBench's code_sim_score), the space before it taken off.
    """

    name: ClassVar[str] = "longbench_mini/code"
    metrics: ClassVar[tuple[str, ...]] = ("code_similarity",)
    max_new_tokens: ClassVar[int] = 16
    write = staticmethod(exercises.write_code)
    scorers = (code_similarity,)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """Edit similarity of the line, 0 to 1."""
        return {"code_similarity": code_similarity(prediction.strip(), sample.references[0])}


@dataclass(frozen=True)
class MultiKey(MiniTask):
    """Multikey retrieval, mini: the number of one key in a list of nothing else (RULER niah_multikey_2)."""

    name: ClassVar[str] = "ruler_mini/multikey"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    write = staticmethod(exercises.write_multikey)
    scorers = (found,)


class _AllFound(MiniTask):
    """Scored by the share of references that are found."""

    metrics: ClassVar[tuple[str, ...]] = ("string_match_all",)
    scorers = (found,)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """The share of references that occur in the prediction (RULER's string_match_all)."""
        return {"string_match_all": sum(found(r, prediction) for r in sample.references) / len(sample.references)}


@dataclass(frozen=True)
class MultiValue(_AllFound):
    """Multivalue retrieval, mini: the three values of one key in pages of a novel, which number them."""

    name: ClassVar[str] = "ruler_mini/multivalue"
    max_new_tokens: ClassVar[int] = 50
    write = staticmethod(exercises.write_multivalue)


@dataclass(frozen=True)
class Variables(_AllFound):
    """Variable tracking, mini: from a variable back to its number over two others, one hop at a time.

    Unlike RULER's vt, which gives the number and asks for all variables, in one step.
    """

    name: ClassVar[str] = "ruler_mini/variables"
    max_new_tokens: ClassVar[int] = 40
    write = staticmethod(exercises.write_variables)


@dataclass(frozen=True)
class ReasoningMini(MiniTask):
    """Reasoning, mini: two facts found in pages of a held-out novel, one after the other, and added.

    The model writes the steps, as in GSM8K. Score: string match of the sum behind the last step's equals sign.
    """

    name: ClassVar[str] = "reasoning_mini"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 48
    write = staticmethod(exercises.write_reasoning)
    scorers = (found,)


MINI_SUITE: tuple[type[MiniTask], ...] = (
    SingleDocQA,
    MultiDocQA,
    Summary,
    FewShot,
    PassageRetrieval,
    PassageCount,
    Code,
    MultiKey,
    MultiValue,
    Variables,
    ReasoningMini,
)
