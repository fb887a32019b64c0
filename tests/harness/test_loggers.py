"""Loggers are told everything and can spoil nothing."""

from __future__ import annotations

import sys

import pytest
from composed import composed
from omegaconf import OmegaConf

from harness.cli import main
from harness.errors import UserError
from harness.integrations.loggers import GuardedLogger, NoLogger, logger_of
from harness.store.loading import load_rows

SMALL = ["task.lengths=[192]", "task.repeats=1", "task.depths=[20,80]", "block_size=32", "references=[]"]


def settings(*overrides: str) -> dict:
    return OmegaConf.to_container(composed(*overrides).logger, resolve=True)


class Notebook:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.cells, self.jobs, self.rows = [], [], []

    def started(self, cells):
        self.cells.append(cells)

    def progress(self, jobs):
        self.jobs += jobs

    def finished(self, rows):
        self.rows.append(rows)


class Broken:
    """Fails whatever it is told."""

    def __init__(self) -> None:
        self.calls = 0

    def started(self, cells):
        self.calls += 1
        raise RuntimeError("no such luck")

    progress = finished = started


@pytest.fixture
def swept(monkeypatch, tmp_path):
    """Run a small sweep with this logger; the rows."""

    def run(logger):
        monkeypatch.setattr("harness.cli.run.logger_of", lambda *_: logger)
        monkeypatch.setattr(sys, "argv", ["harness", "policy=sink", "budget=48", *SMALL, f"results_dir={tmp_path}"])
        main.main()
        return load_rows(tmp_path)

    return run


def test_a_logger_hears_of_every_cell_every_sample_and_all_rows(swept):
    notebook = Notebook()
    rows = swept(notebook)
    ((cell,),) = notebook.cells
    assert {cell.id} == set(rows["cell_id"])
    assert sorted(job.sample.id for job in notebook.jobs) == sorted(rows["sample_id"])
    (finished,) = notebook.rows
    assert len(finished) == len(rows) == 2


def test_a_logger_that_fails_is_named_once_and_costs_no_row(swept, capsys):
    broken = Broken()
    assert len(swept(GuardedLogger(broken))) == 2
    assert broken.calls == 1
    assert capsys.readouterr().err.count("The logger stopped (RuntimeError: no such luck)") == 1


def test_by_default_nobody_is_told(tmp_path):
    assert isinstance(logger_of(settings(), tmp_path, "latest"), NoLogger)


def test_without_the_package_the_remedy_is_named(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()  # W&B's own folder of runs must not be taken for its package
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(UserError, match=r"pip install -e '\.\[wandb\]'"):
        logger_of(settings("logger=wandb"), tmp_path, "latest")
