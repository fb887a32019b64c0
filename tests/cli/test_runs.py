"""From a command line to rows, a table and a page; and the second time nothing is computed."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.cli import main
from harness.config.model_files import BUNDLED
from harness.store.loading import load_rows

SMALL = ["task.lengths=[192]", "task.repeats=1", "task.depths=[20,80]", "block_size=32", "references=[]"]


@pytest.fixture
def harness(monkeypatch, tmp_path, capfd):
    """Run a command line; returns what it printed."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["harness", *arguments, f"results_dir={tmp_path}"])
        main.main()
        return capfd.readouterr().out

    return run


def test_one_cell_gives_rows_a_table_and_a_page(harness, tmp_path):
    printed = harness("+exp=niah", "policy=caote_snapkv", "budget=48", *SMALL)
    assert "2 samples computed" in printed
    rows = load_rows(tmp_path)
    assert set(rows["policy"]) == {"caote_snapkv"}
    assert set(rows["metric"]) == {"string_match"}
    assert (rows["invalid"] == "").all()
    assert (rows["slots_kept_max"] == 48).all()
    assert (rows["slots_peak"] == 48 + 32).all()
    page = (tmp_path / "reports" / "niah.html").read_text()
    assert "caote_snapkv" in page


def test_overrides_may_stand_before_and_behind_options(monkeypatch, tmp_path, capfd):
    words = ["policy=sink", "seed=3", "--config-dir", str(tmp_path), "budget=48", "--cfg", "job", "seed=7"]
    monkeypatch.setattr(sys, "argv", ["harness", *words])
    main.main()
    printed = capfd.readouterr().out
    assert "budget: 48" in printed
    assert "seed: 7" in printed


def test_a_frame_shows_what_a_row_cost_in_numbers(harness, tmp_path):
    """The budget as a number, nothing where there is none, and no time that is only the mean of a batch."""
    harness("-m", "policy=dense,keydiff", "budget=25%", *SMALL)
    rows = load_rows(tmp_path)
    dense = rows["policy"] == "dense"
    assert rows.loc[dense, ["slots_requested", "budget_share"]].isna().all(axis=None)
    kept = rows[~dense]
    assert (kept["slots_requested"] == (kept["prompt_tokens"] * 0.25).round()).all()
    assert (kept["budget_share"] == kept["slots_requested"] / kept["prompt_tokens"]).all()
    assert "seconds" not in rows
    assert not rows["chat"].any(), "the testbed has no chat format"


def test_rows_of_older_versions_get_the_same_columns(tmp_path):
    """A packed file of before November 2026 had -1 for dense, and the batch's mean time in every row."""
    old = {"cell_id": ["a", "b"], "slots_requested": [-1, 30], "prompt_tokens": [120, 120], "seconds": [0.5, 0.5]}
    pd.DataFrame(old).to_parquet(tmp_path / "rows.parquet")
    rows = load_rows(tmp_path)
    assert list(rows) == ["cell_id", "slots_requested", "budget_share", "prompt_tokens"]
    assert rows["slots_requested"].isna().tolist() == [True, False]
    assert rows["budget_share"].fillna(-1).tolist() == [-1, 0.25]


def test_without_a_summary_there_are_rows_only(harness, tmp_path):
    printed = harness("limit=1", "summary=false", *SMALL)
    assert "1 samples computed" in printed
    assert "interval" not in printed
    assert len(load_rows(tmp_path)) == 1
    assert not list(tmp_path.rglob("*.html"))


def test_a_sweep_is_one_set_of_cells_without_duplicates(harness, tmp_path):
    # dense ignores the budget, and h2o is h2o/keydiff: 2 budgets x (h2o, sink) + dense
    harness("-m", "policy=dense,h2o,h2o/keydiff,sink", "budget=48,96", *SMALL)
    rows = load_rows(tmp_path)
    assert rows.groupby(["policy", "budget"]).size().to_dict() == {
        ("dense", "full"): 2,
        ("h2o/keydiff", "48"): 2,
        ("h2o/keydiff", "96"): 2,
        ("sink", "48"): 2,
        ("sink", "96"): 2,
    }


def test_the_second_run_computes_nothing_and_says_so(harness, tmp_path, monkeypatch):
    harness("-m", "policy=h2o,sink", *SMALL)
    first = load_rows(tmp_path)
    monkeypatch.setattr("harness.config.model.ModelSpec.load", lambda *_: pytest.fail("the model was loaded"))
    assert "Nothing to compute: all 4 samples were there already." in harness("-m", "policy=h2o,sink", *SMALL)
    pd.testing.assert_frame_equal(first, load_rows(tmp_path))


def test_a_larger_run_adds_only_what_is_missing(harness, tmp_path):
    harness("limit=1", *SMALL)
    assert "1 samples computed, 1 were there already." in harness(*SMALL)
    rows = load_rows(tmp_path)
    assert len(rows) == rows["sample_id"].nunique() == 2


