"""How long the prompts of each task are: KeyDiff Figure 10."""

from __future__ import annotations

import numpy as np
import pandas as pd

from harness.figures.canvas import MUTED, SMALL, Sheet
from harness.figures.drawing import Sketch
from harness.figures.material import Material
from harness.report.colours import HUES

COLUMNS, WIDTH, PANEL, GAP = 3, 96, 54, 40  # panels in a row; CSS pixels
BINS = ("le_2K", "2K_4K", "4K_6K", "6K_8K", "ge_8K")  # as KeyDiff Table 5 prints them
TITLES = ("2", "4", "6", "8", "8+")
EDGES = (0, 2048, 4096, 6144, 8192, np.inf)  # tokens
FEW = 8  # bins of our own, where prompts are too short for the paper's


def draw(material: Material, tables: tuple[str, ...]) -> Sketch:
    """One histogram a task, in the paper's bins with its counts in outline; in finer ones for the testbed's prompts."""
    prompts = material.scored().drop_duplicates(["task", "sample_id"])
    tasks = [task for task in material.wanted.values("task") if task in set(prompts["task"])]
    longest = int(prompts["prompt_tokens"].max())
    fine = material.mini
    edges = np.linspace(0, np.ceil(longest / 256) * 256, FEW + 1) if fine else np.array(EDGES)
    printed = {} if fine else _printed(material, tables)
    lines = -(-len(tasks) // COLUMNS)
    footer = (
        "n: prompts, in tokens of the model's own tokenizer"
        + ("; outline: the paper's counts, Llama-2's tokenizer" if printed else "")
        + "; counts of all prompts, no interval"
    )
    sheet = Sheet(lines * (PANEL + GAP) + 22, footer)
    for place, task in enumerate(tasks):
        own = prompts[prompts["task"] == task]
        counts = np.histogram(own["prompt_tokens"], edges)[0]
        top = 20 + (place // COLUMNS) * (PANEL + GAP)
        axes = sheet.panel(34 + (place % COLUMNS) * (WIDTH + 30), top, WIDTH, PANEL)
        axes.bar(np.arange(len(counts)), counts, 0.9, color=HUES["blue"][0])
        if task in printed:
            axes.bar(np.arange(len(counts)), printed[task], 0.9, fill=False, edgecolor=MUTED, linewidth=1)
        if fine:
            axes.set_xticks([-0.5, FEW / 2 - 0.5, FEW - 0.5], [f"{edges[i]:.0f}" for i in (0, FEW // 2, FEW)])
        else:
            axes.set_xticks(range(len(TITLES)), TITLES)
        axes.tick_params(labelsize=SMALL - 1)
        axes.set_title(f"{task.split('/')[-1]} (n = {len(own)})", loc="left", fontsize=SMALL - 0.5, pad=3)
    axis = "tokens" if fine else "up to so many thousand tokens (1,024 each)"
    sheet.text(200, lines * (PANEL + GAP) + 6, f"prompt length ({axis}); prompts on the left axis", ha="center")
    return Sketch(sheet.figure, f"Prompt lengths of {len(tasks)} tasks, {len(prompts)} prompts.")


def _printed(material: Material, tables: tuple[str, ...]) -> dict[str, list[float]]:
    found = material.printed(tables)
    found = found.assign(bin=found["note"].str.extract(r"length_bin=(\w+)", expand=False))
    wide: pd.DataFrame = found.pivot_table(index="our_task", columns="bin", values="value", aggfunc="first")
    return {str(task): [float(line[name]) for name in BINS] for task, line in wide.iterrows()}
