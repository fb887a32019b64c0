"""The needle of the literature: exact lengths, depths at sentence ends, official wordings and scores."""

import collections
import json
from pathlib import Path

import pytest
from small_tokenizers import three

from tasks import TaskError, build
from tasks.metrics.overlap import rouge1_f, rouge1_recall, word_overlap
from tasks.needle import FULL_STOP, NEEDLE, PHRASE, VARIANTS, WORDS

EXAMPLES = json.loads((Path(__file__).parent / "micro_examples/needle_in_a_haystack.json").read_text())
TOKENIZERS = three()
SMALL = {"lengths": [500, 1200], "depths": [0, 25, 50, 100]}


def samples(tokenizer=TOKENIZERS["testbed"], **settings):
    return build("needle", **{**SMALL, **settings}).samples(tokenizer)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_prompts_have_the_length_to_one_word_for_any_tokenizer(variant, name):
    for sample in samples(TOKENIZERS[name], variant=variant):
        short = sample.axes["length"] - len(TOKENIZERS[name].encode(sample.prompt))
        assert 0 <= short <= 15


def test_with_a_buffer_context_and_needle_have_the_rest_and_the_question_comes_on_top():
    for sample in samples(variant="wu", chat=False, buffer=200):
        context = sample.prompt[: sample.prompt.index("Based on the content of the book")]
        assert 0 <= sample.axes["length"] - 200 - len(TOKENIZERS["testbed"].encode(context)) <= 15


def test_the_needle_stands_once_behind_the_last_full_stop_before_its_depth():
    for sample in samples(variant="wu", chat=False):
        context = sample.prompt[: sample.prompt.index("Based on the content of the book")]
        before, after = context.split(NEEDLE)
        haystack, depth = before + after, sample.axes["depth"]
        if depth == 100:
            assert after == ""
        else:
            target = len(haystack) * depth // 100
            stops = [stop.end() for stop in FULL_STOP.finditer(haystack) if stop.end() <= target]
            assert len(before) == max(stops, default=0)


def test_an_ellipsis_and_a_number_are_no_sentence_ends():
    assert [found.end() for found in FULL_STOP.finditer("It was 3.14... He left. Then")] == [23]


def test_wordings_are_those_of_the_repositories():
    by_name = {variant: samples(variant=variant)[0] for variant in VARIANTS}
    assert by_name["gkamradt"].system.startswith("You are a helpful AI bot")
    assert by_name["gkamradt"].prompt.endswith(
        "\n\nWhat is the best thing to do in San Francisco? Don't give information outside the document or repeat "
        "your findings"
    )
    assert by_name["wu"].prompt.startswith("<book>")
    assert by_name["wu"].prompt.endswith(
        "</book>\nBased on the content of the book, Question: What is the best thing to do in San Francisco?\nAnswer:"
    )
    assert by_name["fu"].prompt.startswith("<|im_start|> This is a very long story book: <book> ")
    assert by_name["fu"].prompt.endswith("Question: The best thing to do in San Francisco is: \nAnswer:")
    assert [by_name[name].max_new_tokens for name in ("gkamradt", "wu", "fu", "grid")] == [300, 50, 30, 50]
    assert [by_name[name].chat for name in ("gkamradt", "wu", "fu", "grid")] == [True, True, False, True]
    assert by_name["gkamradt"].stop_tokens == ()
    assert by_name["wu"].stop_tokens == by_name["fu"].stop_tokens == ("\n",)


@pytest.mark.parametrize("case", EXAMPLES["cases"])
def test_scores_are_those_of_the_worked_examples(case):
    stated = (
        EXAMPLES["_meta"]["reference_for_recall"],
        EXAMPLES["_meta"]["reference_for_f"],
        EXAMPLES["_meta"]["words_for_overlap"],
    )
    assert stated == (PHRASE, NEEDLE, WORDS)
    task, sample = build("needle"), samples()[0]
    score = task.score(sample, case["response"])
    assert score["rouge1_recall"] * 100 == pytest.approx(case["retrieval_head_rouge1_recall_x100"], abs=1e-9)
    assert score["rouge1_f"] * 10 == pytest.approx(case["pyramidkv_rouge1_f_x10"], abs=1e-9)
    assert score["word_overlap"] == pytest.approx(case["headkv_unique_word_overlap"], abs=1e-9)
    assert score["contains"] == float(
        "eat a sandwich and sit in dolores park on a sunny day" in case["response"].lower()
    )
    assert score["rouge1_recall"] == rouge1_recall(case["response"], PHRASE)
    assert score["rouge1_f"] == rouge1_f(case["response"], NEEDLE)
    assert score["word_overlap"] == word_overlap(case["response"], WORDS)


def test_the_headline_metric_follows_the_variant():
    assert {name: build("needle", variant=name).metrics[0] for name in VARIANTS} == {
        "gkamradt": "contains", "wu": "rouge1_recall", "fu": "word_overlap", "grid": "contains"
    }  # fmt: skip
    assert all(len(build("needle", variant=name).metrics) == 4 for name in VARIANTS)


def test_every_prefix_covers_lengths_and_depths():
    found = samples(repeats=2)
    assert len({sample.id for sample in found}) == len(found) == 16
    for size in range(2, len(found) + 1):
        lengths = collections.Counter(sample.axes["length"] for sample in found[:size])
        depths = collections.Counter(sample.axes["depth"] for sample in found[:size])
        assert max(lengths.values()) - min(lengths.values()) <= 1
        assert max(depths.values()) <= 2 * -(-size // 4)


def test_samples_are_the_same_again_and_do_not_depend_on_the_other_lengths():
    alone = {sample.id: sample for sample in samples(lengths=[1200])}
    assert alone == {sample.id: sample for sample in samples() if sample.axes["length"] == 1200}
    assert samples(seed=1) != samples()


def test_a_folder_of_texts_is_repeated_until_long_enough(tmp_path):
    (tmp_path / "one.txt").write_text("The first essay is short. It ends here.")
    (tmp_path / "two.txt").write_text("The second essay is short too. It ends there.")
    found = samples(haystack=str(tmp_path))
    assert all("first essay" in sample.prompt and "second essay" in sample.prompt for sample in found)
    assert {sample.document.partition("@")[0] for sample in found} <= {"one.txt", "two.txt"}
    before = build("needle", haystack=str(tmp_path)).revision()["data"]
    (tmp_path / "two.txt").write_text("Another essay.")
    assert build("needle", haystack=str(tmp_path)).revision()["data"] != before


def test_wrong_settings_and_folders_are_refused_with_a_way_out(tmp_path):
    with pytest.raises(TaskError, match=r"needle knows no variant 'wuu'\. Did you mean wu"):
        build("needle", variant="wuu")
    with pytest.raises(TaskError, match=r"no folder with text files \(\*\.txt\): give one, or novels"):
        samples(haystack=str(tmp_path))
    (tmp_path / "bad.txt").write_bytes(b"ok \xff")
    with pytest.raises(TaskError, match=r"bad\.txt is not UTF-8 \(byte 3\)"):
        samples(haystack=str(tmp_path))
    with pytest.raises(TaskError, match=r"needle\.lengths has 40, which is too short"):
        samples(lengths=[40])
    with pytest.raises(TaskError, match=r"needle\.depths must be a whole number from 0 to 100"):
        build("needle", depths=[120])