def test_interrupted_and_resumed_equals_uninterrupted(harness, tmp_path):
    harness("limit=1", "policy=keydiff", "seed=3", *SMALL)
    harness("policy=keydiff", "seed=3", *SMALL)
    resumed = load_rows(tmp_path)
    for part in tmp_path.rglob("part-*.parquet"):
        part.unlink()
    harness("policy=keydiff", "seed=3", *SMALL)
    again = load_rows(tmp_path)
    order = ["cell_id", "sample_id", "metric"]
    pd.testing.assert_frame_equal(
        resumed.sort_values(order, ignore_index=True), again.sort_values(order, ignore_index=True)[list(resumed)]
    )


def test_perplexity_rows_weigh_by_predicted_tokens(harness, tmp_path):
    harness("task=book_perplexity", "task.length=128", "task.windows=2", "policy=sink", "budget=48", *SMALL[3:])
    rows = load_rows(tmp_path)
    assert (rows["weight"] == 127).all()
    assert rows["value"].between(2, 8).all()  # nats per token; ln 4096 = 8.3 is a guess at random


def test_the_seed_is_part_of_the_sample_and_of_the_cell(harness, tmp_path):
    harness("seed=1", *SMALL)
    harness("seed=2", *SMALL)
    rows = load_rows(tmp_path)
    assert rows["cell_id"].nunique() == 2
    assert rows["reference"].nunique() == 4


def test_a_cell_that_breaks_a_promise_is_marked_and_left_out(harness, tmp_path, monkeypatch):
    monkeypatch.setattr("policies.policy.keep_best", lambda priority, view: view.filled)
    with pytest.raises(SystemExit) as end:
        harness("policy=keydiff", "budget=48", *SMALL)
    assert end.value.code == 2
    assert load_rows(tmp_path)["invalid"].str.contains("more than its budget of 48").all()


def test_a_model_from_a_folder_of_the_users_own(harness, tmp_path):
    folder = tmp_path / "my-qwen"
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model("qwen2", vocab_size=4096, num_key_value_heads=2, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(BUNDLED / "testbed").save_pretrained(folder)
    harness("model=hf", f"model.path={folder}", "policy=tova", "budget=48", *SMALL)
    rows = load_rows(tmp_path)
    assert set(rows["model"]) == {"my-qwen"}
    assert set(rows["dtype"]) == {"bfloat16"}
    assert (rows["invalid"] == "").all()


@pytest.mark.parametrize("native", [True, False])
def test_numbers_that_the_processor_only_imitates_are_told(harness, monkeypatch, native):
    monkeypatch.setattr("harness.config.model.has_native_dtype", lambda dtype, device: native or dtype == torch.float32)
    printed = harness("model.dtype=bfloat16", "policy=tova", "budget=48", "limit=1", *SMALL)
    told = "Model testbed computes in bfloat16, which this processor has no instructions for"
    assert (told in printed) is not native
    assert told not in harness("policy=tova", "budget=48", "limit=1", *SMALL)


@pytest.mark.parametrize("regime", ["one_shot", "token_fed"])
def test_the_other_regimes_run(harness, tmp_path, regime):
    harness(f"prompt={regime}", "policy=keydiff", "budget=48", "limit=1", *SMALL)
    rows = load_rows(tmp_path)
    assert (rows["invalid"] == "").all()
    assert (rows["block_size"] == 0).all()


@pytest.mark.parametrize("what", ["policies", "tasks", "models", "exps"])
def test_lists_have_one_described_line_each(what, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["harness", "list", what])
    main.main()
    lines = capfd.readouterr().out.splitlines()
    assert lines
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_a_sweep_starts_from_any_folder(tmp_path):
    words = ["-m", "policy=sink,window", "budget=48", *SMALL, "limit=1", f"results_dir={tmp_path}/out"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert load_rows(tmp_path / "out")["policy"].nunique() == 2


def test_cfg_job_shows_the_configuration_and_runs_nothing(harness, tmp_path):
    printed = harness("--cfg", "job", "+exp=niah", "policy=caote_snapkv", "budget=256", "block_size=32")
    assert "correction: caote" in printed
    assert "budget: 256" in printed
    assert not list(tmp_path.iterdir())


def test_the_context_is_compressed_before_the_question_is_seen(harness, tmp_path):
    """Both protocols are cells of their own, with labels that keep them apart in every table."""
    settings = ["-m", "policy=dense,snapkv/kvpress", "budget=96", "prompt=one_shot", "prompt_split=whole,context"]
    printed = harness(*settings, *SMALL)
    rows = load_rows(tmp_path)
    assert set(rows["prompt"]) == {"one_shot", "one_shot/context"}
    assert rows.groupby("prompt").size().eq(4).all()
    assert (rows["invalid"] == "").all()
    kept = rows[rows["policy"] != "dense"].set_index("prompt")
    assert (kept["slots_requested"] == 96).all()
    held = kept["slots_kept_max"].groupby("prompt").max()
    assert held["one_shot/context"] > held["one_shot"] > 96, "there the question is not compressed"
    dense = rows[rows["policy"] == "dense"].pivot(index="sample_id", columns="prompt", values="prediction")
    assert (dense["one_shot"] == dense["one_shot/context"]).all()
    assert "one_shot/context" in printed


def test_tasks_without_a_question_cannot_be_split(harness, capfd):
    with pytest.raises(SystemExit):
        harness("task=book_perplexity/short", "prompt_split=context", "policy=keydiff")
    said = capfd.readouterr().err
    assert "Task 'book_perplexity' has no question that could be held back" in said
