"""RULER: exact lengths for any tokenizer, official wording and scoring, answers that are really there."""

import collections
import json
import re
from pathlib import Path

import pytest
from small_tokenizers import three

from tasks import TaskError, build, ruler_counting
from tasks.metrics.answers import postprocessed, string_match_all, string_match_part
from tasks.ruler_samples import DEPTHS, SUBSETS, RulerSettings, enumerated, in_prose, needle, singular, split_sentences
from tasks.templates import fill

EXAMPLES = json.loads((Path(__file__).parent / "micro_examples/ruler.json").read_text())
TOKENIZERS = three()
# Tokens that the next unit of context would at least have added: a word, the copies of a list word, a line.
UNIT = {"niah": 40, "variable_tracking": 40, "common_words_extraction": 40, "freq_words_extraction": 40}
LINES = {"niah_multikey_3": 150, "niah_single_1": 60, "niah_multikey_2": 60, "vt": 60}


def samples(subset, tokenizer, **settings):
    return build("ruler", subset=subset, **{"repeats": 3, "lengths": [3000], **settings}).samples(tokenizer)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("subset", SUBSETS)
def test_prompt_answer_start_and_generated_tokens_have_the_length_to_one_unit(subset, name):
    tokenizer = TOKENIZERS[name]
    for sample in samples(subset, tokenizer, lengths=[2500, 6000]):
        tokens = len(tokenizer.encode(sample.prompt + sample.answer_prefix)) + sample.max_new_tokens
        short = sample.axes["length"] - tokens
        assert 0 <= short <= LINES.get(subset, UNIT[RulerSettings.of(subset).kind])


def test_the_eleven_generated_subsets_have_ruler_s_parameters():
    assert len(SUBSETS) == 11
    assert RulerSettings.of("niah_multikey_1").arguments["num_needle_k"] == 4
    assert {RulerSettings.of(name).max_new_tokens for name in SUBSETS if name.startswith("niah")} == {128}
    assert [RulerSettings.of(name).max_new_tokens for name in ("vt", "cwe", "fwe")] == [30, 120, 50]
    assert len(DEPTHS) == 40
    assert (DEPTHS[0], DEPTHS[1], DEPTHS[-1]) == (0, 3, 100)


@pytest.mark.parametrize("example", EXAMPLES["niah_prompt"])
def test_the_needle_question_is_worded_as_in_the_worked_example(example):
    settings = RulerSettings.of("niah_multikey_1")
    alone = example["num_needle_q"] * example["num_needle_v"] == 1
    kind = example["type_needle_v"].removesuffix("s") if alone else example["type_needle_v"]
    template = settings.template + settings.answer_prefix
    template = singular(template) if alone else template
    assert fill(template, type_needle_v=kind, context=example["context"], query=example["query"]) == example["text"]


def test_needles_and_lists_of_keys_are_worded_as_in_the_worked_example():
    (example,) = EXAMPLES["needle"]
    assert needle(example["type_needle_v"], example["key"], example["value"]) == example["text"]
    assert enumerated(["a-b", "c-d", "e-f", "g-h"]) == "a-b, c-d, e-f, and g-h"
    assert enumerated(["a-b"]) == "a-b"


def test_the_common_words_prompt_is_assembled_as_in_the_worked_example():
    (example,) = EXAMPLES["cwe_prompt"]
    settings = RulerSettings.of("cwe")
    shown = fill(settings.template, context=example["fewshot_context"]) + settings.answer_prefix
    asked = fill(settings.template, context=example["context"]) + settings.answer_prefix
    assert shown + ruler_counting.answered(example["fewshot_answer"]) + asked == example["text"]


