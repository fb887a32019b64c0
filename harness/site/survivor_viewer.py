"""The survivor viewer's data: the text of each recorded sample, and when every head evicted each token."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.report.labels import ordered_budgets, ordered_policies, policy_labels
from harness.report.looks import Look, looks
from harness.site.cell_pages import excerpt, sample_metric
from harness.site.contents import regime_text
from harness.store import cell_folders

MOST_PLACES = 8  # of an answer that are marked in a text
SENTENCE_END = re.compile(r"[.!?]['\"”’)]*\s+|\n+")
FOLDER = "survivors"  # the diagnostic, `python -m harness survivors`


@dataclass(frozen=True)
class SurvivorRun:
    """One policy's run over the sample. P passes, L layers, H KV heads, T tokens."""

    cell_id: str
    label: str
    regime: str
    look: Look
    stops: list[int]  # (P,) tokens fed after each pass
    prompt_passes: int
    left_at: np.ndarray  # (L, H, T) int32, the pass after which a token is gone; -1: never
    answer: str = ""  # the policy's own prediction, if the store has it
    score: str = ""

    def data(self) -> dict[str, Any]:
        """As the page's script reads it."""
        layers, heads, _ = self.left_at.shape
        return {
            "label": self.label,
            "layers": layers,
            "heads": heads,
            "stops": self.stops,
            "promptPasses": self.prompt_passes,
            "leftAt": self.left_at.reshape(layers * heads, -1).tolist(),
        }


@dataclass(frozen=True)
class SurvivorSample:
    """One sample, fed as the same tokens to several policies."""

    name: str  # of its page
    model: str
    task: str
    sample: str
    pieces: list[str]  # (T,) the text of each token, in order
    prompt_tokens: int
    reference: str
    answers: list[tuple[int, int]]  # where the accepted answer stands in the prompt: first token, and behind the last
    needles: list[tuple[int, int]]  # the sentences that it stands in
    runs: list[SurvivorRun]

    def data(self) -> dict[str, Any]:
        """As the page's script reads it."""
        return {
            "pieces": self.pieces,
            "promptTokens": self.prompt_tokens,
            "answers": self.answers,
            "needles": self.needles,
            "runs": [run.data() for run in self.runs],
        }


def survivor_samples(results_dir: Path, rows: pd.DataFrame) -> list[SurvivorSample]:
    """Every sample of the store that was recorded with its text; runs of the same tokens together."""
    root = results_dir / "diagnostics"
    groups: dict[tuple[str, ...], list[tuple[dict[str, Any], pd.DataFrame]]] = {}
    for name in cell_folders.cell_names(root):
        for file in sorted((root / name / FOLDER).glob("*.parquet")):
            frame = pd.read_parquet(file)
            if "text" in frame:  # the diagnostic alone, without the viewer's text, has no page
                cell = cell_folders.read_description(root / name)
                key = (str(cell["model"]), str(cell["task"]), str(frame["sample_id"].iloc[0]), _token_hash(frame))
                groups.setdefault(key, []).append((cell, frame))
    answers = {(str(line["cell_id"]), str(line["sample_id"])): line for line in _first_metric(rows)}
    return [_survivor_sample(key, members, answers) for key, members in sorted(groups.items())]


def _token_hash(frame: pd.DataFrame) -> str:
    """A hash of the tokens that were fed, and where the prompt ends."""
    once = frame[(frame["layer"] == 0) & (frame["head"] == 0)]
    prompt = int((once["phase"] == "prompt").sum())
    return hashlib.sha256(f"{prompt} {once['token'].tolist()}".encode()).hexdigest()[:12]


