"""BUZZ's summaries, perplexity on WikiText-2 and BookSum, and the filling of prompts."""

import json
import os
from pathlib import Path

import pytest

from tasks import Likelihood, TaskError, build
from tasks.base import MissingDataError
from tasks.data.tables import table
from tasks.metrics.overlap import rouge_l
from tasks.needle import diagonals
from tasks.templates import fill

SELF_BLEU = json.loads((Path(__file__).parent / "micro_examples/self_bleu.json").read_text())


@pytest.mark.parametrize("subset", ["xsum", "xsum_test", "cnn_dailymail"])
def test_summaries_are_asked_and_scored_as_in_buzz(subset, words):
    task = build("buzz", subset=subset, data="fixture")
    for sample in task.samples(words):
        assert sample.prompt.startswith("Text: ")
        assert sample.prompt.endswith("\n\nSUMMARIZE the previous text to 50 words!")
        assert (sample.chat, sample.max_new_tokens) == (False, 1001)
        best = build("buzz", subset=subset, trailing_blank=False).score(sample, sample.references[0])
        assert best == pytest.approx({"rouge_l": 1, "rouge_1": 1, "rouge_2": 1}, abs=1e-6)
        assert set(task.score(sample, "").values()) == {0.0}
        assert tuple(best) == task.metrics


def test_the_trailing_blank_costs_a_little_where_a_summary_ends_with_a_full_stop(words):
    task = build("buzz", data="fixture")
    sample = task.samples(words)[0]
    assert task.score(sample, sample.references[0])["rouge_l"] == rouge_l(
        sample.references[0] + " ", sample.references[0]
    )
    plain = build("buzz", data="fixture", trailing_blank=False)
    assert plain.score(sample, sample.references[0])["rouge_l"] > task.score(sample, sample.references[0])["rouge_l"]


def test_self_bleu_is_that_of_the_worked_examples(words):
    task = build("buzz", subset="self_bleu", data="fixture", trailing_blank=False)
    sample = task.samples(words)[0]
    assert "150 words!" in sample.prompt
    for case in SELF_BLEU["cases"]:
        assert task.score(sample, case["text"]) == {
            "self_bleu": pytest.approx(case["buzz_self_bleu3"], abs=1e-9),
            "self_bleu_no_empty": pytest.approx(case["self_bleu3_without_empty_sentences"], abs=1e-9),
        }


