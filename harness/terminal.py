"""What a person sees while a sweep runs, and the table at its end. Quiet where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from harness.notebook_bar import NotebookBar
from harness.planning.count import Count
from harness.planning.plan import Job
from harness.report import difference_text, interval_text, value_text

PAUSE = 10.0  # seconds
DROPPED = ("peak", "slots kept", "against dense")  # columns of the result table, in the order in which they go

console = Console()


class Progress:
    """One bar over the tokens of the whole sweep, with speed, time left and memory; cells and samples beside it.

    Where nobody watches: a line on stdout when a batch is stored, and none within `PAUSE` seconds of the last.
    ``told`` hears of all jobs whose rows are stored.
    """

    def __init__(self, shown: bool | None = None, told: Callable[[Sequence[Job]], None] | None = None) -> None:
        self.shown = console.is_terminal or console.is_jupyter if shown is None else shown
        self.told = told
        self.count = Count()
        self.last_line = time.monotonic()
        self.bar: Any = NotebookBar() if self.shown and console.is_jupyter else _terminal_bar(self.shown)
        self.task: Any = None

    @contextmanager
    def over(self, tokens: int) -> Iterator[None]:
        """Show the bar while the block runs. Nothing is shown where there is nothing to do."""
        if tokens == 0:
            yield
            return
        self.count = Count(tokens)
        self.task = self.bar.add_task("planning", total=tokens, facts="")
        with self.bar:
            yield

    def say(self, what: str) -> None:
        """What is being worked on now: a batch begins. A batch that did not finish before it counts no more."""
        self.count.begin()
        self.bar.update(self.task, description=escape(what))

    def fed(self, tokens: int) -> None:
        """So many tokens went through the model."""
        self.count.feed(tokens)
        self._show()

    def finished(self, jobs: Sequence[Job]) -> None:
        """The rows of these jobs are in the store."""
        self.count.settle(jobs)
        self._show()
        if not self.shown and time.monotonic() - self.last_line >= PAUSE:
            self.last_line = time.monotonic()
            say(escape(f"{self.count.share:.0%} · {self.count.facts()}"))
        if self.told:
            self.told(jobs)

    def _show(self) -> None:
        if self.shown:
            self.bar.update(self.task, completed=self.count.done, facts=self.count.facts())


def _terminal_bar(shown: bool) -> Bar:
    return Bar(
        TextColumn("{task.description}\n{task.fields[facts]}"),  # two lines, so that 80 columns hold the rest
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        disable=not shown,
    )


def say(text: str) -> None:
    """A line of plain text with rich's markup, paths unbroken."""
    console.print(text, highlight=False, soft_wrap=True)


def show_summary(summary: pd.DataFrame) -> None:
    """The result table: one line per cell and metric, means with 95 % intervals; reference lines are dim.

    A narrow console gets fewer columns: they go in the order of `DROPPED`, until the rest fits or none is left to drop.
    """
    for panel, lines in summary.groupby(["task", "metric", "prompt"], sort=False):
        task, metric, prompt = map(str, panel)
        shown = "perplexity" if metric == "nll" else metric
        columns = fitting(_columns(lines, shown), console.width)
        table = Table(title=f"{task}: {shown}, prompt {prompt}, 95 % intervals", title_justify="left")
        for number, heading in enumerate(columns):
            table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=number > 0, overflow="fold")
        dim = lines["dense"].astype(bool) | lines["reference"].astype(bool)
        last_of_budget = ~lines["budget"].duplicated(keep="last")
        for texts, is_dim, last in zip(zip(*columns.values(), strict=True), dim, last_of_budget, strict=True):
            table.add_row(*map(escape, texts), style="dim" if is_dim else "", end_section=bool(last))
        console.print(table)


def fitting(columns: Mapping[str, list[str]], width: int) -> dict[str, list[str]]:
    """Headings and texts without the first of `DROPPED`, as many as must go for a table of ``width`` characters."""
    kept = dict(columns)
    for name in DROPPED:
        if 1 + sum(3 + max(map(len, [heading, *texts])) for heading, texts in kept.items()) <= width:
            break
        kept.pop(name)
    return kept


def _columns(lines: pd.DataFrame, shown: str) -> dict[str, list[str]]:
    records = lines.to_dict("records")
    return {
        "policy": [str(line["label"]) for line in records],
        "budget": [str(line["budget"]) for line in records],
        shown: [value_text(line) for line in records],
        "interval": [interval_text(line) for line in records],
        "against dense": [difference_text(line) for line in records],
        "samples": [str(line["n"]) for line in records],
        "slots kept": [f"{line['slots_kept_max']:.0f}" for line in records],
        "peak": [f"{line['slots_peak']:.0f}" for line in records],
    }
