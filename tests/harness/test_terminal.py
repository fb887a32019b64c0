"""What a person sees: true counts, a table that fits, and silence where nobody watches."""

from __future__ import annotations

import io
import re

import pandas as pd
import pytest
import torch
from composed import composed
from omegaconf import OmegaConf
from rich.console import Console

from harness import console
from harness.config.cell import Cell
from harness.engine.engine import Engine
from harness.report import summary_tables
from harness.report.summary_tables import DROPPED, fitting_columns, show_summary
from harness.runner import progress as terminal
from harness.runner import worker
from harness.runner.progress import Progress
from harness.runner.samples import Prompts

TASK = ["task=niah", "task.lengths=[192]", "task.depths=[50]", "task.repeats=3", "block_size=64"]


def cells() -> list[Cell]:
    configs = [composed(*TASK, f"budget={n}") for n in (64, 128)]
    return [Cell.parse(OmegaConf.to_container(config, resolve=True)) for config in configs]


@pytest.fixture
def screen(monkeypatch):
    """Replace the terminal; what it shows can be read with ``getvalue``."""

    def of(width: int, interactive: bool) -> io.StringIO:
        written = io.StringIO()
        fake = Console(file=written, width=width, force_terminal=interactive, _environ={})
        for module in (console, terminal, summary_tables):
            monkeypatch.setattr(module, "console", fake)
        return written

    return of


def run(folder, progress: Progress) -> None:
    worker.run(cells(), folder, "cpu", Prompts(), progress)


def short_of_memory(monkeypatch) -> None:
    """More than two rows fail, after they have been fed."""
    whole = Engine.generate

    def generate(self, rows, prompting, observer, waves):
        if len(rows) > 2:
            observer.fed(100)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return whole(self, rows, prompting, observer, waves)

    monkeypatch.setattr(Engine, "generate", generate)


def test_every_token_counts_once_though_batches_are_halved(tmp_path, monkeypatch):
    untroubled = Progress(shown=False)
    short_of_memory(monkeypatch)
    troubled = Progress(shown=False)
    run(tmp_path / "troubled", troubled)
    monkeypatch.undo()
    run(tmp_path / "untroubled", untroubled)
    for count in (untroubled.count, troubled.count):
        assert count.done == count.planned > 0
        assert (count.samples, len(count.cells), count.underway) == (6, 2, 0)
        assert 0 < count.through <= count.planned  # prompts that are shared go through once
    assert troubled.count.planned == untroubled.count.planned


def test_a_failed_batch_leaves_the_count_where_it_was():
    progress = Progress(shown=False)
    with progress.over(1000):
        progress.say("six rows")
        progress.fed(400)
        assert progress.count.share == 0.4
        progress.say("three rows")
        assert progress.count.done == 0


def test_tokens_of_a_smaller_model_count_for_what_they_cost(monkeypatch):
    """Else a run whose first model is the large one seems to take an hour, and is done in ten minutes."""
    count = terminal.ProgressCount(1000 + 1000 / 50)  # as many tokens of a model with a fiftieth of the weights
    monkeypatch.setattr(terminal.time, "perf_counter", lambda: count.since + 600)
    count.add_tokens(500)
    assert count.time_left() == "about 10 min left"
    count.add_tokens(500)
    assert count.time_left() == "less than a minute left"
    count.end_batch()
    count.stored, count.cost = 1000.0, 1 / 50
    count.add_tokens(500)
    assert count.share == 1010 / 1020


def test_the_bar_shows_cells_samples_speed_and_memory_within_80_columns(tmp_path, screen):
    shown = screen(80, interactive=True)
    run(tmp_path, Progress())
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", shown.getvalue())]
    last = " ".join(lines[-6:])
    assert re.search(r"2 cells · 6 samples · [\d,]+ tokens/s · \d+\.\d GiB", last)
    assert "100%" in last
    assert max(map(len, lines)) <= 80


