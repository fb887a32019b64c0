"""Several answers to each question: each has its own seed and name, and all of them are one document."""

from __future__ import annotations

import pytest

from tasks import TaskError, build
from tasks.sampled import SampledAnswers, Sampling, with_sampling

THREE = Sampling(temperature=0.6, top_p=0.95, answers=3)


def drawn(sampling=THREE):
    return with_sampling(build("gsm8k", data="fixture"), sampling)


def test_each_question_is_answered_so_many_times(words):
    task, questions = drawn(), build("gsm8k", data="fixture").samples(words)
    samples = task.samples(words)
    assert [sample.id for sample in samples[:4]] == ["row-0#0", "row-0#1", "row-0#2", "row-1#0"]
    assert [sample.prompt for sample in samples] == [each.prompt for each in questions for _ in range(3)]
    assert [sample.document for sample in samples[:4]] == ["row-0", "row-0", "row-0", "row-1"]
    assert [sample.axes["answer"] for sample in samples[:4]] == [0, 1, 2, 0]
    assert {(sample.temperature, sample.top_p) for sample in samples} == {(0.6, 0.95)}
    assert len({sample.seed for sample in samples}) == len(samples)
    assert task.score(samples[0], questions[0].references[0]) == {"flexible": 1.0, "strict": 0.0}


def test_more_answers_keep_the_ones_that_are_there(words):
    """Neither the number of answers nor ``limit`` changes an answer, so neither is part of a cell's identity."""
    two, three = drawn(Sampling(0.6, 0.95, answers=2)), drawn()
    assert {each.id: each.seed for each in two.samples(words)}.items() <= {
        each.id: each.seed for each in three.samples(words)
    }.items()
    assert two.settings == three.settings
    assert list(three.first(words, 5)) == list(three.samples(words)[:5])
    assert drawn(Sampling(0.6, 0.95, seed=1)).settings != three.settings
    assert "data" not in three.settings, "a path is no part of it"


def test_other_seeds_draw_other_numbers(words):
    one, other = (drawn(Sampling(0.6, seed=seed)).samples(words) for seed in (0, 1))
    assert not {each.seed for each in one} & {each.seed for each in other}


def test_the_name_says_how_it_was_drawn():
    assert drawn().label == "gsm8k/cot_8_shot (T=0.6 p=0.95)"
    assert drawn(Sampling(1, seed=7)).label == "gsm8k/cot_8_shot (T=1 seed=7)"
    assert drawn().name == "gsm8k"
    assert (drawn().metrics, drawn().mode) == (("flexible", "strict"), "generate")


def test_greedy_leaves_the_task_as_it_is():
    task = build("gsm8k", data="fixture")
    assert with_sampling(task, Sampling()) is task
    assert isinstance(with_sampling(task, THREE), SampledAnswers)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": -0.1}, r"sampling\.temperature must be from 0 \(greedy\) to 100; got -0\.1"),
        ({"temperature": 1.0, "top_p": 0}, r"sampling\.top_p must be above 0 and at most 1"),
        ({"temperature": 1.0, "answers": 0}, r"sampling\.answers must be a whole number from 1"),
        ({"answers": 4}, r"sampling\.temperature=0 chooses the likeliest token"),
        ({"top_p": 0.9}, r"sampling\.temperature=0 chooses the likeliest token"),
    ],
)
def test_settings_without_meaning_are_refused(settings, sentence):
    with pytest.raises(TaskError, match=sentence):
        Sampling(**settings)


def test_a_task_without_answers_is_refused():
    with pytest.raises(TaskError, match=r"book_perplexity asks for no text \(mode perplexity\)"):
        with_sampling(build("book_perplexity"), THREE)
