"""Scores of short answers: exact match, string match, numbers, needles, Self-BLEU."""

import json
import re
from pathlib import Path

import pytest

from tasks import TaskError
from tasks.base import import_package
from tasks.metrics.answers import (
    best_subspan_em,
    exact_match,
    gsm8k_flexible,
    last_number,
    postprocessed,
    string_match_all,
    string_match_part,
)
from tasks.metrics.overlap import contains_phrase, rouge1_f, rouge1_recall, self_bleu, word_overlap

FOLDER = Path(__file__).parents[1] / "micro_examples"
MIDDLE = json.loads((FOLDER / "lost_in_the_middle.json").read_text(encoding="utf-8"))
RULER = json.loads((FOLDER / "ruler.json").read_text())
NEEDLE = json.loads((FOLDER / "needle_in_a_haystack.json").read_text())
GSM8K = json.loads((FOLDER / "gsm8k.json").read_text())["cases"]
SELF_BLEU = json.loads((FOLDER / "self_bleu.json").read_text())["cases"]


@pytest.mark.parametrize("example", MIDDLE["best_subspan_em"], ids=str)
def test_worked_examples_of_best_subspan_em(example):
    assert best_subspan_em(example["model_answer"], example["answers"]) == example["score"]


@pytest.mark.parametrize("example", MIDDLE["kv_retrieval_accuracy"], ids=str)
def test_worked_examples_of_key_value_retrieval(example):
    assert string_match_all(example["model_answer"], [example["value"]]) == example["score"]


def test_exact_match_forgives_case_and_blanks_around_it_only():
    assert exact_match(" May 18, 2018\n", ["may 18, 2018"]) == 1.0
    assert exact_match("Rome", ["Paris", "ROME "]) == 1.0
    assert exact_match("May 18 2018", ["May 18, 2018"]) == 0.0
    assert exact_match("The Netherlands", ["Netherlands"]) == 0.0
    assert exact_match("in Rome", ["Rome"]) == 0.0


@pytest.mark.parametrize(
    ("kind", "score"), [("string_match_all", string_match_all), ("string_match_part", string_match_part)]
)
def test_worked_examples_of_string_match(kind, score):
    for example in RULER[kind]:
        scores = [score(*pair) for pair in zip(example["predictions"], example["references"], strict=True)]
        assert round(100 * sum(scores) / len(scores), 2) == example["score"]


@pytest.mark.parametrize("example", RULER["postprocess_pred"], ids=str)
def test_worked_examples_of_post_processing(example):
    assert postprocessed(example["text"]) == example["result"]


@pytest.mark.parametrize("case", GSM8K, ids=str)
def test_worked_examples_of_gsm8k(case):
    assert gsm8k_flexible(case["completion"], case["gold"]) == case["lm_eval_flexible_correct"]
    assert (last_number(case["completion"]) or "[invalid]") == case["lm_eval_flexible_extract"]


def test_the_gold_of_gsm8k_may_be_the_whole_solution():
    solution = "She sells 3*360=<<3*360=1080>>1080 eggs.\n#### 1,080"
    assert gsm8k_flexible("1,080 eggs", solution) == 1.0
    assert gsm8k_flexible("360", solution) == 0.0


def test_gsm8k_is_flexible_as_lm_eval_is(english):
    extraction = pytest.importorskip("lm_eval.filters.extraction")
    metrics = pytest.importorskip("lm_eval.api.metrics")
    pick = extraction.RegexFilter(regex_pattern=r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
    ignored = [",", r"\$", "(?s).*#### ", r"\.$"]
    numbers = ["18", "1,080", "$7.", "3.5", "17", "-4", "#### 17", "$3,500"]
    for index, (text, _) in enumerate(english):
        said = re.sub(r"\bx\b", numbers[index % len(numbers)], text) + numbers[index % 5] * (index % 3 == 0)
        for gold in numbers:
            [[extracted]] = pick.apply([[said]], [{}])
            scored = metrics.exact_match_hf_evaluate(
                predictions=[extracted], references=[gold], regexes_to_ignore=ignored, ignore_case=True
            )
            assert gsm8k_flexible(said, gold) == scored["exact_match"]


@pytest.mark.parametrize("case", NEEDLE["cases"], ids=str)
def test_worked_examples_of_needle_scores(case):
    meta, response = NEEDLE["_meta"], case["response"]
    recall = rouge1_recall(response, meta["reference_for_recall"])
    assert 100 * recall == pytest.approx(case["retrieval_head_rouge1_recall_x100"], abs=1e-9)
    f = rouge1_f(response, meta["reference_for_f"])
    assert 10 * f == pytest.approx(case["pyramidkv_rouge1_f_x10"], abs=1e-9)
    overlap = word_overlap(response, meta["words_for_overlap"])
    assert overlap == pytest.approx(case["headkv_unique_word_overlap"], abs=1e-9)


def test_a_needle_is_contained_in_any_case():
    assert contains_phrase("You should EAT a Sandwich.", " eat a sandwich\n") == 1.0
    assert contains_phrase("You should eat a  sandwich.", "eat a sandwich") == 0.0


@pytest.mark.parametrize("case", SELF_BLEU, ids=lambda case: case["note"])
def test_worked_examples_of_self_bleu(case):
    assert self_bleu(case["text"]) == pytest.approx(case["buzz_self_bleu3"], abs=1e-9)
    assert self_bleu(case["text"], drop_empty=True) == pytest.approx(
        case["self_bleu3_without_empty_sentences"], abs=1e-9
    )


def test_self_bleu_is_nltks_bleu_on_random_texts(english):
    bleu = pytest.importorskip("nltk.translate.bleu_score")

    def literal(sentences):
        total = 0.0
        for index in range(len(sentences)):
            others = [sentences[other].split() for other in range(len(sentences)) if other != index]
            total += bleu.sentence_bleu(
                others,
                sentences[index].split(),
                weights=(1 / 3, 1 / 3, 1 / 3),
                smoothing_function=bleu.SmoothingFunction().method1,
            )
        return total / len(sentences)

    values = set()
    for pair in english:
        text = ". ".join(pair)
        kept = [piece.strip() for piece in text.split(".")]
        assert self_bleu(text) == pytest.approx(literal(kept), abs=1e-12)
        full = [piece for piece in kept if piece]
        if len(full) > 1:
            assert self_bleu(text, drop_empty=True) == pytest.approx(literal(full), abs=1e-12)
        values.add(self_bleu(text))
    assert len(values) > 50


def test_a_lone_sentence_repeats_nothing():
    assert self_bleu("") == self_bleu("one sentence") == self_bleu("one sentence.") == 0.0
    assert self_bleu("one sentence.", drop_empty=True) == 0.0


def test_a_missing_package_is_named_with_the_command():
    with pytest.raises(TaskError, match=r"A score needs the package no-such-thing.*pip install no-such-thing"):
        import_package("no_such_thing", "no-such-thing", "A score")
