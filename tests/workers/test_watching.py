"""While workers compute, the command that started them shows how far they are: a bar, or lines without a terminal."""

from __future__ import annotations

import io
import re
import threading
import time
from dataclasses import replace

import pytest
from harness_stores import row
from rich.console import Console
from workers.small_sweeps import POLICIES, SAMPLES, cells, job_spec, wait_until

from harness.runner import launchers, progress
from harness.runner.model_work import ModelWork
from harness.runner.plan import plan
from harness.runner.progress import Progress, StoreProgress, SweepStatus, status_text
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.store import cell_folders
from harness.store.cell_folders import Lease
from harness.store.store import Store

EVERYTHING = len(POLICIES) * SAMPLES


@pytest.fixture
def screen(monkeypatch):
    """Replace the terminal; what it shows can be read with ``getvalue``."""

    def of(interactive: bool) -> io.StringIO:
        written = io.StringIO()
        fake = Console(file=written, width=80, force_terminal=interactive, _environ={})
        monkeypatch.setattr(progress, "console", fake)
        monkeypatch.setattr("harness.console.console", fake)  # of `say`
        return written

    return of


@pytest.fixture
def started(model, tmp_path, monkeypatch):
    """A sweep whose launcher does what a function says, in place of workers."""

    def launched(start):
        monkeypatch.setitem(launchers.STARTERS, "local", start)
        return launchers.launch(job_spec(model, tmp_path), {"name": "local"}, Prompts(), Progress(shown=False))

    monkeypatch.setattr(progress, "STORE_PAUSE", 0.02)
    return launched


def stored_by_workers(what, settings) -> None:
    """As if workers elsewhere had computed everything."""
    store = Store(what.results_dir / "runs")
    for cell in what.cells:
        store.describe(cell.id, cell.description())
        store.append(cell.id, [row(sample.id) for sample, _, _ in Prompts().samples_of(cell)])


def lines(screen: io.StringIO) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", screen.getvalue())]


def test_cells_samples_and_workers_are_counted_from_the_folder(model, tmp_path):
    store = Store(tmp_path / "runs")
    one, other = cells(model)
    first = [sample.id for sample, _, _ in Prompts().samples_of(one)]
    store.describe(one.id, {"cell_id": one.id, "config": {}})
    store.append(one.id, [row(first[0])])
    underway = StoreProgress(store, [plan(one.model, [one, other], store, Prompts())])
    assert underway.look() == SweepStatus(cells_done=0, samples_done=1, workers=0)
    elsewhere = Store(store.root)
    elsewhere.append(one.id, [row(sample) for sample in first[1:]])
    elsewhere.describe(other.id, {"cell_id": other.id, "config": {}})
    elsewhere.append(other.id, [row("a sample that nobody asked for"), row(first[3])])
    for name, heartbeat in (("alive", time.time()), ("alive too", time.time()), ("dead", time.time() - 100)):
        cell_folders.write_lease(
            store.root / other.id / f"lease-{name}.json", Lease(name, "here", 1, heartbeat, seconds=60)
        )
    now = underway.look()
    assert now == SweepStatus(cells_done=1, samples_done=SAMPLES + 1, workers=2)
    assert status_text(now, underway) == f"1 of 2 cells · {SAMPLES + 1} of {EVERYTHING} samples · 2 at work"


def test_a_damaged_part_counts_for_nothing_and_stops_nothing(model, tmp_path):
    store = Store(tmp_path / "runs")
    (cell, *_) = cells(model)
    underway = StoreProgress(store, [plan(cell.model, [cell], store, Prompts())])
    (store.root / cell.id).mkdir(parents=True)
    (store.root / cell.id / f"part-{'0' * 64}.parquet").write_bytes(b"PAR1")
    assert underway.look() == SweepStatus(0, 0, 0)


def test_the_bar_follows_the_workers_to_the_end_within_80_columns(started, screen):
    shown = screen(interactive=True)

    def start(what, settings):
        wait_until(lambda: f"0 of 2 cells · 0 of {EVERYTHING} samples · 0 at work" in shown.getvalue())
        stored_by_workers(what, settings)
        wait_until(lambda: f"{EVERYTHING} of {EVERYTHING} samples" in shown.getvalue())

    assert started(start).computed == EVERYTHING
    assert any(f"2 of 2 cells · {EVERYTHING} of {EVERYTHING} samples · 0 at work" in line for line in lines(shown))
    assert max(map(len, lines(shown))) <= 80


def test_without_a_terminal_a_line_says_how_far_the_workers_are(started, screen, monkeypatch):
    shown = screen(interactive=False)
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    monkeypatch.setattr(progress, "PAUSE", 0.0)

    def start(what, settings):
        stored_by_workers(what, settings)
        wait_until(lambda: f"{EVERYTHING} of {EVERYTHING} samples" in shown.getvalue())

    assert started(start).computed == EVERYTHING
    assert f"2 of 2 cells · {EVERYTHING} of {EVERYTHING} samples · 0 at work" in shown.getvalue()


def test_the_lines_say_how_much_time_is_left_by_the_tokens_that_are_done(started, screen, monkeypatch):
    """One of two cells, whose prompts are equally long, in 95 seconds: as much is left."""
    shown = screen(interactive=False)
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    monkeypatch.setattr(progress, "PAUSE", 0.0)

    def start(what, settings):
        clock = time.monotonic
        monkeypatch.setattr(progress.time, "monotonic", lambda: clock() + 95)
        stored_by_workers(replace(what, cells=what.cells[:1]), settings)
        wait_until(lambda: f"{SAMPLES} of {EVERYTHING} samples" in shown.getvalue())
        stored_by_workers(what, settings)

    assert started(start).computed == EVERYTHING
    text = shown.getvalue()
    assert f"1 of 2 cells · {SAMPLES} of {EVERYTHING} samples · 0 at work · about 2 min left" in text
    assert "left" not in text[text.rindex("2 of 2 cells") :]


def test_a_sample_that_is_fed_token_by_token_is_more_work_than_one_in_blocks(model, tmp_path):
    """Else a sweep that begins with such samples would seem to take for ever."""
    one, other = cells(model)
    found = plan(one.model, [one, other], Store(tmp_path / "runs"), Prompts())
    work = ModelWork.of(found, Prompts(), RunSettings())
    by_token = [replace(job, load=replace(job.load, passes=job.load.tokens)) for job in work.jobs if job.cell == one.id]
    jobs = (*by_token, *(job for job in work.jobs if job.cell == other.id))
    cost = StoreProgress(Store(tmp_path / "runs"), [found], [replace(work, jobs=jobs)]).cost
    of_one, of_other = (sum(cost[job.key] for job in jobs if job.cell == cell.id) for cell in (one, other))
    assert of_one > 3 * of_other


def test_before_the_first_line_is_due_a_shell_without_a_terminal_is_silent_and_reads_nothing(
    started, screen, monkeypatch
):
    shown = screen(interactive=False)
    monkeypatch.setattr(progress, "FIRST_LINE", 1e9)
    monkeypatch.setattr(StoreProgress, "look", lambda self: pytest.fail("the folder was read for nobody"))
    assert started(stored_by_workers).computed == EVERYTHING
    assert shown.getvalue() == ""


def test_a_launcher_that_is_stopped_leaves_no_watcher_behind(started, screen):
    screen(interactive=True)

    def start(what, settings):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        started(start)
    assert "watcher" not in {thread.name for thread in threading.enumerate()}
