"""The figures and tables of docs/findings.md and docs/smollm2.md from stored rows: ``python -m scripts.draw_findings``.

Writes ``docs/images/findings_<name>.png`` and prints the tables as Markdown. ``--results <folder>`` reads other rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from harness.analysis.statistics import Interval
from harness.console import say
from harness.papers.cell_index import CellIndex, CellRows
from harness.papers.comparison_rows import format_interval
from harness.papers.dense_gate import dense_gate, short
from harness.papers.figures.canvas import (
    WIDE,
    FigureSheet,
    Sketch,
    distinct_looks,
    legend_entry,
    legend_height,
    marker_style,
    render_pixels,
    white_page_style,
)
from harness.papers.table_values import cell_mean
from harness.report.labels import NLL
from harness.report.looks import Look
from harness.store.loading import load_rows

IMAGES = Path("docs/images")
POLICIES = ("keydiff", "sink", "snapkv/keydiff", "tova/keydiff", "h2o/keydiff", "caote_h2o", "random")
BUDGETS = ("22%", "43%", "65%", "86%")  # KeyDiff's slots over its mean prompt


@dataclass(frozen=True)
class Setting:
    """Cells that differ in policy and budget alone. ``block_size``: tokens; 0 in one shot."""

    title: str
    model: str
    task: str
    prompt: str
    block_size: int

    def cells(self, index: CellIndex) -> dict[tuple[str, str], CellRows]:
        """The newest cell of each policy and budget; ``dense, full`` is the largest of whatever regime."""
        of_task = [cell for cell in index.cells if (cell.model, cell.task) == (self.model, self.task)]
        found = {
            (cell.policy, cell.budget): cell
            for cell in of_task
            if (cell.prompt, cell.block_size) == (self.prompt, self.block_size)
        }
        if dense := [cell for cell in of_task if cell.policy == "dense"]:
            found["dense", "full"] = max(dense, key=lambda cell: len(cell.samples))
        return found


TESTBED_BLOCKS = Setting("testbed, blocks of 32", "testbed", "longbench_mini/multi_doc_qa", "blocked", 32)
ONE_KEY, FOUR_KEYS, TEXT = "ruler_answers/niah_multikey_1", "ruler_answers/niah_multiquery", "ruler/niah_multikey_1"
SMOLLM2_BLOCKS, SMOLLM2_FOUR_KEYS, SMOLLM2_TEXT = (
    Setting("SmolLM2-135M, blocks of 128", "smollm2-135m", task, "blocked", 128) for task in (ONE_KEY, FOUR_KEYS, TEXT)
)
TESTBED_ONE_SHOT = Setting("testbed, one shot", "testbed", "longbench_mini/multi_doc_qa", "one_shot", 0)
SMOLLM2_ONE_SHOT, FOUR_KEYS_ONE_SHOT, TEXT_ONE_SHOT = (
    Setting("SmolLM2-135M, one shot", "smollm2-135m", task, "one_shot", 0) for task in (ONE_KEY, FOUR_KEYS, TEXT)
)
NOVELS = Setting("SmolLM2-135M, novels", "smollm2-135m", "book_perplexity", "blocked", 128)
FIGURES = {
    "questions": (SMOLLM2_BLOCKS, SMOLLM2_FOUR_KEYS, TESTBED_BLOCKS),
    "one_shot": (SMOLLM2_ONE_SHOT, FOUR_KEYS_ONE_SHOT, TESTBED_ONE_SHOT),
}
TABLES = (*FIGURES["questions"], SMOLLM2_TEXT, *FIGURES["one_shot"], TEXT_ONE_SHOT, NOVELS)


def score(cell: CellRows) -> Interval:
    """The mean of the task's first metric."""
    return cell_mean(cell, cell.scores[cell.metric])


