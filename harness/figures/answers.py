"""One article's summary by each policy, with its scores: BUZZ Figure 9."""

from __future__ import annotations

import textwrap

from harness.figures.canvas import MUTED, SMALL, Sheet
from harness.figures.drawing import GapError, Sketch
from harness.figures.material import Material, natural
from harness.report.colours import look_of
from harness.report.names import metric_title, ordered_policies

LETTERS, LINE = 72, 13  # of the text in one line; CSS pixels
LONGEST = 420  # letters of one text


def draw(material: Material, tables: tuple[str, ...]) -> Sketch:
    """The first sample that all policies have."""
    rows = material.scored()
    common = set.intersection(*(set(part["sample_id"]) for _, part in rows.groupby("policy")))
    if not common:
        raise GapError("Its policies have no sample in common.")
    sample = min(common, key=natural)
    own = material.rows[material.rows["sample_id"] == sample]
    blocks = [("reference summary", "", MUTED, str(own["reference"].iloc[0]))]
    for policy in ordered_policies(own["policy"]):
        part = own[own["policy"] == policy]
        scores = " · ".join(f"{metric_title(m)} {v:.2f}" for m, v in zip(part["metric"], part["value"], strict=True))
        printed = _printed(material, tables, policy)
        words = scores + (f" (the paper's example: {printed})" if printed else "")
        blocks.append((policy, words, look_of(policy).light, str(part["prediction"].iloc[0])))
    wrapped = [(name, words, colour, textwrap.wrap(_short(text), LETTERS)) for name, words, colour, text in blocks]
    height = sum(LINE * (len(lines) + 1 + len(_score_lines(words))) + 10 for _, words, _, lines in wrapped) + 8
    sheet = Sheet(height, f"Sample {sample}, n = 1: scores of one sample have no interval")
    y = 8.0
    for name, words, colour, lines in wrapped:
        sheet.text(8, y, name, color=colour, weight="bold", fontsize=10)
        y += LINE
        for line in _score_lines(words):
            sheet.text(8, y, line, color=MUTED, fontsize=SMALL)
            y += LINE
        for line in lines:
            sheet.text(8, y, line, fontsize=10)
            y += LINE
        y += 10
    return Sketch(
        sheet.figure, f"What each policy makes of sample {sample} at {own['budget'].iloc[0]}, with its scores."
    )


def _score_lines(words: str) -> list[str]:
    return textwrap.wrap(words, LETTERS + 6)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else flat[:LONGEST] + " …"


def _printed(material: Material, tables: tuple[str, ...], policy: str) -> str:
    found = material.printed(tables)
    found = found[found["policy"] == policy]
    return ", ".join(f"{metric} {number:.2f}" for metric, number in zip(found["metric"], found["value"], strict=True))
