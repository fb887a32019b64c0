"""The 21 subsets of LongBench as the official configuration has them; the table is ``tasks/prompts/longbench.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tasks.base import TaskError
from tasks.checks import nearest
from tasks.metrics import chinese
from tasks.metrics.classification import classification
from tasks.metrics.code import code_similarity
from tasks.metrics.exact import normalised
from tasks.metrics.longbench_scorer import item_score
from tasks.metrics.qa_f1 import qa_f1
from tasks.metrics.retrieval import retrieval
from tasks.metrics.rouge import rouge_l

SETTINGS = Path(__file__).parents[1] / "prompts" / "longbench.yaml"

# What decides a score besides LongBench's own scorer, so that an edit elsewhere does not make these cells others.
SCORED_BY: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "qa_f1": (item_score, qa_f1, normalised),
    "qa_f1_zh": (item_score, qa_f1, chinese.words),
    "rouge_l": (item_score, rouge_l),
    "rouge_l_zh": (item_score, rouge_l, chinese.words),
    "classification": (item_score, classification),
    "count": (item_score, retrieval),
    "retrieval": (item_score, retrieval),
    "retrieval_zh": (item_score, retrieval),
    "code_sim": (item_score, code_similarity),
}


@dataclass(frozen=True)
class Subset:
    """One row of tasks.md 2.2."""

    name: str
    prompt: str  # with the fields {context} and {input}
    max_new_tokens: int
    metric: str
    category: str
    language: str  # en | zh
    rows: int
    chat: bool  # whether the official code wraps the prompt in the model's chat format
    stop_at_newline: bool  # and asks for one token at least
    has_extended: bool  # whether LongBench-E has it

    def speaks(self, language: str) -> bool:
        """Whether a row's column ``language`` fits: "en" or "zh", or in code tasks a programming language."""
        return language == self.language or (self.category == "code" and language != "zh")


def _subset(name: str, row: Mapping[str, Any]) -> Subset:
    return Subset(
        name=name,
        prompt=row["prompt"],
        max_new_tokens=row["max_new_tokens"],
        metric=row["metric"],
        category=row["category"],
        language=row["language"],
        rows=row["samples"],
        chat=row["chat_template"],
        stop_at_newline=row["stop_at_newline"],
        has_extended=row["longbench_e"],
    )


_TABLE = yaml.safe_load(SETTINGS.read_text("utf-8"))

SUBSETS: dict[str, Subset] = {name: _subset(name, row) for name, row in _TABLE["tasks"].items()}
ENGLISH: tuple[str, ...] = tuple(_TABLE["english_16"])  # the 16 of the papers, in the order of their tables
CHINESE: tuple[str, ...] = tuple(_TABLE["chinese_5"])


def subset(name: str, extended: bool) -> Subset:
    """The subset ``name``; `TaskError` with the nearest where there is none, or none in LongBench-E."""
    if name not in list(SUBSETS):  # a list given by mistake cannot be looked up in a dict
        raise TaskError(f"LongBench has no subset '{name}'. {nearest(str(name), SUBSETS)}")
    if extended and not SUBSETS[name].has_extended:
        known = ", ".join(each for each in SUBSETS if SUBSETS[each].has_extended)
        raise TaskError(f"LongBench-E has no subset '{name}', only {known}: use longbench.extended=false.")
    return SUBSETS[name]
