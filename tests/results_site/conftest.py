"""A small results folder with everything that a site shows, and the site of it; built once."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report.conftest import build as made_up_rows

from harness.cli import main as command_line
from harness.cli import survivors
from harness.site.build import build
from harness.store import cell_folders
from harness.store.store import Store

WATCHED = ["policy=keydiff,sink,random", "budget=50%", "task=niah", "task.lengths=[192]", "task.repeats=1",
           "task.depths=[20]", "block_size=32", "device=cpu"]  # fmt: skip
POLICIES = ("sink", "tova/keydiff", "keydiff", "caote_h2o", "fastcaote_h2o")
INVALID = "slots_kept_max is 130, more than the 128 that were granted"
SAMPLE = ["sample_id", "metric", "value", "weight", "prediction", "reference", "document", "prompt_tokens",
          "new_tokens", "slots_requested", "slots_kept_max", "slots_kept_mean", "slots_peak", "kv_bytes",
          "state_bytes", "tokens_evicted", "coverage", "seconds", "invalid"]  # fmt: skip


@pytest.fixture(scope="session")
def results(tmp_path_factory) -> Path:
    """Made-up scores of five policies on two tasks, one broken cell, one watched sample, two reports."""
    folder = tmp_path_factory.mktemp("results")
    rows = made_up_rows(POLICIES, budgets=("128", "25%"))
    broken = rows[(rows["policy"] == "tova/keydiff") & (rows["budget"] == "128") & (rows["task"] == "niah")]
    rows.loc[broken.index[:1], "invalid"] = INVALID
    store = Store(folder / "runs")
    for name, part in rows.groupby("cell_id", sort=False):
        described = {k: v for k, v in part.iloc[0].to_dict().items() if k not in SAMPLE and not k.startswith("axis")}
        config = json.loads(described["config"]) | {"budget": {"slots": None, "share": None, "share_of": ""}}
        _stored(store, str(name), {**described, "config": config}, part)
    survivors.main([*WATCHED, f"results_dir={folder}"])
    _answers_of_the_watched(folder, store, rows)
    (folder / "reports" / "keydiff").mkdir(parents=True)
    (folder / "reports" / "keydiff" / "index.html").write_text("<!doctype html><title>Report of KeyDiff</title>")
    (folder / "reports" / "quickstart.html").write_text("<!doctype html><title>Quick start</title>")
    return folder


def _stored(store: Store, name: str, described: Mapping[str, Any], samples: pd.DataFrame) -> None:
    store.describe(name, {str(key): getattr(value, "item", lambda v=value: v)() for key, value in described.items()})
    store.append(name, samples[SAMPLE].to_dict("records"))


def _answers_of_the_watched(folder: Path, store: Store, rows: pd.DataFrame) -> None:
    """What the watched policies said by themselves."""
    watched = folder / "diagnostics"
    for place, name in enumerate(cell_folders.cell_names(watched)):
        (file,) = (watched / name / "survivors").glob("*.parquet")
        sample = rows[rows["task"] == "niah"].iloc[:1]
        own = {"sample_id": pd.read_parquet(file)["sample_id"].iloc[0], "prediction": f"answer {place} & <b>more</b>"}
        _stored(store, name, cell_folders.read_description(watched / name), sample.assign(**own))


@pytest.fixture(scope="session")
def site(results) -> Path:
    """The folder of pages."""
    build(results, results / "site", "mini")
    return results / "site"


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the main function of a command; its exit code and what it printed."""

    def run(module, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["harness", module.__name__.rpartition(".")[2], *arguments])
        code = 0
        try:
            command_line.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run
