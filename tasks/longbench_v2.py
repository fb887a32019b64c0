"""LongBench v2: 503 questions with four choices over contexts of 8,000 to 2 million words (tasks.md 2.8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import WHOLE_CONTEXT, Sample, Task, TaskError, Tokenizer, files_hash, nearest, texts_hash, whole
from tasks.data import DataTable, revision_of
from tasks.data.tables import table
from tasks.templates import FOLDER, fill, prompts, question_of

DATA = "longbench_v2/train"
PARTS = ("all", "short", "medium", "long")  # by words of the context: to 32,000, to 128,000, more
LETTERS = ("A", "B", "C", "D")
ANNOUNCED = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))


@dataclass(frozen=True)
class LongBenchV2(Task):
    """LongBench v2: multiple choice over long documents, dialogues, code and tables, right where the letter is.

    The official prompt without chain of thought as one user message, cut in the middle down to ``max_length`` tokens
    (None: to what the model has positions for). The letter follows "The correct answer is", in brackets or not, after
    asterisks are removed; without one the answer is wrong. Deviation: decoding is greedy, where the authors draw at
    temperature .1 (``sampling.temperature=0.1``).

    Source: THUDM/LongBench 2e00731f (pred.py, prompts/0shot.txt). Rows keep the file's order.
    """

    name: ClassVar[str] = "longbench_v2"
    version: ClassVar[str] = "1"
    asks_last: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    part: str = "all"
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    max_length: int | None = None  # tokens
    max_new_tokens: int = 128

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise TaskError(f"longbench_v2 has no part '{self.part}'. {nearest(str(self.part), PARTS)}")
        if self.max_length is not None:
            whole("longbench_v2.max_length", self.max_length, 2)
        whole("longbench_v2.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``longbench_v2``, or ``longbench_v2/short``."""
        return self.name if self.part == "all" else f"{self.name}/{self.part}"

    def revision(self) -> dict[str, str]:
        """The rows' file and the prompt."""
        return {"data": revision_of(DATA, self.data), "prompts": files_hash(FOLDER / "longbench_v2.yaml")}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """The rows of the part; raises `TaskError` where the data is missing or damaged."""
        read = table(DATA, self.data)
        return [self._sample(read, index) for index, row in enumerate(read.rows) if self.part in ("all", row["length"])]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """Whether the announced letter is the right one."""
        return {"accuracy": float(announced(prediction) == sample.references[0])}

    def _sample(self, read: DataTable, index: int) -> Sample:
        row, template = read.rows[index], str(prompts("longbench_v2")["zero_shot"])
        if row["answer"] not in LETTERS or row["length"] not in PARTS[1:]:
            raise TaskError(
                f"{read.place(index)}: column 'answer' must be one of A, B, C, D and 'length' short, medium or long; "
                f"they are {row['answer']!r} and {row['length']!r}. Fetch the file again."
            )
        fields: Mapping[str, Any] = {name: str(row[name]).strip() for name in ("question", *CHOICES)}
        context = str(row["context"]).strip()
        return Sample(
            id=str(row["_id"]),
            prompt=fill(template, context=context, **fields),
            question=question_of(template, "context", **fields),
            references=(row["answer"],),
            max_new_tokens=self.max_new_tokens,
            chat=True,
            longest=self.max_length or WHOLE_CONTEXT,
            document=texts_hash(context),  # several questions may share a context
            axes={"domain": row["domain"], "difficulty": row["difficulty"], "words": row["length"]},
        )


CHOICES = tuple(f"choice_{letter}" for letter in LETTERS)


def announced(prediction: str) -> str:
    """The letter after "The correct answer is"; empty where there is none."""
    text = prediction.replace("*", "")
    found = (pattern.search(text) for pattern in ANNOUNCED)
    return next((each[1] for each in found if each), "")
