"""The two ROUGEs against their packages, and the recursion limit that is part of LongBench's published numbers."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tasks import TaskError
from tasks.metrics.overlap import STEPS, STEPS_ZH, rouge_1, rouge_2, rouge_l, rouge_l_zh, rouge_scores

FOLDER = Path(__file__).parents[1] / "micro_examples"
VARIANTS = json.loads((FOLDER / "rouge_variants.json").read_text())["cases"]
OURS = {"rouge-1": rouge_1, "rouge-2": rouge_2, "rouge-l": rouge_l}

# LongBench's eval.py reaches the package from the module through scorer and rouge_score, for Chinese through one more.
OFFICIAL = """
import json, sys
from rouge import Rouge
import jieba

def rouge_score(prediction, ground_truth):
    rouge = Rouge()
    try:
        return rouge.get_scores([prediction], [ground_truth], avg=True)["rouge-l"]["f"]
    except RecursionError:
        return 0.0

def rouge_zh_score(prediction, ground_truth):
    return rouge_score(" ".join(jieba.cut(prediction, cut_all=False)), " ".join(jieba.cut(ground_truth, cut_all=False)))

def scorer(metric, prediction, ground_truth):
    score = metric(prediction, ground_truth)
    return score

scores = {}
pairs = json.load(sys.stdin)
for name, metric in (("rouge_l", rouge_score), ("rouge_l_zh", rouge_zh_score)):
    scores[name] = []
    for prediction, ground_truth in pairs:
        scores[name].append(scorer(metric, prediction, ground_truth))
print(json.dumps(scores))
"""


def official(metric, said, meant):
    """The package's F; 0 where it raises, as in LongBench."""
    rouge = pytest.importorskip("rouge")
    try:
        return rouge.Rouge(metrics=[metric]).get_scores([said], [meant], avg=True)[metric]["f"]
    except ValueError:
        return 0.0


@pytest.mark.parametrize("metric", OURS)
def test_it_is_the_package_on_random_texts(metric, english):
    for said, meant in english:
        assert OURS[metric](said, meant) == official(metric, said, meant)
    assert len({OURS[metric](*pair) for pair in english}) > 30


def test_chinese_is_the_package_on_words_of_jieba(chinese):
    jieba = pytest.importorskip("jieba")
    for said, meant in chinese:
        cut = [" ".join(jieba.cut(text, cut_all=False)) for text in (said, meant)]
        assert rouge_l_zh(said, meant) == official("rouge-l", *cut)
    assert len({rouge_l_zh(*pair) for pair in chinese}) > 50


def test_ties_between_common_subsequences_fall_as_in_the_package():
    rng = random.Random(4)
    for _ in range(200):
        said, meant = (" ".join(rng.choices("abcd", k=rng.randrange(1, 12))) for _ in range(2))
        said, meant = f"{said}. {meant[::-1]}", f"{meant}.{said[2:]}"
        assert rouge_l(said, meant) == official("rouge-l", said, meant)


def near_the_limit():
    """Pairs whose longest walk takes 985 to 995 steps, in every direction, all with something in common."""
    for steps in range(985, 996):
        many = " ".join(f"w{i}" for i in range(steps - 1))
        fewer = " ".join(f"w{i}" for i in range(steps - 11))
        ten = " ".join(f"a{i}" for i in range(10))
        yield f"a {many}", "a"  # left along the prediction, then one word in common
        yield "a", f"a {many}"  # up along the reference
        yield f"{ten} {fewer} z", ten  # ten in common at the end of the walk
        yield f"{many} z. a", "a. b"  # the first sentence meets nothing, the second a word


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older Pythons leave room for one step less")
def test_it_is_zero_exactly_where_the_package_exceeds_pythons_recursion_limit():
    for needed in ("rouge", "jieba"):
        pytest.importorskip(needed)
    pairs = list(near_the_limit())
    done = subprocess.run(
        [sys.executable, "-c", OFFICIAL], input=json.dumps(pairs), capture_output=True, text=True, check=True
    )
    scores = json.loads(done.stdout)
    assert [rouge_l(*pair) for pair in pairs] == scores["rouge_l"]
    assert [rouge_l_zh(*pair) for pair in pairs] == scores["rouge_l_zh"]
    assert {score == 0 for score in scores["rouge_l"]} == {True, False}
    assert (STEPS, STEPS_ZH) == (990, 989)


def test_without_the_limit_it_is_the_value_of_the_definition():
    rouge = pytest.importorskip("rouge")
    pairs = list(near_the_limit())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        expected = [rouge.Rouge().get_scores(*pair)[0]["rouge-l"]["f"] for pair in pairs]
    finally:
        sys.setrecursionlimit(limit)
    assert [rouge_l(*pair, recursion_limit=False) for pair in pairs] == expected
    assert [rouge_l_zh(*pair, recursion_limit=False) for pair in pairs] == expected
    assert min(expected) > 0


def test_texts_without_a_sentence_score_0():
    for empty in ("", "...", "."):
        for score in (rouge_1, rouge_2, rouge_l, rouge_l_zh):
            assert score(empty, "a b") == score("a b", empty) == 0.0


@pytest.mark.parametrize("case", VARIANTS)
def test_worked_examples_of_the_variants(case):
    said, meant = case["prediction"], case["reference"]
    for name, score in OURS.items():
        assert score(said, meant) == pytest.approx(case["rouge_package"][name], abs=1e-9)
    for key, stemmer in (("rouge_score_no_stemmer", False), ("rouge_score_stemmer", True)):
        google = {name: score.f for name, score in rouge_scores(said, meant, stemmer=stemmer).items()}
        assert google == pytest.approx(case[key], abs=1e-9)


@pytest.mark.parametrize("stemmer", [False, True])
def test_googles_rouge_is_the_package_on_random_texts(stemmer, english):
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    kinds = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    package = scorer.RougeScorer(list(kinds), use_stemmer=stemmer)
    for said, meant in english:
        expected = package.score(target=meant, prediction=said)
        ours = rouge_scores(said, meant, kinds, stemmer)
        assert {kind: tuple(score) for kind, score in ours.items()} == {
            kind: (score.precision, score.recall, score.fmeasure) for kind, score in expected.items()
        }


def test_googles_rouge_of_an_unknown_kind_gets_the_nearest():
    with pytest.raises(TaskError, match=r"no ROUGE 'rougel'\. Did you mean rougeL"):
        rouge_scores("a", "a", ("rougel",))
