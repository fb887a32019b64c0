"""Ten-document questions and key-value retrieval: official prompts and scores, gold where it is asked for."""

import json
from pathlib import Path

import pytest

from tasks import TaskError, build
from tasks.data.tables import table
from tasks.lost_in_the_middle import pairs_prompt, question_prompt
from tasks.metrics.answers import best_subspan_em

EXAMPLES = json.loads((Path(__file__).parent / "micro_examples/lost_in_the_middle.json").read_text())


def test_prompts_are_those_of_the_worked_examples():
    (asked,) = EXAMPLES["qa_prompt"]
    assert question_prompt("official", asked["question"], asked["documents"]) == asked["prompt"]
    (pairs,) = EXAMPLES["kv_prompt"]
    assert pairs_prompt(pairs["records"], pairs["key"]) == pairs["prompt"]


def test_scores_are_those_of_the_worked_examples():
    for case in EXAMPLES["best_subspan_em"]:
        assert best_subspan_em(case["model_answer"], case["answers"]) == case["score"]
    task = build("key_value", data="fixture")
    sample = task.samples(None)[0]
    for case in EXAMPLES["kv_retrieval_accuracy"]:
        named = sample.__class__(id="x", prompt="", references=(case["value"],))
        assert task.score(named, case["model_answer"]) == {"contains": case["score"]}


@pytest.mark.parametrize("data", ["fixture", "auto"])
def test_the_gold_document_stands_where_it_is_asked_for(data):
    task = build("lost_in_the_middle", data=data, questions=5)
    samples = task.samples(None)
    for sample in samples:
        lines = [line for line in sample.prompt.split("\n") if line.startswith("Document [")]
        assert len(lines) == sample.axes["documents"] == 10
        row = table(f"lost_in_the_middle/10_documents_gold_at_{sample.axes['gold_at']}", data).rows[
            int(sample.document[1:])
        ]
        assert [passage["isgold"] for passage in row["ctxs"]].index(True) == sample.axes["gold_at"]
    assert [sample.axes["gold_at"] for sample in samples[:3]] == [0, 4, 9]
    assert len({sample.document for sample in samples[:3]}) == 1
    assert len({sample.id for sample in samples}) == len(samples)


def test_a_leading_newline_does_not_hide_an_answer():
    task = build("lost_in_the_middle", data="fixture")
    sample = task.samples(None)[0]
    answer = sample.references[0]
    assert task.score(sample, f"\nIt was {answer}.\nMore") == {"best_subspan_em": 1.0, "exact_match": 0.0}
    assert task.score(sample, f" {answer.upper()} ") == {"best_subspan_em": 1.0, "exact_match": 1.0}
    assert task.score(sample, "") == {"best_subspan_em": 0.0, "exact_match": 0.0}


def test_buzz_asks_without_numbers_and_is_headed_by_exact_match():
    task = build("lost_in_the_middle", data="fixture", wording="buzz")
    prompt = task.samples(None)[0].prompt
    assert prompt.startswith("Documents are following: ")
    assert "Document [" not in prompt
    assert prompt.endswith("and be BRIEF. ")
    assert task.metrics[0] == "exact_match"
    assert task.label == "lost_in_the_middle/buzz"


def test_the_question_can_stand_before_the_documents_too():
    asked = build("lost_in_the_middle", data="fixture", wording="query_aware").samples(None)[0].prompt
    assert asked.count("Question: ") == 2
    assert (
        "ordered randomly"
        in build("lost_in_the_middle", data="fixture", wording="ordered_randomly").samples(None)[0].prompt
    )


@pytest.mark.parametrize("pairs", [75, 140])
def test_the_asked_pair_is_moved_and_the_others_keep_their_order(pairs):
    task = build("key_value", pairs=pairs, gold_at=[0, 50, 100], examples=2)
    samples = task.samples(None)
    for sample in samples:
        text = sample.prompt.partition("JSON data:\n")[2].partition("\n\nKey: ")[0]
        found = list(json.loads(text).items())
        row = table(f"lost_in_the_middle/kv_{pairs}").rows[int(sample.document.rpartition("-")[2])]
        assert found.index((row["key"], row["value"])) == round((len(found) - 1) * sample.axes["gold_at"] / 100)
        assert [pair for pair in found if pair[0] != row["key"]] == [
            tuple(pair) for pair in row["ordered_kv_records"] if pair[0] != row["key"]
        ]
        assert len(found) == sample.axes["pairs"] == pairs
    assert [sample.axes["gold_at"] for sample in samples] == [0, 50, 100] * 2


def test_the_key_can_be_named_first():
    prompt = build("key_value", data="fixture", query_aware=True).samples(None)[0].prompt
    assert prompt.count('Key: "') == 2


def test_a_key_that_is_not_there_is_named_by_file_and_row(tmp_path):
    row = {"ordered_kv_records": [["a", "1"], ["b", "2"]], "key": "c", "value": "3"}
    (tmp_path / "kv_75.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(TaskError, match=r"kv_75\.jsonl, row 1: the key 'c' must stand once"):
        build("key_value", data=str(tmp_path)).samples(None)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("lost_in_the_middle", {"gold_at": [5]}, "there are files for 0, 4 and 9 only"),
        ("lost_in_the_middle", {"wording": "buz"}, "Did you mean buzz"),
        ("key_value", {"pairs": 300}, "must be 75 or 140; got 300"),
        ("key_value", {"gold_at": [101]}, "from 0 to 100"),
    ],
)
def test_wrong_settings_are_refused_with_a_way_out(name, settings, message):
    with pytest.raises(TaskError, match=message):
        build(name, **settings)
