"""What each policy makes of the same articles, with its scores: BUZZ Figure 9."""

from __future__ import annotations

import textwrap

from harness.papers.figures.canvas import LINE_HEIGHT, MUTED, SMALL, FigureSheet, NotDrawnError, Sketch
from harness.papers.figures.figure_data import PROMPTS, FigureData, natural_key
from harness.report.labels import metric_title, ordered_policies
from harness.report.looks import look_of

COLUMN, LETTER, GAP = 300, 6.6, 20  # CSS pixels: of an article at least, of a letter, between two articles
LONGEST = 420  # letters of one text
Block = tuple[str, str, list[str], list[str]]  # a name with its colour, lines of scores, lines of text


def draw_answers(data: FigureData, width: float, tables: tuple[str, ...]) -> Sketch:
    """The first samples that all policies have, beside each other where there is room."""
    rows = data.scored()
    common = set.intersection(*(set(part["sample_id"]) for _, part in rows.groupby("policy")))
    if not common:
        raise NotDrawnError("Its policies have no sample in common.")
    samples = sorted(common, key=natural_key)[:PROMPTS]
    columns = max(1, min(len(samples), int((width + GAP) // (COLUMN + GAP))))
    pitch = (width - 12 + GAP) / columns
    letters = int((pitch - GAP) / LETTER)
    articles = [_blocks(data, sample, tables, letters) for sample in samples]
    heights = [sum(map(_height, blocks)) + LINE_HEIGHT + 6 for blocks in articles]
    rows_of = [range(i, min(i + columns, len(samples))) for i in range(0, len(samples), columns)]
    total = sum(max(heights[i] for i in row) + 12 for row in rows_of)
    footer = (
        f"Rule: the first {len(samples)} articles of the task. n = 1 each: scores of one article have no interval; "
        "means stand in the tables"
    )
    sheet = FigureSheet(width, total, footer)
    top = 4.0
    for row in rows_of:
        for place, i in enumerate(row):
            _write(sheet, 6 + place * pitch, top, samples[i], articles[i])
        top += max(heights[i] for i in row) + 12
    budget = data.rows["budget"].iloc[0]
    return Sketch(sheet.figure, f"What each policy makes of {len(samples)} articles at {budget}, with its scores.")


def _blocks(data: FigureData, sample: str, tables: tuple[str, ...], letters: int) -> list[Block]:
    own = data.rows[data.rows["sample_id"] == sample]
    blocks: list[Block] = [("reference summary", MUTED, [], _lines(str(own["reference"].iloc[0]), letters))]
    for policy in ordered_policies(own["policy"]):
        part = own[own["policy"] == policy]
        scores = " · ".join(f"{metric_title(m)} {v:.2f}" for m, v in zip(part["metric"], part["value"], strict=True))
        printed = _printed(data, tables, policy)
        words = scores + (f" (the paper's own example: {printed})" if printed else "")
        lines = _lines(str(part["prediction"].iloc[0]), letters)
        blocks.append((policy, look_of(policy).light, textwrap.wrap(words, letters), lines))
    return blocks


def _height(block: Block) -> float:
    return LINE_HEIGHT * (1 + len(block[2]) + len(block[3])) + 8


def _write(sheet: FigureSheet, left: float, top: float, sample: str, blocks: list[Block]) -> None:
    sheet.text(left, top, f"article {sample}", weight="bold", fontsize=SMALL)
    y = top + LINE_HEIGHT + 6
    for name, colour, scores, text in blocks:
        sheet.text(left, y, name, color=colour, weight="bold", fontsize=SMALL)
        y += LINE_HEIGHT
        for lines, ink in ((scores, {"color": MUTED}), (text, {})):
            for line in lines:
                sheet.text(left, y, line, fontsize=SMALL, **ink)
                y += LINE_HEIGHT
        y += 8


def _lines(text: str, letters: int) -> list[str]:
    flat = " ".join(text.split())
    return textwrap.wrap(flat if len(flat) <= LONGEST else flat[:LONGEST] + " …", letters) or ["(nothing)"]


def _printed(data: FigureData, tables: tuple[str, ...], policy: str) -> str:
    found = data.printed(tables)
    found = found[found["policy"] == policy]
    return ", ".join(f"{metric} {number:.2f}" for metric, number in zip(found["metric"], found["value"], strict=True))
