"""LongBench's metrics: the worked examples of the official code, and its formulas written out once more, literally."""

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tasks import TaskError
from tasks.longbench import BUCKETS
from tasks.metrics.answers import normalised
from tasks.metrics.longbench_scores import (
    classification,
    code_similarity,
    count,
    item_score,
    qa_f1,
    qa_f1_zh,
    retrieval,
    retrieval_zh,
)
from tasks.metrics.overlap import rouge_1, rouge_2, rouge_l, rouge_l_zh

FOLDER = Path(__file__).parents[1] / "micro_examples"
EXAMPLES = json.loads((FOLDER / "longbench_metrics.json").read_text(encoding="utf-8"))
SCORES = {
    "code_sim_score": code_similarity,
    "qa_f1_score": qa_f1,
    "rouge_score": rouge_l,
    "retrieval_score": retrieval,
    "retrieval_zh_score": retrieval_zh,
    "count_score": count,
    "qa_f1_zh_score": qa_f1_zh,
    "rouge_zh_score": rouge_l_zh,
}
CLASSES = ["number", "Other number", "Other number code", "Date", "City", "Date of birth", "Other", "City"]


def prediction(example):
    return example["prediction"] if "prediction" in example else " ".join(f"h{i}" for i in range(1100))


def task_score(scores: Sequence[float]) -> float:
    """100 times the mean, rounded to 2 decimals: the official ``scorer``."""
    total = 0.0  # one after the other, as the official loop; sum() adds more exactly since Python 3.12
    for score in scores:
        total += score
    return round(100 * total / len(scores), 2)


