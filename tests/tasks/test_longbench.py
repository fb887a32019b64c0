"""LongBench: official prompts, lengths, chat, stops and scores, and data that say what is wrong with them."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
import yaml

import tasks
from tasks import TaskError, build
from tasks.base import WHOLE_CONTEXT
from tasks.data import CATALOGUE
from tasks.data.tables import table
from tasks.longbench import BUCKETS, SCORED_BY, LongBench, in_turn, numbered
from tasks.longbench_subsets import CHINESE, ENGLISH, SUBSETS, by_category, overall

HERE = Path(__file__).parent
EXTENDED = [name for name in SUBSETS if SUBSETS[name].has_extended]


def fixture_samples(name, words, **settings):
    return build("longbench", subset=name, data="fixture", **settings).samples(words)


def one_row(tmp_path, name, **changes):
    """A folder with one row of ``name``, changed."""
    row = {**table(f"longbench/{name}", "fixture").rows[0], **changes}
    (tmp_path / f"{name}.jsonl").write_text(json.dumps({k: v for k, v in row.items() if v != "DELETED"}) + "\n")
    return str(tmp_path)


def test_gold_answers_score_as_in_the_worked_example(words):
    expected = json.loads((HERE / "micro_examples/longbench_fixture_scores.json").read_text())["gold_as_prediction"]
    scores = {}
    for name in SUBSETS:
        task = build("longbench", subset=name, data="fixture")
        rows = [task.score(sample, sample.references[0]) for sample in task.samples(words)]
        assert all(row.keys() == set(task.metrics) for row in rows)
        scores[name] = round(100 * sum(row[task.metrics[0]] for row in rows) / len(rows), 2)
    assert scores == expected


@pytest.mark.parametrize("name", SUBSETS)
def test_nonsense_scores_nothing(name, words):
    for sample in fixture_samples(name, words):
        assert build("longbench", subset=name).score(sample, "zzz ###") == {
            SUBSETS[name].metric: pytest.approx(0, abs=0.1)
        }
        assert build("longbench", subset=name).score(sample, "") == {SUBSETS[name].metric: 0.0}


def test_the_table_is_that_of_the_official_repository():
    assert len(SUBSETS) == 21
    assert set(ENGLISH) | set(CHINESE) == set(SUBSETS)
    assert {name for name in SUBSETS if SUBSETS[name].language == "zh"} == set(CHINESE)
    assert {name for name in SUBSETS if not SUBSETS[name].chat} == {
        "trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"
    }  # fmt: skip
    assert [name for name in SUBSETS if SUBSETS[name].stop_at_newline] == ["samsum"]
    assert len(EXTENDED) == 13
    assert sum(kind.rows for kind in SUBSETS.values()) == 4750
    lengths = {64: 6, 128: 4, 32: 7, 512: 4}
    assert {n: sum(kind.max_new_tokens == n for kind in SUBSETS.values()) for n in lengths} == lengths
    assert {kind.metric for kind in SUBSETS.values()} == SCORED_BY.keys()


@pytest.mark.parametrize(
    ("name", "oddity"),
    [
        ("narrativeqa", "Answer the question asconcisely as you can"),
        ("qasper", "\n\n Answer the question based on the above article"),
        ("multi_news", "all news. \n"),
        ("passage_count", "The final answer is: "),
        ("passage_retrieval_en", "The answer is: "),
        ("lcc", "the code given below. \n"),
        ("repobench-p", "Next line of code:\n"),
    ],
)
def test_oddities_of_the_official_prompts_are_kept(name, oddity, words):
    assert all(oddity in sample.prompt for sample in fixture_samples(name, words))


def test_prompts_are_those_of_version_1():
    # When this fails the prompts have changed: raise LongBench.version with the new sum.
    sums = hashlib.sha256("\0".join(kind.prompt for kind in SUBSETS.values()).encode()).hexdigest()
    assert (LongBench.version, sums[:16]) == ("1", "b4af880e8a882dfd")


@pytest.mark.parametrize("name", SUBSETS)
def test_the_prompt_is_the_template_with_the_row_in_it(name, words):
    template = SUBSETS[name].prompt
    for sample, row in zip(fixture_samples(name, words), table(f"longbench/{name}", "fixture").rows, strict=True):
        before, after = template.replace("{input}", row["input"]).split("{context}")
        assert sample.prompt == before + row["context"] + after


def test_braces_in_a_row_stay_as_they_are(tmp_path, words):
    folder = one_row(tmp_path, "lcc", context='int main() { printf("{input}"); }\n')
    (sample,) = build("longbench", subset="lcc", data=folder).samples(words)
    assert 'int main() { printf("{input}"); }\nNext line of code:\n' in sample.prompt


@pytest.mark.parametrize("name", SUBSETS)
def test_samples_ask_for_what_the_official_code_does(name, words):
    kind = SUBSETS[name]
    for sample in fixture_samples(name, words, max_length=31500):
        assert (sample.max_new_tokens, sample.chat, sample.longest) == (kind.max_new_tokens, kind.chat, 31500)
        samsum = name == "samsum"
        assert (sample.min_new_tokens, sample.stop_tokens) == ((1, ("\n",)) if samsum else (0, ()))
        assert (sample.system, sample.answer_prefix, sample.truncate_to, sample.until) == ("", "", None, ())
        assert sample.axes["length"] > 0
        assert sample.axes.keys() == {"length", "language"}


def test_only_the_context_cuts_and_the_chat_choice_is_official_unless_said_otherwise(words):
    (sample,) = fixture_samples("lcc", words)
    assert (sample.longest, sample.chat) == (WHOLE_CONTEXT, False)
    assert fixture_samples("lcc", words, chat=True)[0].chat
    assert not fixture_samples("qasper", words, chat=False)[0].chat


def test_a_shorter_answer_changes_nothing_else(words):
    official, shorter = fixture_samples("multi_news", words), fixture_samples("multi_news", words, max_new_tokens=128)
    assert {sample.max_new_tokens for sample in official} == {512}
    assert [dataclasses.replace(sample, max_new_tokens=128) for sample in official] == shorter


def test_questions_on_one_context_are_one_document(tmp_path, words):
    rows = table("longbench/qasper", "fixture").rows
    rows = [rows[0], {**rows[0], "_id": "other", "input": "Why?"}, rows[1]]
    (tmp_path / "qasper.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples = build("longbench", subset="qasper", data=str(tmp_path)).samples(words)
    assert [sample.id for sample in samples] == [row["_id"] for row in rows]
    assert samples[0].document == samples[1].document != samples[2].document


def test_ids_are_unique_whatever_the_file_says():
    assert numbered(["a", "b", "a", "a"]) == ["a", "b", "a-2", "a-3"]


def test_the_best_answer_counts_and_few_shot_subsets_are_scored_by_their_first_line(words):
    task, (sample,) = build("longbench", subset="triviaqa"), fixture_samples("triviaqa", words)
    gold = sample.references[0]
    assert task.score(sample, f"\n\n{gold}\nQuestion: What else?") == {"qa_f1": 1.0}
    several = dataclasses.replace(sample, references=("nothing of this", gold))
    assert task.score(several, gold) == {"qa_f1": 1.0}
    question, (asked, *_) = build("longbench", subset="hotpotqa"), fixture_samples("hotpotqa", words)
    assert question.score(asked, f"{asked.references[0]}\nmore words here")["qa_f1"] < 1.0


@pytest.mark.parametrize("name", EXTENDED)
def test_longbench_e_has_buckets_and_a_name_of_its_own(name, words):
    task = build("longbench", subset=name, extended=True, data="fixture")
    assert task.label == f"longbench/{name}_e"
    assert all(sample.axes["bucket"] == "0-4k" for sample in task.samples(words))
    assert build("longbench", subset=name).label == f"longbench/{name}"


def test_every_prefix_of_longbench_e_sees_all_buckets(tmp_path, words):
    lengths = [3999, 100, 4000, 7999, 8000, 9000, 20000, 50]
    row = table("longbench/qasper_e", "fixture").rows[0]
    text = "".join(json.dumps({**row, "length": length, "_id": str(length)}) + "\n" for length in lengths)
    (tmp_path / "qasper_e.jsonl").write_text(text)
    samples = build("longbench", subset="qasper", extended=True, data=str(tmp_path)).samples(words)
    assert [sample.axes["length"] for sample in samples] == [3999, 4000, 8000, 100, 7999, 9000, 50, 20000]
    assert [sample.axes["bucket"] for sample in samples[:3]] == list(BUCKETS)
    assert in_turn(samples[::-1])[0].axes["length"] == 50


def test_revisions_change_with_the_rows_the_prompt_and_nothing_else(tmp_path):
    first = build("longbench", subset="qasper", data="fixture").revision()
    assert first == build("longbench", subset="qasper", data="fixture", max_length=3500).revision()
    assert first.keys() == {"data", "prompts", "metrics"}
    other_rows = build("longbench", subset="qasper", data=one_row(tmp_path, "qasper", input="Why?")).revision()
    assert other_rows["data"] != first["data"]
    assert (other_rows["prompts"], other_rows["metrics"]) == (first["prompts"], first["metrics"])
    summary = build("longbench", subset="gov_report", data="fixture").revision()
    assert summary["prompts"] != first["prompts"]
    assert summary["metrics"] != first["metrics"]


def test_missing_data_are_named_with_the_command(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for ask in (lambda task: task.revision(), lambda task: task.samples(words)):
        with pytest.raises(TaskError, match=r"longbench is not .*fetch_data longbench --from hub'"):
            ask(build("longbench", subset="qasper", extended=True))


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("qasper", {"language": "zh"}, r"row 1 is in the wrong language: 'zh', where qasper is in 'en'"),
        ("vcsum", {"language": "en"}, r"row 1 is in the wrong language: 'en', where vcsum is in 'zh'"),
        ("lcc", {"language": "zh"}, r"row 1 is in the wrong language: 'zh', where lcc is in 'en'"),
        ("qasper", {"dataset": "hotpotqa"}, r"row 1 is a row of 'hotpotqa', not of 'qasper'"),
        ("qasper", {"context": ""}, r"row 1: column 'context' must be a text that is not empty"),
        ("qasper", {"context": "DELETED"}, r"row 1 has no column 'context'"),
        ("qasper", {"answers": []}, r"row 1: column 'answers' must be a list of texts"),
        ("qasper", {"answer_prefix": "Answer:"}, r"row 1 has a column 'answer_prefix'.*--from hub"),
        ("trec", {"all_classes": None}, r"row 1 names no classes in 'all_classes', which trec is scored by"),
    ],
)
def test_corrupt_rows_are_named_by_file_and_row(name, changes, sentence, tmp_path, words):
    folder = one_row(tmp_path, name, **changes)
    with pytest.raises(TaskError, match=rf"{name}\.jsonl, {sentence}"):
        build("longbench", subset=name, data=folder).samples(words)


@pytest.mark.parametrize("language", ["python", "java", "csharp", "en"])
def test_code_may_be_in_any_programming_language(language, tmp_path, words):
    folder = one_row(tmp_path, "lcc", language=language)
    assert build("longbench", subset="lcc", data=folder).samples(words)[0].axes["language"] == language


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"subset": "qaspr"}, r"LongBench has no subset 'qaspr'\. Did you mean qasper\?"),
        ({"subset": ["qasper"]}, r"LongBench has no subset '\['qasper'\]'"),
        ({"subset": "musique", "extended": True}, r"LongBench-E has no subset 'musique', only qasper, "),
        ({"extended": "yes"}, r"longbench\.extended must be true or false; got 'yes'"),
        ({"chat": "yes"}, r"longbench\.chat must be null, true or false; got 'yes'"),
        ({"max_length": 1}, r"longbench\.max_length must be a whole number of 2 or more; got 1"),
        ({"max_length": "all"}, r"longbench\.max_length must be a whole number"),
        ({"max_new_tokens": 0}, r"longbench\.max_new_tokens must be a whole number of 1 or more; got 0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises(TaskError, match=sentence):
        build("longbench", **settings)


# Full-cache rows of Llama-3.1-8B-Instruct as printed (tasks.md 2.5), in the order of the table, and their averages.
KVEC = [30.22, 45.37, 55.80, 55.97, 45.00, 31.26, 35.12, 25.38, 27.20, 72.50, 91.64, 43.57, 9.41, 99.50, 62.88, 56.43]
KEYDIFF = [
    30.05,
    47.00,
    56.12,
    57.33,
    47.81,
    32.25,
    34.86,
    25.32,
    27.02,
    73.00,
    91.61,
    43.37,
    8.33,
    99.50,
    61.66,
    51.94,
]


@pytest.mark.parametrize("printed", [KVEC, KEYDIFF])
def test_the_average_is_the_one_that_papers_print(printed):
    assert round(overall(dict(zip(ENGLISH, printed, strict=True))), 2) == 49.20


def test_categories_are_means_over_their_english_subsets():
    means = by_category(dict(zip(ENGLISH, KVEC, strict=True)) | {"dureader": 0.0})
    assert list(means) == ["single_doc_qa", "multi_doc_qa", "summarization", "few_shot", "synthetic", "code"]
    assert means["single_doc_qa"] == pytest.approx((30.22 + 45.37 + 55.80) / 3)
    assert means["code"] == pytest.approx((62.88 + 56.43) / 2)


def test_an_average_of_some_subsets_is_refused():
    with pytest.raises(TaskError, match=r"needs lcc, repobench-p too"):
        overall(dict(zip(ENGLISH[:14], KVEC, strict=False)))


@pytest.mark.parametrize(
    "name", ["longbench", *(f"longbench_e/{n}" for n in EXTENDED), *(f"longbench/{n}" for n in SUBSETS)]
)
def test_there_is_a_settings_file_for_every_subset(name):
    settings = yaml.safe_load((HERE.parents[1] / f"conf/task/{name}.yaml").read_text())
    folder, _, subset = name.partition("/")
    if subset:
        assert settings["subset"] == subset
        assert settings.get("extended", False) == (folder == "longbench_e")
    assert tasks.task_class("longbench") is LongBench


def test_every_subset_is_a_data_set_and_none_is_forgotten():
    labels = {build("longbench", subset=name).label for name in SUBSETS}
    labels |= {build("longbench", subset=name, extended=True).label for name in EXTENDED}
    assert labels == {name for name in CATALOGUE if name.startswith("longbench/")}
    assert all(CATALOGUE[f"longbench/{name}"].rows == kind.rows for name, kind in SUBSETS.items())
