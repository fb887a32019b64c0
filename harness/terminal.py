"""What a person sees while a sweep runs, and the table at its end. Quiet where nobody watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from harness.report import difference_text, interval_text, value_text

console = Console()


class Progress:
    """One bar over the tokens of the whole sweep, with time left; samples and cells are counted beside it."""

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = console.is_terminal if shown is None else shown
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tokens, {task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not self.shown,
        )
        self.task: Any = None

    @contextmanager
    def over(self, tokens: int) -> Iterator[None]:
        """Show the bar while the block runs. Nothing is shown where there is nothing to do."""
        if tokens == 0:
            yield
            return
        self.task = self.bar.add_task("planning", total=tokens, speed="")
        with self.bar:
            yield

    def say(self, what: str) -> None:
        """What is being worked on now."""
        self.bar.update(self.task, description=what)

    def fed(self, tokens: int) -> None:
        """So many tokens went through the model."""
        self.bar.advance(self.task, tokens)
        speed = self.bar.tasks[self.task].speed
        self.bar.update(self.task, speed=f"{speed:,.0f}/s" if speed else "")

    def finished(self, jobs: Sequence[object]) -> None:
        """These rows are in the store."""


def say(text: str) -> None:
    """A line of plain text with rich's markup, paths unbroken."""
    console.print(text, highlight=False, soft_wrap=True)


def show_summary(summary: pd.DataFrame) -> None:
    """The result table: one line per cell and metric, means with 95 % intervals; reference lines are dim."""
    for panel, lines in summary.groupby(["task", "metric", "prompt"], sort=False):
        task, metric, prompt = map(str, panel)
        shown = "perplexity" if metric == "nll" else metric
        table = Table(title=f"{task}: {shown}, prompt {prompt}, 95 % intervals", title_justify="left")
        table.add_column("policy", no_wrap=True, min_width=max(map(len, lines["label"])))
        table.add_column("budget")
        for column in (shown, "interval", "against dense", "samples", "slots kept", "peak"):
            table.add_column(column, justify="right")
        last_of_budget = ~lines["budget"].duplicated(keep="last")
        for line, last in zip(lines.to_dict("records"), last_of_budget, strict=True):
            table.add_row(
                str(line["label"]), str(line["budget"]),
                value_text(line), interval_text(line), difference_text(line),
                str(line["n"]), f"{line['slots_kept_max']:.0f}", f"{line['slots_peak']:.0f}",
                style="dim" if line["dense"] or line["reference"] else "", end_section=bool(last),
            )  # fmt: skip
        console.print(table)
