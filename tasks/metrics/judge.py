"""HashEvict's LLM judge: four scores from 1 to 5 for one answer, in two calls (tasks.md 8).

`Judge` is the published procedure. `judge_scores` is how a task uses it: at the endpoint that the environment names,
with `TaskError` where no score can be had.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from tasks.base import TaskError
from tasks.metrics.chat_client import ChatClient, Endpoint, UnansweredError

PROMPTS = Path(__file__).parent.parent / "prompts" / "judge.yaml"
ANSWER_CACHE = Path("data/judge")  # in the working directory: no answer is paid for twice
JUDGE_METRICS = ("judge", "judge_similarity", "judge_coherent", "judge_faithful", "judge_helpful")  # from 1 to 5


@dataclass(frozen=True)
class JudgeScores:
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
class JudgeSkipped:
    """No scores, because there was no key or no answer. ``reason`` is a sentence."""

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

    def skipped(self) -> JudgeSkipped | None:
        """Why only cached scores can be had, None where all can: to be reported before a run."""
        try:
            self.client.check()
        except UnansweredError as error:
            return JudgeSkipped(f"The LLM judge is skipped: {error}.")
        return None

    def score(self, prompt: str, prediction: str, labels: Sequence[str]) -> JudgeScores | JudgeSkipped:
        """The scores of a prediction, given its prompt and the reference answers.

        Raises `TaskError` where the cache cannot be written.
        """
        try:
            similarity = self._ask("similarity", labels=self._joined(labels), prediction=prediction)
            scorecard = self._ask("scorecard", criteria=_criteria(), prompt=prompt, prediction=prediction)
        except UnansweredError as error:
            return JudgeSkipped(f"The LLM judge is skipped: {error}.")
        scores = _scorecard_numbers(scorecard)
        number = re.search(r"\d+", similarity)
        scores["similarity"] = _valid(number[0]) if number else None
        missing = tuple(sorted(name for name, score in scores.items() if score is None))
        return JudgeScores(**{name: score or 1 for name, score in scores.items()}, missing=missing)

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


def _scorecard_numbers(scorecard: str) -> dict[str, int | None]:
    pattern = re.compile(rf"({'|'.join(_names())})\W+(\d+)(?:\s*/\s*5)?")
    named = dict(pattern.findall(scorecard))
    unnamed = iter(re.findall(r"\d+", pattern.sub("", scorecard)))
    return {name: _valid(named[name] if name in named else next(unnamed, "")) for name in _names()}


def _valid(number: str) -> int | None:
    return int(number) if number in {"1", "2", "3", "4", "5"} else None


# The judge as a task uses it.


def refuse_without_key(model: str) -> None:
    """Raise `TaskError` before anything is computed where the endpoint cannot be called."""
    if skipped := hashevict_judge(model).skipped():
        raise TaskError(f"{skipped.reason} Or run without the judge: task.judge=null.")


def judge_scores(model: str, prompt: str, prediction: str, reference: str) -> dict[str, float]:
    """`JUDGE_METRICS` of one prediction. Raises `TaskError` where the judge gave no answer: no score is made up."""
    found = hashevict_judge(model).score(prompt, prediction, (reference,))
    if isinstance(found, JudgeSkipped):
        raise TaskError(f"{found.reason} What was answered is kept: run the same command again to go on from there.")
    numbers = (found.mean, found.similarity, found.coherent, found.faithful, found.helpful)
    return dict(zip(JUDGE_METRICS, map(float, numbers), strict=True))


@cache
def hashevict_judge(model: str) -> Judge:
    """The judge for ``model`` at the endpoint that the environment names; its bill is printed when the process ends."""
    client = ChatClient(Endpoint.from_environment(model), ANSWER_CACHE)
    atexit.register(_bill, client)
    return Judge(client)


def _bill(client: ChatClient) -> None:
    if client.usage.calls or client.usage.cached:
        print(f"LLM judge: {client.usage.report(client.endpoint.prices)}", file=sys.stderr)
