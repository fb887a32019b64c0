"""GSM8K: grade-school arithmetic in words, by chain of thought, scored by its last number (tasks.md 5.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, nearest, sources_hash, whole
from tasks.data import revision_of
from tasks.data.tables import table
from tasks.metrics.answers import gsm8k_flexible
from tasks.templates import FOLDER, fill, prompts

STYLES = {"cot_8_shot": "lm_eval_gsm8k_cot", "zero_shot": "lm_eval_gsm8k_cot_zeroshot"}


@dataclass(frozen=True)
class Gsm8k(Task):
    """GSM8K: arithmetic word problems, answered with a chain of thought, correct where the final number is.

    ``style``: ``cot_8_shot`` shows the eight chain-of-thought examples of Wei et al.; ``zero_shot`` asks to think step
    by step. Metrics: ``flexible`` (the last number of the answer) and ``strict`` (the number after "The answer is"),
    both as in lm-evaluation-harness. HashEvict's free responses are the task hashevict/gsm8k_free_response.

    Source: lm-evaluation-harness 4e7e0d47 (gsm8k-cot.yaml, gsm8k-cot-zeroshot.yaml). Rows keep the file's order.
    """

    name: ClassVar[str] = "gsm8k"
    version: ClassVar[str] = "1"
    metrics: ClassVar[tuple[str, ...]] = ("flexible", "strict")

    style: str = "cot_8_shot"
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    chat: bool = True  # whether the whole prompt is a user message, for models with a chat format
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        if self.style not in list(STYLES):
            raise TaskError(f"gsm8k knows no style '{self.style}'. {nearest(str(self.style), STYLES)}")
        if self.chat not in (True, False):
            raise TaskError(f"gsm8k.chat must be true or false; got {self.chat!r}.")
        whole("gsm8k.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``gsm8k/cot_8_shot``."""
        return f"{self.name}/{self.style}"

    @property
    def _texts(self) -> Mapping[str, Any]:
        texts: Mapping[str, Any] = prompts("gsm8k")[STYLES[self.style]]
        return texts

    def revision(self) -> dict[str, str]:
        """The rows' file, prompts and examples, and the code of the metric."""
        return {
            "data": revision_of("gsm8k/test", self.data),
            "prompts": files_hash(FOLDER / "gsm8k.yaml"),
            "metrics": sources_hash(gsm8k_flexible),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One per question, behind the same examples; raises `TaskError` where the data is missing or damaged."""
        shown = self._examples()
        return [
            Sample(
                id=f"row-{index}",
                prompt=shown + fill(self._texts["prompt"], question=row["question"]),
                references=(row["answer"],),
                max_new_tokens=self.max_new_tokens,
                until=tuple(self._texts["stop"]),
                chat=self.chat,
                document=f"row-{index}",
            )
            for index, row in enumerate(table("gsm8k/test", self.data).rows)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """Whether the final number is the reference's: the last one, and the one that is announced as the answer."""
        (gold,) = sample.references
        announced = re.search(self._texts["strict_regex"], prediction)
        return {
            "flexible": gsm8k_flexible(prediction, gold),
            "strict": gsm8k_flexible(announced[1], gold) if announced else 0.0,
        }

    def _examples(self) -> str:
        if not self._texts["num_fewshot"]:
            return ""
        shown = prompts("gsm8k")["cot_exemplars_8"][: self._texts["num_fewshot"]]
        asked = (fill(self._texts["prompt"], question=example["question"]) for example in shown)
        return "".join(f"{text} {example['target']}\n\n" for text, example in zip(asked, shown, strict=True))
