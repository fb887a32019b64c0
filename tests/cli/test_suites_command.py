"""The other benchmarks from a command to scored rows, on fixture rows and generated prompts with the testbed."""

from __future__ import annotations

import sys

import pytest

from harness.cli import main
from harness.store.loading import load_rows

SMALL = ["policy=sink", "budget=50%", "references=[]", "limit=1", "data=fixture", "results_dir=out"]


@pytest.fixture
def rows(monkeypatch, tmp_path, capfd):
    """The command line over several tasks in an empty folder; returns the rows that it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(tasks, *words):
        monkeypatch.setattr(sys, "argv", ["harness", "-m", f"task={','.join(tasks)}", *SMALL, *words])
        code = 0
        try:
            main.main()
        except SystemExit as end:
            code = int(end.code or 0)
        assert code == 0, capfd.readouterr().err
        written = load_rows("out")
        assert (written["invalid"] == "").all()
        return written.assign(task=written["task"].str.removesuffix(" (synthetic rows)"))

    return run


def test_questions_with_choices_and_likelihoods_run_on_fixture_rows(rows):
    tasks = [
        "hashevict/gsm8k_multiple_choice",
        "hashevict/gsm8k_multiple_choice_derived",
        "hashevict/medqa_free_response",
        "hashevict/medqa_multiple_choice",
        "multiple_choice/medqa",
        "multiple_choice/gsm8k_mc",
        "multiple_choice/gsm8k_mc_derived",
        "lost_in_the_middle",
        "booksum",
        "wikitext/rows",
    ]
    found = rows([task.removesuffix("/rows") for task in tasks])
    assert set(found["task"]) == set(tasks)
    letters = found[found["task"] == "hashevict/medqa_multiple_choice"]
    assert set(letters["new_tokens"]) == {1}


def test_summaries_run_on_fixture_rows(rows):
    tasks = ["buzz/xsum", "buzz/cnn_dailymail", "buzz/self_bleu"]
    found = rows(tasks, "task.max_new_tokens=16")
    assert set(found["task"]) == set(tasks)
    assert set(found[found["task"] == "buzz/self_bleu"]["metric"]) == {"self_bleu", "self_bleu_no_empty"}


def test_generated_prompts_have_their_length_in_the_engine_too(rows):
    tasks = ["needle/grid", "needle/wu", "needle/fu"]
    found = rows(tasks, "task.lengths=[300]", "task.depths=[50]")
    assert set(found["task"]) == set(tasks)
    assert found["prompt_tokens"].between(290, 300).all()
    generated = rows(["ruler/vt", "ruler/niah_multiquery"], "task.lengths=[700]", "task.repeats=1")
    chained = generated[generated["task"] == "ruler/vt"]
    assert chained["prompt_tokens"].between(700 - 30 - 40, 700 - 30).all()
