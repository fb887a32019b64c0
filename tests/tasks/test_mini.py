"""What the mini suite promises: held-out material, exact lengths, answers that stand in the prompt, honest scores."""

import dataclasses
import random
import re
from pathlib import Path

import pytest
from composed import each_of
from omegaconf import OmegaConf

from scripts.testbed.ingredients import INGREDIENTS
from tasks import TaskError, build
from tasks.haystack import BOOKS
from tasks.mini.material import TRAINING_BOOKS, material, wordings
from tasks.mini.suite import MINI_SUITE
from tasks.niah import KEYS

ROOT = Path(__file__).parents[2]
NAMES = [task.name for task in MINI_SUITE]
# The most that the next line or passage would have added, in tokens of the shipped tokenizer.
GRAIN = {"longbench_mini/passage_retrieval": 130, "longbench_mini/few_shot": 40, "longbench_mini/code": 40}


def as_configured(preset):
    """The settings of a file of conf/task, its defaults written out."""
    return OmegaConf.to_container(each_of("task")[preset], resolve=True)["task"]


@pytest.fixture(scope="module", params=NAMES)
def task(request):
    return build(request.param, lengths=[400, 800], repeats=4)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_are_never_exceeded_and_nearly_met(name, tokenizer):
    for sample in build(name, lengths=[1400, 2000], repeats=3).samples(tokenizer):
        short = sample.axes["length"] - len(tokenizer.encode(sample.prompt))
        assert short >= 0
        if type(tokenizer).__name__ == "Testbed":
            assert short <= GRAIN.get(name, 30)


def test_samples_are_the_same_every_time_and_whatever_else_is_asked(task, testbed):
    samples = task.samples(testbed)
    assert samples == task.samples(testbed)
    alone = build(task.name, lengths=[800], repeats=2).samples(testbed)
    assert [sample for sample in samples if sample.axes["length"] == 800][:2] == alone
    assert len({sample.prompt for sample in samples}) == len(samples)


def test_every_prefix_is_balanced_over_lengths(task, testbed):
    assert [sample.axes["length"] for sample in task.samples(testbed)] == [400, 800] * 4


def test_the_document_with_the_code_stands_where_lost_in_the_middle_puts_it(testbed):
    """Places 0, 4 and 9 of ten documents in equal shares; the code stands in that document and in no other."""
    samples = build("longbench_mini/multi_doc_qa", lengths=[512], repeats=30).samples(testbed)
    assert [sample.axes["gold_at"] for sample in samples] == [0, 4, 9] * 10
    for sample in samples:
        documents = re.split(r"^Document \d+: ", sample.prompt.rpartition("\nQuestion: ")[0], flags=re.MULTILINE)[1:]
        code = f"is {sample.references[0]}."
        assert len(documents) == 10
        assert [place for place, text in enumerate(documents) if code in text] == [sample.axes["gold_at"]]


def test_there_are_enough_samples_for_a_paired_test_and_as_many_clusters(first_samples):
    """What conf/task offers: at least 120 different prompts of 512 tokens or fewer, and nearly as many clusters.

    Two needles may by chance lie in the same page of a novel, which makes them one cluster.
    """
    for preset in (*NAMES, "niah/short", "book_perplexity/short"):
        settings = as_configured(preset)
        samples = first_samples(build(settings.pop("name"), **settings), 120)
        assert len({sample.prompt for sample in samples}) == 120
        assert len({sample.document for sample in samples}) >= 115
        assert max(sample.axes["length"] for sample in samples) == 512


def test_another_seed_asks_something_else(task, testbed):
    other = build(task.name, lengths=[400, 800], repeats=4, seed=1).samples(testbed)
    assert all(a.prompt != b.prompt for a, b in zip(task.samples(testbed), other, strict=True))


def test_the_answer_that_training_teaches_scores_one_and_nothing_scores_nought(task, testbed):
    sample = task.samples(testbed)[0]
    for seed in range(20):
        question = type(task).write(random.Random(seed), material("test"), 1000).questions[0]
        asked = dataclasses.replace(sample, references=question.references)
        assert task.score(asked, question.answer)[task.metrics[0]] == pytest.approx(1)
        assert task.score(asked, "")[task.metrics[0]] == 0


def test_a_wrong_answer_does_not_score(testbed):
    for name in NAMES:
        first, second = build(name, lengths=[600], repeats=2).samples(testbed)
        task = build(name)
        if first.references[0] != second.references[0]:
            assert task.score(first, " " + second.references[0])[task.metrics[0]] < 0.9


def test_the_number_of_passages_is_not_found_within_another_number(testbed):
    task = build("longbench_mini/passage_count", lengths=[400], repeats=1)
    sample = task.samples(testbed)[0]
    assert task.score(sample, f" 1{sample.references[0]}")["count"] == 0


def test_a_length_that_nothing_fits_into_names_one_that_does(testbed):
    with pytest.raises(TaskError, match=r"longbench_mini/multi_doc_qa\.lengths has 60, which is too short.*Use \d+"):
        build("longbench_mini/multi_doc_qa", lengths=[60]).samples(testbed)


def test_no_word_name_label_wording_or_novel_is_in_both_splits():
    train, test = material("train"), material("test")
    for part in ("adjectives", "nouns", "names", "labels", "pairs", "label_lines"):
        assert not set(getattr(train, part)) & set(getattr(test, part)), part
    assert not {novel.text for novel in train.novels} & {novel.text for novel in test.novels}
    assert not {book.name for book in TRAINING_BOOKS} & {book.name for book in BOOKS}
    held_out = wordings()["facts"]
    assert not {form["needle"] for form in held_out["train"].values()} & {
        form["needle"] for form in held_out["test"].values()
    }


def test_the_words_of_niah_are_held_out():
    train = material("train")
    words = {word for key in KEYS for word in key.split()}
    assert not words & {*train.adjectives, *train.nouns, *train.names, *train.labels}


@pytest.mark.parametrize("name", INGREDIENTS)
def test_what_training_draws_stands_in_the_training_split(name):
    """Answers of two words or fewer are words of the split, or numbers."""
    train, test = material("train"), material("test")
    held_out = {*test.names, *test.labels}
    for index in range(20):
        for question in INGREDIENTS[name](random.Random(index), train, 600).questions:
            if len(question.answer.split()) == 1:
                assert question.answer.strip() not in held_out


@pytest.mark.parametrize("name", ["longbench_mini/few_shot", "niah"])
def test_the_first_samples_are_those_of_the_whole_task(name, testbed):
    task = build(name, lengths=[300, 400], repeats=2)
    assert task.first(testbed, 3) == task.samples(testbed)[:3]
    assert len(task.first(testbed)) == len(task.samples(testbed))
