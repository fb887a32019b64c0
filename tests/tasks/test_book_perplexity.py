"""What perplexity windows promise."""

import collections

import pytest

from tasks import TaskError, build
from tasks.haystack import novels


def test_prompts_are_long_enough_for_any_tokenizer(tokenizer):
    for sample in build("book_perplexity", length=300, windows=6).samples(tokenizer):
        assert sample.truncate_to == sample.axes["length"] == 300
        assert len(tokenizer.encode(sample.prompt)) >= 300
        assert sample.max_new_tokens == 0
        assert sample.references == ()


def test_windows_take_turns_over_the_novels_at_even_distances(testbed):
    samples = build("book_perplexity", length=64, windows=16).samples(testbed)
    names = [novel.name for novel in novels()]
    assert [sample.axes["book"] for sample in samples] == names * 4
    starts = collections.defaultdict(list)
    for sample in samples:
        name, start = sample.document.split("@")
        starts[name].append(int(start))
    for novel in novels():
        expected = [len(novel.text) * part / 8 for part in (1, 3, 5, 7)]
        assert sorted(starts[novel.name]) == pytest.approx(expected, abs=3000)  # the paragraph after the exact place


@pytest.mark.parametrize("seed", range(4))
def test_every_prefix_covers_the_parts_of_each_novel(testbed, seed):
    """Of 64 windows the first 16 are four of each novel, one in each quarter of it."""
    quarters = collections.defaultdict(set)
    texts = {novel.name: novel.text for novel in novels()}
    for sample in build("book_perplexity", length=64, windows=64, seed=seed).samples(testbed)[:16]:
        name, start = sample.document.split("@")
        quarters[name].add(4 * int(start) // len(texts[name]))
    assert quarters == {name: {0, 1, 2, 3} for name in texts}


def test_windows_are_paragraph_starts_of_their_novel_and_never_overlap(words):
    texts = {novel.name: novel.text for novel in novels()}
    ends = collections.defaultdict(int)
    windows = build("book_perplexity", length=500, windows=101).samples(words)
    for sample in sorted(windows, key=lambda sample: int(sample.document.split("@")[1])):
        name, start = sample.document.split("@")
        assert int(start) >= ends[name]
        assert texts[name][: int(start)].endswith("\n\n")
        assert texts[name].startswith(sample.prompt, int(start))
        ends[name] = int(start) + len(sample.prompt)


def test_seeds_begin_with_quarters_of_the_same_windows_that_share_none(testbed):
    ids = [
        [each.id for each in build("book_perplexity", length=64, windows=64, seed=s).samples(testbed)] for s in range(5)
    ]
    assert all(sorted(own) == sorted(ids[0]) for own in ids)
    assert sorted(name for own in ids[:4] for name in own[:16]) == sorted(ids[0])
    assert ids[4] == ids[0]


def test_ids_and_documents_are_unique(testbed):
    samples = build("book_perplexity", length=64, windows=9).samples(testbed)
    assert len({sample.id for sample in samples}) == len({sample.document for sample in samples}) == 9


def test_samples_are_the_same_every_time(testbed):
    task = build("book_perplexity", length=64)
    assert task.samples(testbed) == task.samples(testbed)


def test_windows_that_would_overlap_are_refused(testbed):
    with pytest.raises(TaskError, match=r"3000 windows of 1024 tokens do not fit .* Ask for fewer or shorter ones\."):
        build("book_perplexity", windows=3000).samples(testbed)


def test_predictions_are_not_scored(testbed):
    task = build("book_perplexity", length=64, windows=1)
    with pytest.raises(TaskError, match="asks for no text"):
        task.score(task.samples(testbed)[0], "a")


@pytest.mark.parametrize(("field", "value"), [("length", 1), ("windows", 0), ("length", "long"), ("windows", 1.5)])
def test_sizes_that_make_no_sense_are_refused(field, value):
    with pytest.raises(TaskError, match=rf"book_perplexity\.{field} must be a whole number of \d or more; got"):
        build("book_perplexity", **{field: value})
