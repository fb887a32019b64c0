"""GSM8K by chain of thought, derived choices, HashEvict's tasks and multiple choice by likelihood."""

import json
import random
from pathlib import Path

import pytest

from tasks import Likelihood, TaskError, build
from tasks.data.tables import table
from tasks.hashevict_suite import SUBSETS, drawn_rows
from tasks.metrics.overlap import rouge_scores
from tasks.multiple_choice import LETTERS, derived_choices
from tasks.templates import prompts

EXAMPLES = json.loads((Path(__file__).parent / "micro_examples/gsm8k.json").read_text())["cases"]


def asked(words, name, **settings):
    task = build(name, **{"data": "fixture", **settings})
    return task, task.samples(words)


@pytest.mark.parametrize("case", EXAMPLES)
def test_the_last_number_is_scored_as_in_the_worked_examples(case, words):
    task, samples = asked(words, "gsm8k")
    sample = samples[0].__class__(id="x", prompt="", references=(f"Because.\n#### {case['gold']}",))
    assert task.score(sample, case["completion"])["flexible"] == float(case["lm_eval_flexible_correct"])


def test_the_announced_number_is_scored_strictly(words):
    task, samples = asked(words, "gsm8k")
    assert samples[1].references[0].endswith("#### 1,250")
    assert task.score(samples[1], "He takes 1250. The answer is $1,250.")["strict"] == 0.0  # no dollar sign there
    assert task.score(samples[1], "The answer is 1,250. Then 7") == {"flexible": 0.0, "strict": 1.0}
    assert task.score(samples[1], "It is 1250") == {"flexible": 1.0, "strict": 0.0}
    assert task.score(samples[2], "The answer is -3.") == {"flexible": 1.0, "strict": 1.0}


def test_the_chain_of_thought_prompt_shows_eight_solved_examples(words):
    _, (sample, *_) = asked(words, "gsm8k")
    blocks = sample.prompt.split("\n\n")
    assert len(blocks) == 9
    assert blocks[0].startswith("Q: There are 15 trees in the grove.")
    assert "?\nA: There are 15 trees originally. " in blocks[0]
    assert all(" The answer is " in block for block in blocks[:8])
    assert blocks[8] == f"Q: {table('gsm8k/test', 'fixture').rows[0]['question']}\nA:"
    assert sample.until[0] == "Q:"
    _, (bare, *_) = asked(words, "gsm8k", style="zero_shot")
    assert bare.prompt == f"{blocks[8]} Let's think step by step."


def test_derived_choices_are_intermediate_results_then_neighbours():
    solution = "He has <<3*4=12>>12, then <<12-5=7>>7, again <<6+6=12>>12.\n#### 7"
    row = derived_choices("How many?", solution, 0, "here")
    assert {row[letter] for letter in LETTERS} == {"7", "12", "6", "8"}
    assert row[row["Answer"]] == "7"
    assert row == derived_choices("How many?", solution, 0, "here")
    assert {derived_choices("", "#### 5", index, "here")["Answer"] for index in range(40)} == set(LETTERS)
    assert set(derived_choices("", "#### 0", 1, "here").values()) >= {"0", "-1", "1", "10"}
    with pytest.raises(TaskError, match="row 3: the answer has no number"):
        derived_choices("", "no number", 2, "row 3")


def test_all_of_gsm8k_yields_four_different_choices_with_one_right_one():
    for index, row in enumerate(table("gsm8k/test").rows):
        choices = derived_choices(row["question"], row["answer"], index, "here")
        assert len({choices[letter] for letter in LETTERS}) == 4
        gold = row["answer"].rpartition("#### ")[2].replace(",", "")
        assert float(choices[choices["Answer"]]) == float(gold)


@pytest.mark.parametrize("subset", SUBSETS)
def test_the_reference_scores_one_and_silence_scores_zero(subset, words):
    task, samples = asked(words, "hashevict", subset=subset)
    assert samples
    for sample in samples:
        assert sample.chat
        assert sample.prompt == sample.prompt.strip()
        assert sample.max_new_tokens == prompts("hashevict")[SUBSETS[subset].wording]["max_new_tokens"]
        best = task.score(sample, sample.references[0])
        assert best[task.metrics[0]] == pytest.approx(1.0)
        assert best.keys() == set(task.metrics)
        assert set(task.score(sample, "").values()) == {0.0}


def test_free_responses_are_scored_by_google_s_rouge_without_stemmer(words):
    task, (sample, *_) = asked(words, "hashevict")
    said = "Mira keeps pencils."
    assert task.score(sample, said)["rouge1"] == rouge_scores(said, sample.references[0])["rouge1"].f
    assert task.metrics == ("rougeL", "rouge1", "rouge2", "rougeLsum")
    assert build("hashevict", bert="roberta-large").metrics[-3:] == ("bert_precision", "bert_recall", "bert_f1")


