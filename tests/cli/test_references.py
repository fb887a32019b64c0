"""Every evicting cell is accompanied by dense, a floor and the headroom, each once and only where it can be."""

from __future__ import annotations

import sys

import pytest

from harness.cli import main
from harness.store.loading import load_rows

SMALL = ["task.lengths=[192]", "task.repeats=1", "task.depths=[20]", "block_size=32"]
WINDOWS = ["task=book_perplexity", "task.length=128", "task.windows=1", "block_size=32"]


@pytest.fixture
def harness(monkeypatch, tmp_path, capfd):
    """Run a command line; returns what it printed."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["harness", *arguments, f"results_dir={tmp_path}"])
        main.main()
        return capfd.readouterr().out

    return run


def cells(tmp_path) -> list[tuple[str, str, str]]:
    rows = load_rows(tmp_path)
    assert (rows["invalid"] == "").all()
    unique = rows.drop_duplicates("cell_id")
    return sorted(zip(unique["policy"], unique["budget"], unique["prompt"], strict=True))


def test_a_single_run_gets_all_three(harness, tmp_path):
    harness("policy=sink", "budget=48", *SMALL)
    assert cells(tmp_path) == [
        ("dense", "full", "blocked"),
        ("oracle", "48", "blocked"),
        ("random", "48", "blocked"),
        ("sink", "48", "blocked"),
    ]


def test_a_sweep_gets_them_for_every_budget_and_regime(harness, tmp_path):
    harness("-m", "policy=sink,snapkv/kvec,dense", "prompt=auto", "budget=48,64", *SMALL)
    assert cells(tmp_path) == sorted(
        [
            *(("dense", "full", regime) for regime in ("blocked", "one_shot")),
            *(
                (policy, budget, regime)
                for budget in ("48", "64")
                for policy, regime in [
                    ("sink", "blocked"), ("snapkv/kvec", "one_shot"), ("random", "blocked"), ("random", "one_shot"),
                    ("oracle", "blocked"), ("oracle", "one_shot"),
                ]
            ),
        ]
    )  # fmt: skip


def test_what_was_named_is_not_added_again(harness, tmp_path):
    harness("-m", "policy=sink,random,oracle,dense", "policy.protect.sinks=2", "budget=48", *SMALL)
    assert [policy for policy, _, _ in cells(tmp_path)] == ["dense", "oracle", "random", "sink"]


def test_dense_alone_needs_none(harness, tmp_path):
    harness("policy=dense", *SMALL)
    assert cells(tmp_path) == [("dense", "full", "blocked")]


@pytest.mark.parametrize(("setting", "policies"), [("[]", ["sink"]), ("[window]", ["sink", "window"])])
def test_they_can_be_chosen(harness, tmp_path, setting, policies):
    harness("policy=sink", "budget=48", f"references={setting}", *SMALL)
    assert [policy for policy, _, _ in cells(tmp_path)] == policies


def test_perplexity_has_them_too(harness, tmp_path):
    harness("policy=sink", "budget=48", *WINDOWS)
    assert {policy for policy, _, _ in cells(tmp_path)} == {"dense", "oracle", "random", "sink"}


def test_an_impossible_one_is_left_out_with_a_line(harness, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.runner.checks.HINDSIGHT_AT_MOST", 1000)
    printed = " ".join(harness("policy=sink", "budget=48", *SMALL).split())
    line = "Without the baseline oracle (niah, budget 48). Policy &#39;oracle&#39; keeps the attention"
    assert line.replace("&#39;", "'") in printed
    assert line in (tmp_path / "reports" / "latest.html").read_text()
    assert {policy for policy, _, _ in cells(tmp_path)} == {"dense", "random", "sink"}


def test_a_refused_cell_has_none(harness, tmp_path):
    with pytest.raises(SystemExit):
        harness("-m", "policy=kvec", "prompt=one_shot", *SMALL)
    assert not list(tmp_path.rglob("*.parquet"))
