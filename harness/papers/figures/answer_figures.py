"""Answers: what each policy makes of the same articles, with its scores (BUZZ Figure 9), and what the cache holds and
loses while they are written (ours)."""

from __future__ import annotations

import textwrap
from collections import defaultdict

import pandas as pd

from harness.papers.figures.canvas import (
    LINE_HEIGHT,
    MUTED,
    SMALL,
    FigureSheet,
    NotDrawnError,
    Sketch,
    distinct_looks,
    legend_entry,
    legend_height,
)
from harness.papers.figures.figure_data import PROMPTS, FigureData, natural_key
from harness.papers.figures.figure_means import count_text, sample_means
from harness.papers.figures.panel_grid import PanelGrid
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


MEMORY = (("held", "slots held, mean of layers and heads"), ("evicted", "tokens evicted, mean"))


def draw_memory_over_answers(data: FigureData, width: float) -> Sketch:
    """Slots held and tokens evicted against the length of the answer; policies with the same curves share a line."""
    frame = data.internals("memory")
    prompt = frame[frame["phase"] == "prompt"]
    last = prompt[prompt["step"] == prompt.groupby(["policy", "sample_id"])["step"].transform("max")]
    frame = pd.concat([last, frame[frame["phase"] == "decode"]])
    alike = _policies_by_curve(frame)
    looks = distinct_looks([names[0] for names in alike])
    labels = {names[0]: names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") for names in alike}
    keys = [legend_entry(label, looks[name]) for name, label in labels.items()]
    top = legend_height(keys, width) + 6
    grid = PanelGrid.fit(width, len(MEMORY), 250, 190, widest=480)
    own = frame[frame["policy"].isin(labels)]
    found = {column: sample_means(own, ["policy", "answer"], column) for column, _ in MEMORY}
    n = count_text(found["held"]["n"])
    footer = f"{n} samples a point (answers end at different lengths); bands: 95 % intervals over samples"
    sheet = FigureSheet(width, top + grid.total, footer)
    sheet.legend(4, keys)
    for i, (column, title) in enumerate(MEMORY):
        axes = grid.panel(sheet, i, top)
        for name in labels:
            line = found[column][found[column]["policy"] == name].sort_values("answer")
            axes.plot(line["answer"], line["value"], linestyle=looks[name].line, color=looks[name].light, linewidth=1.4)
            axes.fill_between(
                line["answer"], line["low"], line["high"], color=looks[name].light, alpha=0.15, linewidth=0
            )
        axes.set_title(title, loc="left", fontsize=SMALL, pad=5)
        axes.set_xlabel("tokens of the answer")
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
    notes = [f"The same curves as {names[0]}: {', '.join(names[1:])}." for names in alike if len(names) > 1]
    return Sketch(sheet.figure, f"What the cache holds and loses while an answer is written ({n}).", tuple(notes))


def _policies_by_curve(frame: pd.DataFrame) -> list[list[str]]:
    """Policies that hold as many slots at every step of every sample, together."""
    alike: dict[object, list[str]] = defaultdict(list)
    for policy in ordered_policies(frame["policy"]):
        own = frame[frame["policy"] == policy].sort_values(["sample_id", "answer"])
        alike[tuple(zip(own["sample_id"], own["answer"], own["held"].round(3), strict=True))].append(policy)
    return list(alike.values())