def test_without_a_terminal_there_are_lines_from_the_first_seconds_on_before_anything_is_stored(
    tmp_path, screen, monkeypatch
):
    shown = screen(80, interactive=False)
    monkeypatch.setattr(terminal, "FIRST_LINE", 0.0)
    monkeypatch.setattr(terminal, "PAUSE", 0.0)
    run(tmp_path, Progress())
    lines = shown.getvalue().replace("\n", " ")
    assert re.search(r"^\d+% · 0 cells · 0 samples · [\d,]+ tokens/s · \d+\.\d GiB · \S.* left ", lines)
    assert "100% · 2 cells · 6 samples · " in lines


def test_without_a_terminal_a_short_run_has_no_lines_and_a_long_one_a_line_a_minute(tmp_path, screen, monkeypatch):
    shown = screen(80, interactive=False)
    now = 1000.0
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
    progress = Progress()
    with progress.over(1000):
        for second in range(200):
            now = 1000.0 + second
            progress.fed(1)
    # After 15, 75, 135 and 195 seconds.
    assert [line[:3] for line in shown.getvalue().splitlines() if "tokens/s" in line] == ["2% ", "8% ", "14%", "20%"]


def test_the_clock_starts_with_the_first_batch_and_not_while_a_model_is_loaded(monkeypatch):
    """Else the first estimate of a run of minutes is twice its length."""
    now = 1000.0
    monkeypatch.setattr(terminal.time, "perf_counter", lambda: now)
    count = terminal.ProgressCount(1000)
    now = 1100.0
    count.start_batch()
    now = 1110.0
    count.add_tokens(50)
    assert count.time_left() == "about 3 min left"  # 950 tokens at 5 a second
    count.start_batch()
    count.add_tokens(50)
    assert count.time_left() == "about 3 min left"


def test_the_time_left_follows_from_the_mean_speed(monkeypatch):
    count = terminal.ProgressCount(1000)
    monkeypatch.setattr(terminal.time, "perf_counter", lambda: count.since + 120)
    count.add_tokens(250)  # in two minutes, so that 750 more take six
    assert count.time_left() == "about 6 min left"
    count.add_tokens(500)
    assert count.time_left() == "less than a minute left"


def test_what_other_workers_do_shortens_the_time_that_is_left(monkeypatch):
    """Two workers that share 1,000 tokens alike are done in half the time of one."""
    count = terminal.ProgressCount(1200)
    count.done_elsewhere(200)  # before this worker began: no measure of the speed
    count.start_batch()
    monkeypatch.setattr(terminal.time, "perf_counter", lambda: count.since + 600)
    count.add_tokens(250)
    assert count.time_left() == "about 30 min left"
    count.done_elsewhere(250)
    assert count.time_left() == "about 10 min left"


def summary(label: str) -> pd.DataFrame:
    line = {
        "model": "testbed", "task": "niah", "metric": "string_match", "prompt": "blocked", "label": label,
        "budget": "25%", "dense": False, "reference": False, "value": 0.5, "low": 0.25, "high": 0.75,
        "difference": -0.25, "difference_low": -0.5, "difference_high": 0.0, "n": 60, "slots_kept_max": 256.0,
        "slots_peak": 288.0, "evicted": 40,
    }  # fmt: skip
    return pd.DataFrame([line, {**line, "label": "dense", "budget": "full", "dense": True}])


@pytest.mark.parametrize("label", ["sink", "fastcaote_scissorhands", "h2o/kvcache_factory (recent=12, sinks=4)"])
@pytest.mark.parametrize("width", [200, 120, 80, 60])
def test_the_table_keeps_one_line_per_cell_and_its_interval_and_samples(label, width, screen):
    shown = screen(width, interactive=False)
    show_summary(summary(label))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    if width >= 80 and len(label) < 25:
        (own,) = (line for line in lines if label in line)
        assert "0.500" in own
        assert "[0.250, 0.750]" in own
        assert "60" in own
    assert "0.750]" in shown.getvalue()


def test_columns_go_in_the_stated_order_and_only_as_many_as_must():
    columns = {name: ["x" * 10] for name in ("policy", "value", *DROPPED)}
    widths = [1 + sum(3 + max(10, len(name)) for name in columns if name not in DROPPED[:n]) for n in range(4)]
    for gone, width in enumerate(widths):
        assert set(columns) - set(fitting_columns(columns, width)) == set(DROPPED[:gone])
    assert set(fitting_columns(columns, 1)) == {"policy", "value"}
