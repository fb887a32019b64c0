"""HashEvict's tasks: prompts and lengths are ``prompts/hashevict.yaml``, rows become their fields here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.base import TaskError
from tasks.checks import nearest
from tasks.data import table
from tasks.gsm8k.choices import LETTERS, derived
from tasks.templates import prompts

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Subset:
    """``fields`` makes a prompt's fields of a row (also given its index and place), ``reference`` its label."""

    dataset: str
    wording: str  # key of prompts/hashevict.yaml
    multiple_choice: bool
    fields: Callable[[Row, int, str], Mapping[str, object]]
    reference: Callable[[Row, int, str], str]
    wanted: int | None = None  # rows that the paper draws, where it says so
    longest: int | None = None  # tokens of prompt and answer; rows with more are left out before the draw

    @property
    def prompt(self) -> str:
        """HashEvict's wording, with ``{…}`` for the fields of a row."""
        text: str = prompts("hashevict")[self.wording]["prompt"]
        return text

    @property
    def max_new_tokens(self) -> int:
        """Tokens to generate at most."""
        tokens: int = prompts("hashevict")[self.wording]["max_new_tokens"]
        return tokens


def choice_fields(row: Row) -> dict[str, object]:
    """Of a row with the columns Question, A, B, C, D."""
    return {"question": row["Question"]} | {f"choice_{letter}": row[letter] for letter in LETTERS}


def with_choices(row: Row) -> str:
    """MedQA's question and its four options on lines of their own."""
    return "\n".join([row["sent1"], *(f"{letter}. {row[f'ending{n}']}" for n, letter in enumerate(LETTERS))])


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


def _report(subset: str) -> Subset:
    return Subset(
        dataset=f"longbench/{subset}",
        wording=subset,
        multiple_choice=False,
        fields=lambda row, index, place: {"context": row["context"]},
        reference=lambda row, index, place: str(row["answers"][0]),
        wanted=prompts("hashevict")[subset]["samples"],
        longest=16384,
    )


SUBSETS: dict[str, Subset] = {
    "gsm8k_free_response": Subset(
        dataset="gsm8k/test",
        wording="gsm8k_free_response",
        multiple_choice=False,
        fields=lambda row, index, place: {"question": row["question"]},
        reference=lambda row, index, place: str(row["answer"]),
    ),
    "gsm8k_multiple_choice": Subset(
        dataset="gsm8k_mc/test",
        wording="gsm8k_multiple_choice",
        multiple_choice=True,
        fields=lambda row, index, place: choice_fields(row),
        reference=lambda row, index, place: checked_letter(row["Answer"], place),
    ),
    "gsm8k_multiple_choice_derived": Subset(
        dataset="gsm8k/test",
        wording="gsm8k_multiple_choice",
        multiple_choice=True,
        fields=lambda row, index, place: choice_fields(derived(row["question"], row["answer"], index, place)),
        reference=lambda row, index, place: derived(row["question"], row["answer"], index, place)["Answer"],
    ),
    "medqa_free_response": Subset(
        dataset="medqa_free/test",
        wording="medqa_free_response",
        multiple_choice=False,
        fields=lambda row, index, place: {"system": row["system"], "question": row["question"]},
        reference=lambda row, index, place: str(row["answer"]),
    ),
    "medqa_multiple_choice": Subset(
        dataset="medqa/test",
        wording="medqa_multiple_choice",
        multiple_choice=True,
        fields=lambda row, index, place: {"question": with_choices(row)},
        reference=lambda row, index, place: letter_of(row["label"], place),
        wanted=100,
    ),
    "gov_report": _report("gov_report"),
    "multi_news": _report("multi_news"),
}


def subset(name: str) -> Subset:
    """The subset ``name``; `TaskError` with the nearest where there is none."""
    if name not in list(SUBSETS):
        raise TaskError(f"hashevict has no subset '{name}'. {nearest(str(name), SUBSETS)}")
    return SUBSETS[name]


def rows_of(name: str, data: str) -> list[tuple[int, str, Row]]:
    """(index, place, row) of every row of the subset's data."""
    read = table(subset(name).dataset, data)
    return [(index, read.place(index), row) for index, row in enumerate(read.rows)]
