"""HashEvict's LLM judge: four scores from 1 to 5 for one answer, in two calls (tasks.md 8)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from tasks.metrics.chat_client import ChatClient, UnansweredError

PROMPTS = Path(__file__).parent.parent / "prompts" / "judge.yaml"


@dataclass(frozen=True)
class Verdict:
    """Whole numbers from 1 (worst) to 5 (best)."""

    similarity: int  # to the labels
    coherent: int
    faithful: int
    helpful: int
    missing: tuple[str, ...] = ()  # scores that the answers did not give, and that are 1 therefore

    @property
    def mean(self) -> float:
        """What HashEvict's tables call GPT4-Judge, from 1 to 5."""
        return (self.similarity + self.coherent + self.faithful + self.helpful) / 4


@dataclass(frozen=True)
class Skipped:
    """No verdict: there was no key, or no answer. It is not a score and has none."""

    reason: str


@dataclass(frozen=True)
class Judge:
    """The prompts, calls and parsing of HashEvict's fork of cold-compress (``metric.py``).

    ``join`` says how labels enter the similarity prompt. ``fixed`` puts a separator line between labels. ``released``
    is the published code: a single label (GSM8K, MedQA, GovReport) is a plain string there, and the separator comes
    between its characters.

    Deviations: numbers outside 1 to 5 count as missing (taken as they are there), a similarity answer without a number
    is 1 (an exception there), and a scorecard that does not name all criteria keeps the scores it names; the others get
    its numbers without a name in alphabetical order, then 1 (there all numbers are dealt out in order: the same mean).
    """

    client: ChatClient
    join: Literal["fixed", "released"] = "fixed"

    def skipped(self) -> Skipped | None:
        """Whether and why only cached verdicts are to be had, to be said before a run."""
        try:
            self.client.endpoint.key()
        except UnansweredError as error:
            return Skipped(f"The LLM judge is skipped: {error}.")
        return None

    def score(self, prompt: str, prediction: str, labels: Sequence[str]) -> Verdict | Skipped:
        """The verdict on a prediction, given its prompt and the reference answers.

        Raises `TaskError` where the cache cannot be written.
        """
        try:
            similarity = self._ask("similarity", labels=self._joined(labels), prediction=prediction)
            scorecard = self._ask("scorecard", criteria=_criteria(), prompt=prompt, prediction=prediction)
        except UnansweredError as error:
            return Skipped(f"The LLM judge is skipped: {error}.")
        scores = _named(scorecard)
        number = re.search(r"\d+", similarity)
        scores["similarity"] = _valid(number[0]) if number else None
        missing = tuple(sorted(name for name, score in scores.items() if score is None))
        return Verdict(**{name: score or 1 for name, score in scores.items()}, missing=missing)

    def _ask(self, kind: str, **fields: str) -> str:
        template = {"similarity": "reference_similarity", "scorecard": "criteria_scorecard"}[kind]
        call = _prompts()[f"{kind}_call"]
        return self.client.ask(_prompts()[template].format(**fields), call["max_tokens"], call["temperature"]).strip()

    def _joined(self, labels: Sequence[str]) -> str:
        separator: str = _prompts()["labels_join"]
        return separator.join(labels[0] if self.join == "released" and len(labels) == 1 else labels)


@lru_cache(maxsize=1)
def _prompts() -> Mapping[str, Any]:
    prompts: Mapping[str, Any] = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    return prompts


def _names() -> list[str]:
    return sorted(_prompts()["criteria"])


def _criteria() -> str:
    return "\n".join(f"{name}: {_prompts()['criteria'][name]}" for name in _names())


def _named(scorecard: str) -> dict[str, int | None]:
    pattern = re.compile(rf"({'|'.join(_names())})\W+(\d+)(?:\s*/\s*5)?")
    named = dict(pattern.findall(scorecard))
    unnamed = iter(re.findall(r"\d+", pattern.sub("", scorecard)))
    return {name: _valid(named[name] if name in named else next(unnamed, "")) for name in _names()}


def _valid(number: str) -> int | None:
    return int(number) if number in {"1", "2", "3", "4", "5"} else None
