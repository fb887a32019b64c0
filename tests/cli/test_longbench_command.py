"""``+exp=longbench``: says what is missing before any model is touched, and runs as a whole on a small scale."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
from composed import composed

from harness.cli import main
from harness.store.loading import load_rows
from tasks.data.tables import FIXTURES
from tasks.longbench_subsets import ENGLISH

SMALL = ["policy=caote_snapkv", "budget=25%", "scale=mini", "references=[]"]


@pytest.fixture
def run(monkeypatch, tmp_path, capfd):
    """The command line in an empty folder; returns exit code and what it complained about."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["harness", "+exp=longbench", *words, "results_dir=out"])
        try:
            main.main()
        except SystemExit as end:
            return int(end.code or 0), capfd.readouterr().err
        return 0, capfd.readouterr().err

    return run


def test_what_is_missing_is_said_in_three_lines_with_a_command_that_runs_now(run, monkeypatch, tmp_path):
    for touch in ("load", "tokenizer"):
        monkeypatch.setattr(f"harness.config.model.ModelSpec.{touch}", lambda *_: pytest.fail("the model was touched"))
    code, error = run("policy=caote_snapkv", "budget=4k")
    data, model, now = error.splitlines()
    assert code == 2
    assert data.startswith("The data set longbench is not on this machine: fetch it with 'python -m scripts.fetch_data")
    assert model.startswith("Model meta-llama/Llama-3.1-8B-Instruct is not on this machine: accept its licence")
    assert now.endswith(": python -m harness +exp=longbench policy=caote_snapkv budget=4k results_dir=out scale=mini")
    assert not [*tmp_path.rglob("*.parquet"), *tmp_path.rglob("cell.json")]


def test_with_scale_mini_every_task_runs_on_the_testbed_with_fixture_rows(run):
    code, error = run(*SMALL, "limit=1", "max_length=200")
    assert (code, error) == (0, "")
    rows = load_rows("out")
    assert set(rows["task"]) == {f"longbench/{name} (synthetic rows)" for name in ENGLISH}
    assert set(rows["model"]) == {"testbed"}
    assert (rows["invalid"] == "").all()
    assert 190 < rows["prompt_tokens"].max() < 210  # cut to 200; decoded and encoded again it may differ a little


PAPERS_BUDGET = ["policy=sink", "budget=4k", "scale=mini", "references=[]", "limit=1", "task=longbench/qasper"]


def test_with_scale_mini_a_papers_slots_are_the_share_of_its_prompts_and_this_is_said(run, monkeypatch):
    said = []
    monkeypatch.setattr("harness.runner.sweep.say", said.append)
    assert run(*PAPERS_BUDGET) == (0, "")
    rows = load_rows("out")
    slots = int(rows["slots_requested"].iloc[0])
    assert set(rows["budget"]) == {"43%"}  # 4,096 of 9,500 tokens
    assert slots == round(0.43 * rows["prompt_tokens"].iloc[0])
    assert (rows["tokens_evicted"] > 0).all()
    assert said == [
        f"budget 4k of prompts of 9,500 tokens = 43%: {slots} to {slots} slots of the synthetic prompts here"
    ]


def test_a_budget_that_holds_the_whole_prompt_is_said_in_table_terminal_and_page(run, monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr("harness.cli.run.say", said.append)
    assert run(*PAPERS_BUDGET, "budget_slots=as_written") == (0, "")
    rows = load_rows("out")
    assert (rows["slots_requested"].iloc[0], rows["tokens_evicted"].iloc[0]) == (4096, 0)
    sentence = "Nothing was evicted on longbench/qasper (synthetic rows) by sink at 4096"
    assert any(line.startswith(sentence) for line in said)
    page = (tmp_path / "out" / "reports" / "longbench.html").read_text()
    assert sentence in page
    assert "nothing evicted" in page


def test_a_damaged_file_is_named_by_row_and_the_other_tasks_of_the_run_are_kept(run, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(FIXTURES / "longbench", folder / "longbench")
    damaged = folder / "longbench" / "qasper.jsonl"
    lines = damaged.read_text().splitlines()
    damaged.write_text("\n".join([lines[0], json.dumps({**json.loads(lines[0]), "context": ""})]) + "\n")
    code, error = run(*SMALL, "limit=1", "data=mine", "task=longbench/qasper,longbench/hotpotqa")
    assert (code, error.count("\n")) == (2, 1)
    assert "qasper.jsonl, row 2: column 'context' must be a text that is not empty; it is empty." in error
    assert set(load_rows("out")["task"]) == {"longbench/hotpotqa"}


@pytest.mark.parametrize(
    ("words", "model", "data"),
    [
        ([], "llama3.1-8b", "auto"),
        (["scale=mini"], "testbed", "fixture"),
        (["model=qwen2.5-3b"], "qwen2.5-3b", "auto"),
        (["scale=mini", "model=qwen2.5-3b", "data=folder"], "qwen2.5-3b", "folder"),
    ],
)
def test_the_model_is_the_experiments_unless_the_scale_or_the_command_line_say_another(words, model, data):
    config = composed("+exp=longbench", "task=longbench/qasper", *words)
    assert (config.model.name, config.task.data) == (model, data)


def test_a_model_that_is_asked_for_is_the_one_that_runs(run):
    code, error = run(*SMALL, "model=hf", "model.path=./nowhere")
    assert code == 2
    assert "There is no folder ./nowhere" in error