def test_the_bare_question_is_the_free_prompt_and_choices_keep_their_odd_indentation(words):
    _, (free, *_) = asked(words, "hashevict")
    assert free.prompt == table("gsm8k/test", "fixture").rows[0]["question"]
    _, (choice, *_) = asked(words, "hashevict", subset="gsm8k_multiple_choice")
    assert "\n    \n    Choices:\n    A. 7\n    B. 12\n" in choice.prompt
    assert choice.references == ("A",)
    _, samples = asked(words, "hashevict", subset="medqa_multiple_choice")
    assert {sample.references[0] for sample in samples} == {"A", "D"}
    assert all("\nA. " in sample.prompt and "\nD. " in sample.prompt for sample in samples)


def test_one_letter_is_right_only_as_it_is(words):
    task, (sample, *_) = asked(words, "hashevict", subset="gsm8k_multiple_choice")
    assert [task.score(sample, said)["accuracy"] for said in ("A", " A", "a", "A.")] == [1.0, 0.0, 0.0, 0.0]


def test_rows_are_drawn_as_in_the_authors_code():
    assert drawn_rows(1319, 100) == random.Random(100).sample(range(1319), 100)
    assert sorted(drawn_rows(3, 100)) == [0, 1, 2]
    rows = build("hashevict", rows=5).samples(None)
    assert [sample.id for sample in rows] == [f"row-{index}" for index in random.Random(100).sample(range(1319), 5)]


def test_rows_beyond_the_limit_are_left_out_before_the_draw(words, tmp_path):
    row = table("longbench/gov_report", "fixture").rows[0]
    sizes = (100, 3000, 200)
    lines = [json.dumps({**row, "_id": str(size), "context": "word " * size}) for size in sizes]
    (tmp_path / "gov_report.jsonl").write_text("\n".join(lines) + "\n")
    settings = {"subset": "gov_report", "data": str(tmp_path)}
    assert len(asked(words, "hashevict", **settings)[1]) == 3
    _, kept = asked(words, "hashevict", at_most=2000, **settings)
    assert sorted(sample.id for sample in kept) == ["row-0", "row-2"]
    _, one = asked(words, "hashevict", at_most=2000, rows=1, **settings)
    assert [sample.id for sample in one] == [["row-0", "row-2"][random.Random(100).sample(range(2), 1)[0]]]
    with pytest.raises(TaskError, match="no row within"):
        asked(words, "hashevict", at_most=50, **settings)


@pytest.mark.parametrize("dataset", ["medqa", "gsm8k_mc", "gsm8k_mc_derived"])
def test_the_likeliest_letter_is_scored(dataset, words):
    task, samples = asked(words, "multiple_choice", dataset=dataset)
    for sample in samples:
        assert sample.continuations == (" A", " B", " C", " D")
        assert sample.prompt.endswith("\nAnswer:")
        right = LETTERS.index(sample.references[0])
        good = [Likelihood(-1.0 if index == right else -2.0, 1, False) for index in range(4)]
        assert task.score_continuations(sample, good) == {"accuracy": 1.0, "nll": 1.0}
        tie = [Likelihood(-2.0, 1, False)] * 4
        assert task.score_continuations(sample, tie) == {"accuracy": 0.0, "nll": 2.0}


def test_data_that_cannot_be_right_is_named_by_file_and_row(words, tmp_path):
    row = dict(table("medqa/test", "fixture").rows[0])
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({**row, "label": 7}) + "\n")
    for name, settings in (("multiple_choice", {}), ("hashevict", {"subset": "medqa_multiple_choice"})):
        with pytest.raises(TaskError, match=r"test\.jsonl, row 2: column 'label' must be a number from 0 to 3"):
            asked(words, name, data=str(tmp_path), **settings)


def test_an_answer_that_is_no_letter_is_named_by_file_and_row(words, tmp_path):
    row = {**table("gsm8k_mc/test", "fixture").rows[0], "Answer": "a"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    for name, settings in (
        ("multiple_choice", {"dataset": "gsm8k_mc"}),
        ("hashevict", {"subset": "gsm8k_multiple_choice"}),
    ):
        with pytest.raises(TaskError, match=r"test\.jsonl, row 1: column 'Answer' must be one of A, B, C, D; it"):
            asked(words, name, data=str(tmp_path), **settings)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gsm8k", {"style": "cot"}, "gsm8k knows no style 'cot'"),
        ("hashevict", {"subset": "gsm8k"}, "hashevict has no subset 'gsm8k'"),
        ("hashevict", {"rows": 0}, "hashevict.rows must be a whole number"),
        ("hashevict", {"subset": "gsm8k_multiple_choice", "bert": "x"}, "is answered with a letter"),
        ("multiple_choice", {"dataset": "medqb"}, "Did you mean medqa"),
    ],
)
def test_wrong_settings_are_refused_with_a_way_out(name, settings, message):
    with pytest.raises(TaskError, match=message):
        build(name, **settings)


def test_missing_data_is_named_with_the_command(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match=r"gsm8k_mc.* python -m scripts\.fetch_data|fetch_data gsm8k_mc"):
        build("hashevict", subset="gsm8k_multiple_choice").samples(words)
