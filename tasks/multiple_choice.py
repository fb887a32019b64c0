"""Multiple choice by likelihood: which letter the model finds most likely after question and options.

Where ``guipenedo/gsm8k-mc`` cannot be had, `derived_choices` makes options out of GSM8K's free test set (tasks.md 5.2).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from tasks.base import Likelihood, Mode, Sample, Task, TaskError, Tokenizer, files_hash, nearest
from tasks.data import revision_of
from tasks.data.tables import table
from tasks.templates import FOLDER, fill, prompts

LETTERS = "ABCD"
DATASETS = {"medqa": "medqa/test", "gsm8k_mc": "gsm8k_mc/test", "gsm8k_mc_derived": "gsm8k/test"}
_RESULT = re.compile(r"<<[^<>]*=\s*(-?[\d.,/]+)\s*>>")
_GOLD = re.compile(r"####\s*(-?[\d.,]+)")


@dataclass(frozen=True)
class MultipleChoice(Task):
    """Multiple choice: MedQA and GSM8K with four options, correct where the right letter is the most likely one.

    Metrics: ``accuracy``, and ``nll``, nats per token of the right letter. The prompt is lm-evaluation-harness's for
    ``medqa_4options``, for GSM8K too; the letter follows after a blank. ``gsm8k_mc_derived`` makes its options from
    the free test set (tasks.md 5.2). HashEvict's way, one generated token, is the task hashevict.

    Source: lm-evaluation-harness (medqa_4options), tasks.md 5.2 and 5.4.
    """

    name: ClassVar[str] = "multiple_choice"
    version: ClassVar[str] = "1"
    mode: ClassVar[Mode] = "continuations"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    dataset: str = "medqa"
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    chat: bool = False

    def __post_init__(self) -> None:
        if self.dataset not in list(DATASETS):
            raise TaskError(f"multiple_choice has no data set '{self.dataset}'. {nearest(str(self.dataset), DATASETS)}")
        if self.chat not in (True, False):
            raise TaskError(f"multiple_choice.chat must be true or false; got {self.chat!r}.")

    @property
    def label(self) -> str:
        """``multiple_choice/medqa``."""
        return f"{self.name}/{self.dataset}"

    def revision(self) -> dict[str, str]:
        """The rows' file and the prompt."""
        return {
            "data": revision_of(DATASETS[self.dataset], self.data),
            "prompts": files_hash(FOLDER / "medqa.yaml"),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One per question; raises `TaskError` where the data is missing or damaged."""
        read = table(DATASETS[self.dataset], self.data)
        return [self._sample(row, index, read.place(index)) for index, row in enumerate(read.rows)]

    def score_continuations(self, sample: Sample, likelihoods: Sequence[Likelihood]) -> dict[str, float]:
        """Whether no other letter is as likely as the right one, and its negative log likelihood."""
        at = LETTERS.index(sample.references[0])
        right = likelihoods[at]
        others = (found.nats for index, found in enumerate(likelihoods) if index != at)
        return {"accuracy": float(right.nats > max(others)), "nll": -right.nats / right.tokens}

    def _sample(self, row: Mapping[str, Any], index: int, place: str) -> Sample:
        fields, answer = self._question(row, index, place)
        return Sample(
            id=f"row-{index}",
            prompt=fill(prompts("medqa")["lm_eval_medqa_4options"]["prompt"], **fields),
            continuations=tuple(f" {letter}" for letter in LETTERS),
            references=(answer,),
            chat=self.chat,
            document=f"row-{index}",
        )

    def _question(self, row: Mapping[str, Any], index: int, place: str) -> tuple[Mapping[str, object], str]:
        if self.dataset == "medqa":
            return row, letter_of(row["label"], place)
        if self.dataset == "gsm8k_mc_derived":
            row = derived_choices(row["question"], row["answer"], index, place)
        fields = {"sent1": row["Question"]} | {f"ending{n}": row[letter] for n, letter in enumerate(LETTERS)}
        return fields, checked_letter(row["Answer"], place)


def derived_choices(question: str, solution: str, index: int, place: str) -> dict[str, str]:
    """A row with the columns of ``gsm8k-mc``: Question, A, B, C, D, Answer.

    The wrong answers are the first three distinct ones of: intermediate results of the solution, gold - 1, gold + 1,
    gold x 2, gold / 2, gold + 10. ``index`` seeds their order. Scores do not compare with those of the paper's set.
    Raises `TaskError`, with the row's ``place``, where the solution ends without a number.
    """
    found = _GOLD.search(solution)
    gold = _number(found[1]) if found else None
    if gold is None:
        raise TaskError(f"{place}: the answer has no number after '####', so no choices can be derived from it.")
    wrong: dict[Fraction, None] = {}
    for number in _candidates(solution, gold):
        if number != gold:
            wrong[number] = None
    choices = [gold, *list(wrong)[:3]]
    random.Random(index).shuffle(choices)
    named: Mapping[str, Fraction] = dict(zip(LETTERS, choices, strict=True))
    answer = next(letter for letter, number in named.items() if number == gold)
    return {"Question": question, "Answer": answer} | {letter: _written(number) for letter, number in named.items()}


def _candidates(solution: str, gold: Fraction) -> Iterator[Fraction]:
    for result in _RESULT.findall(solution):
        number = _number(result)
        if number is not None:
            yield number
    yield from (gold - 1, gold + 1, gold * 2, gold / 2, gold + 10)


def _number(text: str) -> Fraction | None:
    try:
        return Fraction(text.replace(",", "").rstrip("."))
    except (ValueError, ZeroDivisionError):
        return None


def _written(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.10g}"


def checked_letter(answer: str, place: str) -> str:
    """The letter of a row with the columns of ``gsm8k-mc``."""
    if answer not in list(LETTERS):
        raise TaskError(f"{place}: column 'Answer' must be one of A, B, C, D; it is {answer!r}.")
    return answer


def letter_of(label: int, place: str) -> str:
    """The letter of MedQA's number of the right option."""
    if label not in range(len(LETTERS)):
        raise TaskError(f"{place}: column 'label' must be a number from 0 to 3; it is {label}.")
    return LETTERS[label]