def test_scores_are_those_of_the_official_code():
    for metric, function in (("string_match_all", string_match_all), ("string_match_part", string_match_part)):
        for case in EXAMPLES[metric]:
            pairs = zip(case["predictions"], case["references"], strict=True)
            scores = [function(prediction, references) for prediction, references in pairs]
            assert round(sum(scores) / len(scores) * 100, 2) == case["score"]
    for case in EXAMPLES["postprocess_pred"]:
        assert postprocessed(case["text"]) == case["result"]


@pytest.mark.parametrize("subset", SUBSETS)
def test_the_references_score_one_and_nothing_scores_zero(subset):
    task = build("ruler", subset=subset, repeats=2, lengths=[2000])
    for sample in task.samples(TOKENIZERS["whole words"]):
        assert task.score(sample, " " + ", ".join(sample.references).upper()) == {"string_match": 1.0}
        assert task.score(sample, "") == {"string_match": 0.0}


@pytest.mark.parametrize("subset", [name for name in SUBSETS if name.startswith("niah")])
def test_every_asked_needle_is_in_the_prompt_once_and_no_other_needle_shares_its_key(subset):
    arguments = RulerSettings.of(subset).arguments
    for sample in samples(subset, TOKENIZERS["testbed"]):
        found = re.findall(r"One of the special magic (?:numbers|uuids) for (\S+) is: ([\w-]+)\.", sample.prompt)
        values = {value: key for key, value in found}
        keys = {values[reference] for reference in sample.references}
        assert len(sample.references) == arguments["num_needle_q"] * arguments["num_needle_v"]
        assert sum(key in keys for key, _ in found) == len(sample.references)
        question = sample.prompt[sample.prompt.rindex("\nWhat ") :]
        assert all(key in question and key in sample.answer_prefix for key in keys)
        if arguments["type_haystack"] != "needle":
            assert len(found) == max(arguments["num_needle_k"], arguments["num_needle_q"]) * arguments["num_needle_v"]


def test_a_chain_can_be_followed_from_the_value_to_all_references():
    for sample in samples("vt", TOKENIZERS["testbed"]):
        value = re.findall(r"assigned the value (\d+)", sample.prompt)[-1]
        holding = set()
        for name, source in re.findall(r"VAR (\w+) = (?:VAR )?(\w+)", sample.prompt):
            if source == value or source in holding:
                holding.add(name)
        assert holding == set(sample.references)
        assert len(holding) == 5


def test_the_common_words_are_the_ten_most_repeated_ones():
    for length, often, seldom in ((3000, 6, 1), (6500, 30, 3)):
        for sample in samples("cwe", TOKENIZERS["testbed"], lengths=[length]):
            asked = sample.prompt[sample.prompt.rindex("Below is a numbered list") :]
            counts = collections.Counter(re.findall(r"\d+\. (.+?)(?= \d+\. |\n)", asked))
            assert {word for word, count in counts.items() if count == often} == set(sample.references)
            assert set(counts.values()) == {often, seldom}


def test_the_frequent_words_are_the_three_most_frequent_after_the_dots():
    for sample in samples("fwe", TOKENIZERS["testbed"]):
        counts = collections.Counter(
            re.findall(r"\.\.\.|\b[a-z]{6}\b", sample.prompt.split("coded words. ")[1].split("\n")[0])
        )
        ranked = counts.most_common(5)
        assert [word for word, _ in ranked[:4]] == ["...", *sample.references]
        assert ranked[3][1] > ranked[4][1]


def test_samples_are_the_same_again_and_do_not_depend_on_the_other_lengths():
    for subset in SUBSETS:
        alone = samples(subset, TOKENIZERS["testbed"])
        among = samples(subset, TOKENIZERS["testbed"], lengths=[2000, 3000])
        assert [sample for sample in among if sample.axes["length"] == 3000] == alone
        assert len({sample.prompt for sample in alone}) == len(alone)
        assert samples(subset, TOKENIZERS["testbed"], seed=43) != alone


def test_every_prefix_covers_the_lengths():
    lengths = [sample.axes["length"] for sample in samples("vt", TOKENIZERS["testbed"], lengths=[1000, 2000])]
    assert lengths == [1000, 2000] * 3


