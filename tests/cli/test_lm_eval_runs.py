"""lm-evaluation-harness both ways: its tasks in our rows score what it says when it asks our engine itself."""

from __future__ import annotations

import sys

import pandas as pd
import pytest
from lm_eval import evaluate
from lm_eval.tasks import TaskManager
from lm_eval_examples import DOCUMENTS, TESTBED, write_tasks

from harness.cli import main
from harness.integrations.lm_eval import KVReplica
from harness.store.loading import load_rows

SETTINGS = {"policy": "keydiff", "budget": "25%", "block_size": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("lm_eval"))


@pytest.fixture
def harness(monkeypatch, tmp_path, folder):
    def run(task: str, *arguments: str) -> pd.DataFrame:
        words = [f"task.task={task}", f"task.include_path={folder}", f"results_dir={tmp_path}", "references=[]"]
        monkeypatch.setattr(sys, "argv", ["harness", "task=lm_eval", *words, *arguments])
        main.main()
        return load_rows(tmp_path)

    return run


@pytest.fixture(scope="module")
def asked_by_lm_eval(folder):
    names = ["needle_answers", "going_on", "needle_choices", "last_words"]
    loaded = TaskManager(include_path=folder, include_defaults=False).load(names)
    return evaluate(KVReplica(**SETTINGS), loaded, bootstrap_iters=0)


@pytest.mark.parametrize("task", ["needle_answers", "going_on", "needle_choices", "last_words"])
def test_rows_hold_the_scores_that_lm_eval_gives_our_model(task, harness, asked_by_lm_eval):
    rows = harness(task, *(f"{name}={value}" for name, value in SETTINGS.items()))
    assert set(rows["task"]) == {f"lm_eval/{task}"}
    assert (rows["invalid"] == "").all()
    for metric, part in rows.groupby("metric"):
        name, _, of_filter = metric.partition("/")
        assert part["value"].mean() == asked_by_lm_eval["results"][task][f"{name},{of_filter or 'none'}"]
        assert part["sample_id"].nunique() == len(part) == DOCUMENTS


def test_generated_rows_hold_the_texts_that_lm_eval_gets(harness, asked_by_lm_eval):
    rows = harness("going_on", *(f"{name}={value}" for name, value in SETTINGS.items()))
    samples = sorted(asked_by_lm_eval["samples"]["going_on"], key=lambda sample: sample["doc_id"])
    assert rows.sort_values("sample_id")["prediction"].tolist() == [sample["resps"][0][0] for sample in samples]


def test_a_multiple_choice_sample_is_one_row_of_its_likeliest_choice_and_its_longest(harness, asked_by_lm_eval):
    rows = harness("needle_choices", *(f"{name}={value}" for name, value in SETTINGS.items()))
    samples = {sample["doc_id"]: sample for sample in asked_by_lm_eval["samples"]["needle_choices"]}
    tokenizer = TESTBED.tokenizer()
    for row in rows.itertuples():
        sample = samples[int(row.sample_id)]
        best = max(range(4), key=lambda choice: sample["resps"][choice][0][0])
        assert row.prediction == sample["arguments"][best][1]
        assert row.reference == sample["doc"]["answer"]
        assert row.prompt_tokens == len(tokenizer.encode(sample["doc"]["prompt"]))
        assert row.slots_kept_max == row.slots_requested == round(row.prompt_tokens / 4)
        longest = max(
            len(tokenizer.encode(f" {choice}", add_special_tokens=False)) for choice in sample["doc"]["choices"]
        )
        assert row.tokens_evicted == row.prompt_tokens + longest - 1 - row.slots_requested


def test_rolling_tasks_give_nats_per_token(harness):
    rows = harness("passages", *(f"{name}={value}" for name, value in SETTINGS.items()))
    assert set(rows["metric"]) == {"nll"}
    assert rows["value"].between(2, 8).all()
    assert (rows["weight"] == rows["prompt_tokens"] - 1).all()


def test_choices_in_a_prompt_read_at_once_feel_the_eviction_after_it(harness):
    harness("needle_choices", "policy=dense", "prompt=one_shot")
    rows = harness("needle_choices", "policy=keydiff", "prompt=one_shot", "budget=8")
    evicting = rows[rows["policy"] == "keydiff"]
    assert (evicting["slots_kept_max"] == 8).all()
    assert (evicting["invalid"] == "").all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["task=lm_eval"], "task=lm_eval needs to know which: add task.task=<name>"),
        (["task=lm_eval", "task.task=gms8k"], "lm-eval has no task 'gms8k'. Did you mean gsm8k"),
        (["task=lm_eval/gsm8k"], "python -c \"import datasets; datasets.load_dataset('openai/gsm8k', 'main')\""),
    ],
)
def test_what_is_missing_is_one_sentence_before_the_model_is_looked_for(
    arguments, sentence, monkeypatch, tmp_path, capfd
):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "nothing")
    monkeypatch.setattr(sys, "argv", ["harness", *arguments, "model=hf", "model.path=./nowhere"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 2
    assert sentence in capfd.readouterr().err