def markdown(setting: Setting, index: CellIndex, policies: Sequence[str] = POLICIES) -> str:
    """Policies by budgets, dense above them; a dash where there are no rows."""
    cells = setting.cells(index)
    lines = [f"| {setting.title}: {setting.task} | {' | '.join(BUDGETS)} |", "|---" * (len(BUDGETS) + 1) + "|"]
    if dense := cells.get(("dense", "full")):
        lines.append(f"| `dense`, {len(dense.samples)} samples | {format_interval(score(dense))} | | | |")
    for policy in policies:
        own = [cells.get((policy, budget)) for budget in BUDGETS]
        if any(own):
            lines.append(
                f"| `{policy}` | {' | '.join(format_interval(score(each)) if each else '–' for each in own)} |"
            )
    return "\n".join(lines)


def dense_table(model: str, index: CellIndex) -> str:
    """Every task with a dense cell of this model: its score beside the task's floor, and whether methods can differ."""
    lines = ["| task | metric | samples | prompt tokens | dense | floor | gate |", "|---" * 7 + "|"]
    dense = [cell for cell in index.cells if (cell.model, cell.policy) == (model, "dense")]
    largest = {cell.task: cell for cell in sorted(dense, key=lambda cell: len(cell.samples))}
    for task, cell in sorted(largest.items()):
        found, lengths = score(cell), cell.samples["prompt_tokens"]
        gate = dense_gate(cell, cell.scores[cell.metric], cell.metric)
        floor, outcome = (
            ("", "no floor") if cell.metric == NLL else (short(gate.floor), "open" if gate.is_open else "closed")
        )
        lines.append(
            f"| `{task}` | {cell.metric} | {len(cell.samples)} | {lengths.min():,} to {lengths.max():,} | "
            f"{format_interval(found)} | {floor} | {outcome} |"
        )
    return "\n".join(lines)


def draw(settings: Sequence[Setting], index: CellIndex) -> Sketch:
    """One panel for each setting: score against budget, one line for each policy, dense as a dashed line."""
    style = distinct_looks(POLICIES)
    keys = [legend_entry(policy, look) for policy, look in style.items()]
    top = legend_height(keys, WIDE) + 40
    sheet = FigureSheet(WIDE, top + 320, "95 % intervals; dashed: the dense cache. Budgets are shares of the prompt.")
    sheet.legend(8, keys)
    width = (WIDE - 60) / len(settings) - 50
    for place, setting in enumerate(settings):
        axes = sheet.panel(60 + place * (width + 60), top, width, 260)
        _panel(axes, setting, index, style)
    return Sketch(sheet.figure, "")


def _panel(axes: Axes, setting: Setting, index: CellIndex, style: dict[str, Look]) -> None:
    cells = setting.cells(index)
    if dense := cells.get(("dense", "full")):
        axes.axhline(score(dense).mean, linestyle="--", linewidth=1, color="#5d636b")
    for number, (policy, look) in enumerate(style.items()):
        own = [(at, score(cells[policy, budget])) for at, budget in enumerate(BUDGETS) if (policy, budget) in cells]
        if not own:
            continue
        at = [place + 0.03 * (number - len(style) / 2) for place, _ in own]
        means = [found.mean for _, found in own]
        errors = [[found.mean - found.low for _, found in own], [found.high - found.mean for _, found in own]]
        axes.errorbar(at, means, errors, linestyle=look.line, linewidth=1.4, elinewidth=0.8, **marker_style(look))
    axes.set_title(f"{setting.title}\n{setting.task}", loc="left")
    axes.set_xticks(range(len(BUDGETS)), BUDGETS)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("score")


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results/reference", help="the results folder that is read")
    rows: pd.DataFrame = load_rows(parser.parse_args().results)
    index = CellIndex(rows)
    with white_page_style():
        for name, settings in FIGURES.items():
            (IMAGES / f"findings_{name}.png").write_bytes(render_pixels(draw(settings, index)))
    for setting in TABLES:
        say(markdown(setting, index))
        say("")
    say(dense_table("smollm2-135m", index))


if __name__ == "__main__":
    main()