def bucket_scores(scores: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    """`task_score` of the rows below 4000, below 8000 and from 8000 on: LongBench-E's ``scorer_e``.

    ``lengths`` are the rows' own ``length``, in words. A bucket without rows is NaN. Mean and rounding are NumPy's,
    as there, which now and then differ from `task_score` in the last digit.
    """
    buckets: dict[str, list[float]] = {name: [] for name in BUCKETS}
    for score, length in zip(scores, lengths, strict=True):
        buckets[BUCKETS[(length >= 4000) + (length >= 8000)]].append(score)
    return {name: float(round(100 * np.mean(items), 2)) if items else float("nan") for name, items in buckets.items()}


@pytest.mark.parametrize(
    ("metric", "example"), [(metric, example) for metric in SCORES for example in EXAMPLES[metric]], ids=str
)
def test_worked_examples(metric, example):
    assert SCORES[metric](prediction(example), example["reference"]) == pytest.approx(example["score"], abs=1e-9)


def test_the_only_example_without_a_text_is_the_one_of_1100_words():
    rules = [example["prediction_rule"] for example in EXAMPLES["rouge_score"] if "prediction_rule" in example]
    assert rules == ["' '.join(f'h{i}' for i in range(1100))"]


@pytest.mark.parametrize("example", EXAMPLES["classification_score"], ids=str)
def test_worked_examples_of_classification(example):
    score = classification(example["prediction"], example["reference"], example["all_classes"])
    assert score == pytest.approx(example["score"], abs=1e-9)


@pytest.mark.parametrize("example", EXAMPLES["normalize_answer"], ids=str)
def test_worked_examples_of_normalisation(example):
    assert normalised(example["text"]) == example["normalized"]


@pytest.mark.parametrize("example", EXAMPLES["fuzz_ratio"], ids=str)
def test_worked_examples_of_the_ratio(example):
    assert code_similarity(example["a"], example["b"]) == example["ratio"] / 100


@pytest.mark.parametrize("example", EXAMPLES["rouge_package_1_0_1"], ids=str)
def test_worked_examples_of_the_rouge_package(example):
    for name, score in (("rouge-1", rouge_1), ("rouge-2", rouge_2), ("rouge-l", rouge_l)):
        ours = score(example["prediction"], example["reference"])
        assert ours == pytest.approx(example["scores"][name]["f"], abs=1e-9)


@pytest.mark.parametrize("example", EXAMPLES["scorer"], ids=str)
def test_the_scorer_to_the_last_printed_digit(example):
    classes = example["all_classes"] or ()
    rows = zip(example["predictions"], example["answers"], strict=True)
    assert (
        task_score([item_score(example["dataset"], said, answers, classes) for said, answers in rows])
        == (example["score"])
    )


@pytest.mark.parametrize("example", EXAMPLES["scorer_e"], ids=str)
def test_the_scorer_of_longbench_e_to_the_last_printed_digit(example):
    rows = zip(example["predictions"], example["answers"], strict=True)
    scores = [item_score(example["dataset"], said, answers) for said, answers in rows]
    assert bucket_scores(scores, example["lengths"]) == example["scores"]


def test_an_empty_bucket_is_no_number():
    scores = bucket_scores([0.5], [4000])
    assert scores["4-8k"] == 50.0
    assert scores["0-4k"] != scores["0-4k"]
    assert scores["8k+"] != scores["8k+"]


def test_all_21_tasks_have_a_metric_that_likes_the_gold_answer():
    tasks = json.loads((FOLDER / "longbench_fixture_scores.json").read_text())["gold_as_prediction"]
    gold = {"passage_retrieval_en": "Paragraph 3", "passage_retrieval_zh": "段落3", "passage_count": "3"}
    assert len(tasks) == 21
    for task, score in tasks.items():
        answer = gold.get(task, "Date")
        assert task_score([item_score(task, answer, [answer], ["City", "Date"])]) == score


def test_each_task_has_its_own_metric():
    metrics = {
        qa_f1: "narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique triviaqa",
        qa_f1_zh: "multifieldqa_zh",
        rouge_l: "gov_report qmsum multi_news samsum",
        rouge_l_zh: "dureader vcsum",
        count: "passage_count",
        retrieval: "passage_retrieval_en",
        retrieval_zh: "passage_retrieval_zh",
        code_similarity: "lcc repobench-p",
    }
    said, meant = "the 段落 15 17 会议讨论 了 in a State. of", "Paragraph 17 段落15 会议 in the state"
    assert len({metric(said, meant) for metric in metrics}) >= 6
    for metric, tasks in metrics.items():
        for task in tasks.split():
            assert item_score(task, said, [meant]) == metric(said, meant)
    for task in ("trec", "lsht"):
        assert item_score(task, "City or Date", ["Date"], ["City", "Date"]) == 0.5


def test_an_unknown_task_gets_the_nearest():
    with pytest.raises(TaskError, match=r"no task 'hotpot_qa'\. Did you mean hotpotqa"):
        item_score("hotpot_qa", "a", ["a"])


def test_gold_answers_without_a_paragraph_are_refused():
    with pytest.raises(TaskError, match="names no paragraph"):
        retrieval("3", "Chapter 3")


def literal_normal_form(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def literal_f1(said, meant):
    same = sum((Counter(said) & Counter(meant)).values())
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(said), 1.0 * same / len(meant)
    return (2 * precision * recall) / (precision + recall)


def literal_share(said, number):
    numbers = re.findall(r"\d+", said)
    return 0.0 if len(numbers) == 0 else numbers.count(number) / len(numbers)


def test_question_answering_on_random_texts(english):
    for said, meant in english:
        expected = literal_f1(literal_normal_form(said).split(), literal_normal_form(meant).split())
        assert qa_f1(said, meant) == expected
    assert len({qa_f1(*pair) for pair in english}) > 50


def test_chinese_question_answering_on_random_texts(chinese):
    jieba = pytest.importorskip("jieba")
    more = "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､"
    more += "、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."

    def words(text):
        cut = [
            "".join("".join(c for c in piece.lower() if c not in set(string.punctuation + more)).split())
            for piece in jieba.cut(text, cut_all=False)
        ]
        return [piece for piece in cut if len(piece) > 0]

    for said, meant in chinese:
        assert qa_f1_zh(said, meant) == literal_f1(words(said), words(meant))
    assert len({qa_f1_zh(*pair) for pair in chinese}) > 50
    for mark in (*string.punctuation, *more):
        assert qa_f1_zh(f"好{mark}", "好") == 1.0
    assert qa_f1_zh("好《", "好") == literal_f1(words("好《"), ["好"]) < 1.0  # the one that the official list lacks


def test_counting_and_retrieval_on_random_texts(english, chinese):
    for said, _ in english:
        assert count(said, "17") == literal_share(said, "17")
        assert retrieval(said, "Paragraph 17 of Paragraph 3") == literal_share(said, "17")
    for said, _ in chinese:
        assert retrieval_zh(said, "段落15") == literal_share(said, "15")
    assert len({count(said, "17") for said, _ in english}) > 4


def test_classification_on_random_lists_of_classes(english):
    def literal(said, meant, classes):
        found = [name for name in classes if name in said]
        for name in found:  # deletes from the list that it walks over: the official loop
            if name in meant and name != meant:
                found.remove(name)
        return 1.0 / len(found) if meant in found else 0.0

    seen = set()
    for index in range(len(english)):
        classes = [CLASSES[(index * step + step) % len(CLASSES)] for step in (1, 2, 3, 5, 7)]
        said = " or ".join(CLASSES[(index // 3 + step) % len(CLASSES)] for step in range(1 + index % 4))
        for meant in CLASSES:
            seen.add(literal(said, meant, classes))
            assert classification(said, meant, classes) == literal(said, meant, classes)
    assert {0.0, 1 / 3, 0.5, 1.0} <= seen


@pytest.mark.filterwarnings("ignore:Using slow pure-python SequenceMatcher")
def test_code_similarity_is_fuzzywuzzy_on_difflib(programs):
    fuzz = pytest.importorskip("fuzzywuzzy.fuzz")
    if fuzz.SequenceMatcher.__module__ != "difflib":
        pytest.skip("fuzzywuzzy found python-Levenshtein, which gives other values")
    for said, meant in programs:
        lines = said.lstrip("\n").split("\n")
        line = next((line for line in lines if not ("`" in line or "#" in line or "//" in line)), "")
        assert code_similarity(said, meant) == fuzz.ratio(line, meant) / 100
    long = [(said * 9, meant * 8) for said, meant in programs if "\n" not in said][:20]
    for said, meant in long:  # beyond 200 characters difflib has its own idea of junk
        line = said if not ("`" in said or "#" in said or "//" in said) else ""
        assert code_similarity(said, meant) == fuzz.ratio(line, meant) / 100
    assert len({code_similarity(*pair) for pair in programs}) > 20
