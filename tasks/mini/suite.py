"""The tasks of the mini suite: how they are named and scored. What they ask stands in their writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tasks.base import Sample
from tasks.metrics.code import code_similarity
from tasks.metrics.rouge import rouge_l
from tasks.mini import (
    code,
    few_shot,
    multi_doc_qa,
    passage_count,
    passage_retrieval,
    reasoning,
    ruler,
    single_doc_qa,
    summary,
)
from tasks.mini.material import wordings
from tasks.mini.task import MiniTask, found


def same_number(gold: str, prediction: str) -> float:
    """1 if the first word of the prediction is the number, else 0."""
    return float(prediction.split()[:1] == [gold])


@dataclass(frozen=True)
class SingleDocQA(MiniTask):
    """Single-document QA, mini: one of four facts in pages of a held-out novel, in eight wordings, three held out."""

    name: ClassVar[str] = "longbench_mini/single_doc_qa"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    write = staticmethod(single_doc_qa.write)
    scorers = (found,)


@dataclass(frozen=True)
class MultiDocQA(MiniTask):
    """Multi-document QA, mini: the code of a thing's owner; the two facts stand in different documents.

    The prompt ends in the middle of the answer, which names the owner first: one hop at a time. Score: string match
    of the code.
    """

    name: ClassVar[str] = "longbench_mini/multi_doc_qa"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 20
    write = staticmethod(multi_doc_qa.write)
    scorers = (found,)


@dataclass(frozen=True)
class Summary(MiniTask):
    """Summary, mini: three sentences are marked as key points between pages of held-out novels, and to be repeated.

    Score: ROUGE-L (F, as LongBench computes it) against the three sentences, their marks taken out of both.
    """

    name: ClassVar[str] = "longbench_mini/summary"
    metrics: ClassVar[tuple[str, ...]] = ("rouge_l",)
    max_new_tokens: ClassVar[int] = 120
    write = staticmethod(summary.write)
    scorers = (rouge_l,)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """ROUGE-L without the words that introduce each point."""
        for index in range(1, summary.POINTS + 1):
            prediction = prediction.replace(wordings()["summary"]["point"].format(n=index, s=""), "")
        return {"rouge_l": rouge_l(prediction, sample.references[0])}


@dataclass(frozen=True)
class FewShot(MiniTask):
    """Few-shot labels, mini: the label of two words that a list of labelled examples has, once or twice.

    Four labels; labels, words and the form of the lines are held out. Score: string match of the label.
    """

    name: ClassVar[str] = "longbench_mini/few_shot"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 4
    write = staticmethod(few_shot.write)
    scorers = (found,)


@dataclass(frozen=True)
class PassageRetrieval(MiniTask):
    """Passage retrieval, mini: the number of the passage of a held-out novel whose last 14 words are quoted.

    Numbers stand behind the passages, in no order. Score: string match of the number.
    """

    name: ClassVar[str] = "longbench_mini/passage_retrieval"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 5
    write = staticmethod(passage_retrieval.write)
    scorers = (found,)


@dataclass(frozen=True)
class PassageCount(MiniTask):
    """Passage count, mini: one to six passages of held-out novels under the same mark. Score: the exact number."""

    name: ClassVar[str] = "longbench_mini/passage_count"
    metrics: ClassVar[tuple[str, ...]] = ("count",)
    max_new_tokens: ClassVar[int] = 3
    write = staticmethod(passage_count.write)
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
    write = staticmethod(code.write)
    scorers = (code_similarity,)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """Edit similarity of the line, 0 to 1."""
        return {"code_similarity": code_similarity(prediction.strip(), sample.references[0])}


@dataclass(frozen=True)
class MultiKey(MiniTask):
    """Multikey retrieval, mini: the number of one key in a list of nothing else (RULER niah_multikey_2)."""

    name: ClassVar[str] = "ruler_mini/multikey"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    write = staticmethod(ruler.write_multikey)
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
    write = staticmethod(ruler.write_multivalue)


@dataclass(frozen=True)
class Variables(_AllFound):
    """Variable tracking, mini: from a variable back to its number over two others, one hop at a time.

    Unlike RULER's vt, which gives the number and asks for all variables, in one step.
    """

    name: ClassVar[str] = "ruler_mini/variables"
    max_new_tokens: ClassVar[int] = 40
    write = staticmethod(ruler.write_variables)


@dataclass(frozen=True)
class ReasoningMini(MiniTask):
    """Reasoning, mini: two facts found in pages of a held-out novel, one after the other, and added.

    The model writes the steps, as in GSM8K. Score: string match of the sum behind the last step's equals sign.
    """

    name: ClassVar[str] = "reasoning_mini"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    max_new_tokens: ClassVar[int] = 48
    write = staticmethod(reasoning.write)
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