def test_only_the_first_rows_with_an_article_are_asked(words, tmp_path):
    rows = [{"document": "" if index == 1 else f"Text {index}", "summary": "S", "id": str(index)} for index in range(5)]
    (tmp_path / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples = build("buzz", data=str(tmp_path), rows=2).samples(words)
    assert [sample.document for sample in samples] == ["0", "2"]


def write_articles(folder: Path, split: str, number: int = 3) -> str:
    rows = [{"document": f"Text {index} of {split}", "summary": "S", "id": index} for index in range(number)]
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_a_folder_may_hold_both_splits_of_xsum_and_rows_say_which_was_asked(words, tmp_path):
    for split in ("validation", "test"):
        folder = write_articles(tmp_path, split)
    buzz, other = build("buzz", data=folder), build("buzz", subset="xsum_test", data=folder)
    assert (buzz.label, other.label) == ("buzz/xsum", "buzz/xsum_test")
    assert buzz.revision()["data"] != other.revision()["data"]
    assert {**buzz.revision(), "data": ""} == {**other.revision(), "data": ""}
    assert buzz.samples(words)[0].prompt == other.samples(words)[0].prompt.replace("of test", "of validation")


@pytest.mark.parametrize(
    ("subset", "wanted", "there", "instead"),
    [("xsum", "validation", "test", "xsum_test"), ("xsum_test", "test", "validation", "xsum")],
)
@pytest.mark.parametrize("where", ["folder", "auto"])
def test_another_split_of_xsum_is_named_and_never_taken_in_its_place(
    subset, wanted, there, instead, where, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/xsum").mkdir(parents=True)
    folder = write_articles(tmp_path / "data/xsum", there)
    task = build("buzz", subset=subset, data="auto" if where == "auto" else folder)
    for use in (task.revision, lambda: task.samples(words)):
        with pytest.raises(MissingDataError) as refused:
            use()
        sentence = str(refused.value)
        assert f"xsum/{wanted}" in sentence.partition(":")[0]
        assert sentence.endswith(
            f"What is there is xsum/{there}: 'task=buzz task.subset={instead}' asks the same of that split, as a task "
            "of its own."
        )
        assert refused.value.data_set == f"xsum/{wanted}"


def test_where_no_split_of_xsum_is_here_none_is_offered(words, tmp_path):
    with pytest.raises(MissingDataError, match=r"fetch_data xsum/validation --from hub'\.$"):
        build("buzz", data=str(tmp_path)).revision()


XSUM_ROWS = Path(os.environ.get("KVREPLICA_XSUM_TEST", ""))  # rows of the test split; they may not be passed on


@pytest.mark.skipif(not XSUM_ROWS.is_file(), reason="KVREPLICA_XSUM_TEST names no rows of XSum's test split")
def test_real_rows_of_the_test_split_are_asked(words, tmp_path):
    (tmp_path / "test.jsonl").symlink_to(XSUM_ROWS)
    task = build("buzz", subset="xsum_test", data=str(tmp_path), rows=1000)
    samples = task.samples(words)
    assert len({sample.document for sample in samples}) == len(samples) == 1000
    assert task.score(samples[0], samples[0].references[0])["rouge_1"] > 0.9


def test_wikitext_rows_are_lines_that_predict_something(words, testbed):
    samples = build("wikitext").samples(testbed)
    texts = [row["text"] for row in table("wikitext2/validation").rows[:40]]
    assert [sample.prompt for sample in samples] == [text for text in texts if len(testbed.encode(text)) >= 2]
    assert all(sample.truncate_to is None for sample in samples)


def test_wikitext_windows_have_the_length_follow_each_other_and_do_not_overlap(tokenizer):
    length = 512
    samples = build("wikitext", style="windows", length=length, rows=4).samples(tokenizer)
    assert len(samples) == 4
    text = "".join(row["text"] for row in table("wikitext2/validation").rows)
    position = 0
    for sample in samples:
        assert len(tokenizer.encode(sample.prompt)) > sample.truncate_to == length
        assert text.startswith(sample.prompt, position)
        position += len(sample.prompt)


def test_a_window_longer_than_the_text_is_refused(words):
    with pytest.raises(TaskError, match=r"wikitext\.length has 100000, more tokens than .*validation\.jsonl holds"):
        build("wikitext", style="windows", length=100_000, data="fixture").samples(words)


def test_booksum_asks_for_the_summary_after_its_chapter(words):
    task = build("booksum", data="fixture", max_length=2048)
    samples = task.samples(words)
    rows = table("booksum/test", "fixture").rows
    for sample, row in zip(samples, rows, strict=True):
        assert sample.prompt == row["chapter"].strip()
        assert sample.continuations == ("\n\n" + row["summary_text"].strip(),)
        assert sample.longest == 2048
    assert len({sample.document for sample in samples}) == 1  # two chapters of one book
    assert task.score_continuations(samples[0], [Likelihood(-6.0, 4, False)]) == {"nll": 1.5}
    assert build("booksum", data="fixture", chat=True).samples(words)[0].continuations[0][0] != "\n"


def test_the_books_own_text_is_read_in_long_windows(testbed):
    samples = build("book_perplexity", length=16384, windows=4).samples(testbed)
    assert len({sample.axes["book"] for sample in samples}) == 4
    assert all(len(testbed.encode(sample.prompt)) > sample.truncate_to for sample in samples)


def test_braces_in_rows_and_templates_stay():
    assert fill('{"{key}": "{value}"}', key="{value}", value="{x}") == '{"{value}": "{x}"}'
    with pytest.raises(KeyError):
        fill("{nothing}")


def test_diagonals_hold_every_pair_once_and_every_row_in_each_run():
    pairs = list(diagonals((1, 2, 3), (10, 20, 30, 40)))
    assert sorted(pairs) == [(a, b) for a in (1, 2, 3) for b in (10, 20, 30, 40)]
    assert all({a for a, _ in pairs[start : start + 3]} == {1, 2, 3} for start in range(0, 12, 3))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("buzz", {"subset": "xsumm"}, "Did you mean xsum"),
        ("buzz", {"rows": 0}, r"buzz\.rows must be a whole number"),
        ("wikitext", {"style": "stream"}, "wikitext knows no style 'stream'"),
        ("wikitext", {"length": 1}, r"wikitext\.length must be a whole number of 2 or more"),
        ("booksum", {"max_length": 0}, r"booksum\.max_length must be"),
    ],
)
def test_wrong_settings_are_refused_with_a_way_out(name, settings, message):
    with pytest.raises(TaskError, match=message):
        build(name, **settings)


@pytest.mark.parametrize(
    "name", ["gsm8k", "hashevict", "multiple_choice", "buzz", "lost_in_the_middle", "key_value", "wikitext", "booksum"]
)
def test_revisions_are_content_hashes_of_the_data_that_is_read(name):
    fixture = build(name, data="fixture").revision()
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in fixture.values())
    assert "data" in fixture