def test_the_start_of_the_answer_can_end_the_prompt():
    plain = samples("cwe", TOKENIZERS["testbed"])[0]
    moved = samples("cwe", TOKENIZERS["testbed"], prefix_in_prompt=True)[0]
    assert moved.answer_prefix == ""
    assert moved.prompt == plain.prompt + plain.answer_prefix


def test_needles_stand_between_sentences_at_their_depth():
    text = " ".join(f"Sentence {number} ends here." for number in range(40))
    assert len(split_sentences(text)) == 40
    context = in_prose(["FIRST.", "LAST."], [50, 100], text.split(), 160)
    assert context.startswith("Sentence 0 ")
    assert "Sentence 19 ends here. FIRST. Sentence 20" in context
    assert context.endswith("Sentence 39 ends here. LAST.")


def test_the_word_lists_are_wonderwords():
    assert len(ruler_counting.word_pool()) == 8166


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subset": "niah_multikey_4"}, r"RULER has no subset 'niah_multikey_4'\. Did you mean niah_multikey_"),
        ({"subset": "qa_1"}, "RULER has no subset 'qa_1'"),
        ({"lengths": 4096}, "ruler.lengths must be a list"),
        ({"repeats": 0}, "ruler.repeats must be a whole number of 1 or more; got 0"),
        ({"chat": "maybe"}, "ruler.chat must be true or false"),
    ],
)
def test_wrong_settings_are_refused_with_a_way_out(settings, message):
    with pytest.raises(TaskError, match=message):
        build("ruler", **settings)


def test_a_length_without_room_says_how_much_is_needed():
    with pytest.raises(TaskError, match=r"ruler\.lengths has 200, which is too short: .* Use \d+ or more\."):
        samples("niah_multivalue", TOKENIZERS["testbed"], lengths=[200])


def test_a_length_beyond_all_words_is_refused(words):
    with pytest.raises(TaskError, match=r"more than word lists and novels can fill: they make a prompt of \d+ tokens"):
        samples("cwe", words, lengths=[60_000], repeats=1)


def test_the_revision_hashes_data_prompts_and_metric():
    found = build("ruler").revision()
    assert found.keys() == {"data", "prompts", "metrics"}
    assert len(set(found.values())) == 3


def test_several_questions_have_one_context():
    """Under `prompt_split=context` they share its reading; in statistics they are one cluster."""
    tokenizer = TOKENIZERS["testbed"]
    asked = samples("niah_multikey_1", tokenizer, lengths=[1024], repeats=2, questions=4)
    assert [sample.id for sample in asked] == [f"L1024-r{turn}-q{number}" for turn in (0, 1) for number in range(4)]
    for turn in (asked[:4], asked[4:]):
        assert len({sample.prompt.removesuffix(sample.question) for sample in turn}) == 1
        assert len({sample.question for sample in turn}) == 4
        assert len({sample.references for sample in turn}) == 4
        assert len({sample.document for sample in turn}) == 1
        for sample in turn:
            assert len(tokenizer.encode(sample.prompt + sample.answer_prefix)) <= 1024 - sample.max_new_tokens
            key = sample.question.partition(" for ")[2].partition(" mentioned")[0]
            assert f"for {key} is: {sample.references[0]}" in sample.prompt
    (alone,) = samples("niah_multikey_1", tokenizer, lengths=[1024], repeats=1)
    assert (alone.id, alone.references) == ("L1024-r0", asked[0].references), "the first question is RULER's"


def test_no_more_questions_than_a_context_answers():
    with pytest.raises(TaskError, match=r"ruler\.questions=5, but a context of niah_multikey_1 answers 4: use 4"):
        build("ruler", questions=5)
    with pytest.raises(TaskError, match="a context of vt answers 1"):
        build("ruler", subset="vt", questions=2)
