"""LongBench v2: the official prompt, and the letter that is announced."""

from __future__ import annotations

import json

import pytest

from tasks import TaskError, build
from tasks.data.tables import table


def asked(words, **settings):
    task = build("longbench_v2", data="fixture", **settings)
    return task, task.samples(words)


def test_the_prompt_is_the_official_one(words):
    row = table("longbench_v2/train", "fixture").rows[0]
    _, (sample, *_) = asked(words)
    assert sample.prompt == (
        f"Please read the following text and answer the question below.\n\n<text>\n{row['context']}\n</text>\n\n"
        f"What is the correct answer to this question: {row['question']}\nChoices:\n(A) ships\n(B) gulls\n(C) steps\n"
        '(D) waves\n\nFormat your response as follows: "The correct answer is (insert answer here)".'
    )
    assert sample.prompt.endswith(sample.question)
    assert sample.question.startswith("\n</text>\n\nWhat is the correct answer")
    assert (sample.chat, sample.max_new_tokens, sample.longest) == (True, 128, 2**31)


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        ("The correct answer is (C).", True),
        ("The correct answer is C", True),
        ("**The correct answer is (C)**", True),
        ("The correct answer is B. No: The correct answer is (C)", True),  # one in brackets counts first
        ("The correct answer is (B) and not (C)", False),
        ("C", False),
        ("the correct answer is (C)", False),
        ("", False),
    ],
)
def test_the_announced_letter_counts(words, prediction, right):
    task, samples = asked(words)
    assert task.score(samples[0], prediction) == {"accuracy": float(right)}


def test_a_part_holds_contexts_of_one_length(words):
    assert [sample.id for sample in asked(words)[1]] == ["v2-0", "v2-1", "v2-2"]
    task, short = asked(words, part="short")
    assert [sample.id for sample in short] == ["v2-0", "v2-1"]
    assert task.label == "longbench_v2/short"
    assert short[1].axes == {"domain": "Code Repository Understanding", "difficulty": "hard", "words": "short"}


def test_what_cannot_be_is_refused(words, tmp_path):
    with pytest.raises(TaskError, match=r"longbench_v2 has no part 'shrot'\. Did you mean short"):
        build("longbench_v2", part="shrot")
    row = {**table("longbench_v2/train", "fixture").rows[0], "answer": "E"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskError, match=r"train\.jsonl, row 1: column 'answer' must be one of A, B, C, D"):
        build("longbench_v2", data=str(tmp_path)).samples(words)
