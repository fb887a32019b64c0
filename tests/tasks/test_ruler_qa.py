"""RULER's questions: as many documents as fit, those that are needed among them, scored by a contained answer."""

from __future__ import annotations

import pytest

from tasks import TaskError, build
from tasks.data.tables import table
from tasks.ruler_qa import SourcedQuestion, material, shown

NUMBERED = [f"text {number}" for number in range(30)]


def asked(words, **settings):
    task = build("ruler_qa", data="fixture", **settings)
    return task, task.samples(words)


def test_questions_without_an_answer_are_left_out_and_answers_counted_once():
    documents, questions = material("qa_1", table("squad/validation", "fixture"))
    assert len(documents) == 5
    assert documents == sorted(documents)
    assert [each.query[:3] for each in questions] == ["Who", "Wha", "How", "Who"]
    assert questions[0].answers == ("Anna Holm", "Holm")
    assert documents[questions[0].needs[0]].startswith("The first lighthouse")
    (beside,) = questions[0].beside
    assert documents[beside].startswith("The lamp of the second lighthouse")


def test_paragraphs_of_hotpotqa_have_their_title_in_front():
    documents, questions = material("qa_2", table("hotpotqa/validation", "fixture"))
    assert "Orm\nOrm is a village on the river Tal.  It has two bridges." in documents
    assert [len(each.needs) for each in questions] == [3, 3]
    assert len(documents) == 4


@pytest.mark.parametrize("size", [2, 3, 5, 17, 30])
def test_what_is_needed_is_always_shown_then_the_article_then_others(size):
    question = SourcedQuestion("?", ("!",), (4, 9), (1, 2, 20))
    text = shown(NUMBERED, question, size, "seed")
    found = [int(part.rpartition(" ")[2]) for part in text.split("\n\n")]
    assert len(set(found)) == len(found) == size
    assert {4, 9} <= set(found)
    assert set(found) <= {4, 9, 1, 2, 20} or {4, 9, 1, 2, 20} <= set(found)
    assert text.startswith("Document 1:\n")
    assert shown(NUMBERED, question, size, "seed") == text


def test_orders_differ_between_questions():
    question = SourcedQuestion("?", ("!",), (0,))
    texts = [shown(NUMBERED, question, 30, f"seed {number}").split("\n\n") for number in range(20)]
    places = {[part.endswith(":\ntext 0") for part in text].index(True) for text in texts}
    assert len(places) > 8


def test_as_many_documents_as_fit(words):
    _, (all_of_them, *_) = asked(words, lengths=[4096])
    assert all_of_them.axes["documents"] == 5
    _, (few, *_) = asked(words, lengths=[160])
    assert 1 <= few.axes["documents"] < 5
    assert "Anna Holm" in few.prompt
    assert few.prompt.endswith(few.question)
    assert few.question.endswith("Question: Who built the first lighthouse of the bay?")
    assert (few.answer_prefix, few.max_new_tokens) == (" Answer:", 32)
    with pytest.raises(TaskError, match=r"ruler_qa\.lengths has 60, too short for the documents of question 1 of qa_1"):
        asked(words, lengths=[60])


def test_an_answer_that_is_contained_is_right(words):
    task, samples = asked(words, lengths=[4096])
    assert task.score(samples[0], "It was anna holm, in 1782.") == {"string_match": 1.0}
    assert task.score(samples[0], "Kell") == {"string_match": 0.0}
    assert [sample.id for sample in samples] == ["L4096-q0", "L4096-q1", "L4096-q2", "L4096-q3"]


def test_wrong_settings_are_refused():
    with pytest.raises(TaskError, match=r"ruler_qa has no subset 'qa_3'\. Did you mean qa_"):
        build("ruler_qa", subset="qa_3")
