"""Multiple choice by likelihood: which letter a model finds likeliest after question and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks import revision
from tasks.base import Likelihood, Mode, Sample, Task, TaskError, Tokenizer
from tasks.checks import nearest
from tasks.data import revision_of, table
from tasks.gsm8k.choices import LETTERS, derived
from tasks.hashevict.subsets import checked_letter, letter_of
from tasks.templates import FOLDER, fill, prompts

DATASETS = {"medqa": "medqa/test", "gsm8k_mc": "gsm8k_mc/test", "gsm8k_mc_derived": "gsm8k/test"}


@dataclass(frozen=True)
class MultipleChoice(Task):
    """Multiple choice: MedQA and GSM8K with four options, right where the right letter is the likeliest.

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
    data: str = "auto"  # where the rows lie, see `tasks.data.table`
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
            "prompts": revision.of_files(FOLDER / "medqa.yaml"),
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
            row = derived(row["question"], row["answer"], index, place)
        fields = {"sent1": row["Question"]} | {f"ending{n}": row[letter] for n, letter in enumerate(LETTERS)}
        return fields, checked_letter(row["Answer"], place)