def _first_metric(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    return rows.drop_duplicates(["cell_id", "sample_id"]).to_dict("records")


def _survivor_sample(
    key: tuple[str, ...],
    members: list[tuple[dict[str, Any], pd.DataFrame]],
    answers: Mapping[tuple[str, str], Mapping[Any, Any]],
) -> SurvivorSample:
    model, task, sample, tokens = key
    labels = policy_labels(pd.DataFrame([_as_row(cell) for cell, _ in members]))
    style = looks(labels.values())
    order = {
        str(cell["cell_id"]): (
            ordered_policies(labels.values()).index(labels[cell["cell_id"]]),
            ordered_budgets(str(each["budget"]) for each, _ in members).index(str(cell["budget"])),
            regime_text(cell),
        )
        for cell, _ in members
    }
    members = sorted(members, key=lambda member: order[member[0]["cell_id"]])
    first = members[0][1]
    once = first[(first["layer"] == 0) & (first["head"] == 0)].sort_values("position")
    seen = [answers[str(cell["cell_id"]), sample] for cell, _ in members if (str(cell["cell_id"]), sample) in answers]
    pieces, prompt_tokens = once["text"].astype(str).tolist(), int((once["phase"] == "prompt").sum())
    reference = str(seen[0]["reference"]) if seen else ""
    answer_places, needles = places_of(reference, pieces[:prompt_tokens])
    return SurvivorSample(
        name=f"{_file_name(model)}-{_file_name(task)}-{_file_name(sample)}-{tokens[:6]}",
        model=model,
        task=task,
        sample=sample,
        pieces=pieces,
        prompt_tokens=prompt_tokens,
        reference=excerpt(reference),
        answers=answer_places,
        needles=needles,
        runs=[
            _survivor_run(cell, frame, labels[cell["cell_id"]], style, answers.get((str(cell["cell_id"]), sample)))
            for cell, frame in members
        ],
    )


Spans = list[tuple[int, int]]


def places_of(answer: str, pieces: Sequence[str]) -> tuple[Spans, Spans]:
    """Where an answer stands in a text of tokens, and the sentences around it, as (first token, behind the last).

    Letters and blanks must agree, but for blanks at its ends and for capitals. Answers that stand in the text more than
    `MOST_PLACES` times, such as a yes, have no place.
    """
    text, wanted = "".join(pieces).lower(), answer.strip().lower()
    ends = list(itertools.accumulate(len(piece) for piece in pieces))
    if not wanted or len(text) != (ends[-1] if ends else 0):  # a few letters change their length with their case
        return [], []
    found = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(wanted)}(?!\w)", text)]
    if len(found) > MOST_PLACES:
        return [], []
    sentences = dict.fromkeys(_sentence_around(text, start, stop) for start, stop in found)
    return [_tokens_of(ends, *span) for span in found], [_tokens_of(ends, *span) for span in sentences]


def _sentence_around(text: str, start: int, stop: int) -> tuple[int, int]:
    before = max((match.end() for match in SENTENCE_END.finditer(text, 0, start)), default=0)
    behind = SENTENCE_END.search(text, stop)
    return before, behind.start() + len(behind.group().rstrip()) if behind else len(text)


def _tokens_of(ends: Sequence[int], start: int, stop: int) -> tuple[int, int]:
    """Tokens that letters from ``start`` to ``stop`` belong to. ``ends``: the letters up to the end of each token."""
    return bisect.bisect_right(ends, start), bisect.bisect_left(ends, stop) + 1


def _as_row(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A description as a row of the cells table, whose ``config`` is text."""
    return {**cell, "config": json.dumps(cell["config"])}


def _survivor_run(
    cell: Mapping[str, Any],
    frame: pd.DataFrame,
    label: str,
    style: Mapping[str, Look],
    answer: Mapping[Any, Any] | None,
) -> SurvivorRun:
    ordered = frame.sort_values(["layer", "head", "position"])
    layers, heads = int(ordered["layer"].max()) + 1, int(ordered["head"].max()) + 1
    once = ordered.iloc[: len(ordered) // (layers * heads)]
    stops = once.groupby("fed_in")["position"].max() + 1
    phases = once.groupby("fed_in")["phase"].first()
    return SurvivorRun(
        cell_id=str(cell["cell_id"]),
        label=f"{label}, {cell['budget']}" if cell["budget"] != "full" else label,
        regime=regime_text(cell),
        look=style[label],
        stops=[int(stop) for stop in stops],
        prompt_passes=int((phases == "prompt").sum()),
        left_at=ordered["left_at"].to_numpy().reshape(layers, heads, -1),
        answer=excerpt(str(answer["prediction"])) if answer else "",
        score=f"{sample_metric(str(answer['metric']))} {answer['value']:.3f}" if answer else "",
    )


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)
