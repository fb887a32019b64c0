"""What needle prompts promise, for any tokenizer."""

import collections
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tasks import Sample, TaskError, build
from tasks.haystack import REACH, novels, passage
from tasks.mini.material import material
from tasks.niah import DIGITS, FORMS, KEYS, NeedleInAHaystack

ROOT = Path(__file__).parents[2]
BOOKS = [novel.name for novel in novels()]


def take_out(sample):
    """The needles of a prompt as (characters of haystack before it, key, value), and its haystack alone."""
    form = FORMS[sample.axes["form"]]
    needle = re.escape(form.needle).replace(r"\{k\}", "([a-z]+ [a-z]+)").replace(r"\{v\}", "([0-9]+)")
    found, haystack, done = [], "", 0
    for match in re.finditer(f" {needle}|^{needle} ", sample.prompt):
        haystack += sample.prompt[done : match.start()]
        key, value = [group for group in match.groups() if group]
        found.append((len(haystack), key, value))
        done = match.end()
    asked = next(key for _, key, value in found if value == sample.references[0])
    question = "\n" + form.question.format(k=asked)
    assert sample.prompt.endswith(question)
    return found, haystack + sample.prompt[done:].removesuffix(question)


@pytest.fixture(scope="module")
def samples(testbed):
    return build("niah", lengths=[300, 700], depths=[0, 10, 50, 90, 100], repeats=5).samples(testbed)


def test_lengths_are_met_as_closely_as_words_allow(tokenizer):
    for sample in build("niah", lengths=[900, 1024, 2000], depths=[0, 40, 100], repeats=4).samples(tokenizer):
        short = sample.axes["length"] - len(tokenizer.encode(sample.prompt))
        assert 0 <= short <= {"Testbed": 8, "Words": 0, "Bytes": 24}[type(tokenizer).__name__]


def test_the_haystack_is_unbroken_text_of_the_novel_that_the_sample_names(samples):
    for sample in samples:
        name, offset = sample.document.split("@")
        _, haystack = take_out(sample)
        assert sample.axes["book"] == name
        assert haystack == passage(BOOKS.index(name), int(offset), len(haystack))


def test_all_needles_are_there_once_with_keys_and_values_of_their_own(samples):
    for sample in samples:
        found, _ = take_out(sample)
        keys, values = {key for _, key, _ in found}, {value for _, _, value in found}
        assert len(found) == len(keys) == len(values) == 4
        assert keys <= set(KEYS)
        assert all(len(value) == DIGITS for value in values)


def test_the_answer_is_in_its_needle_only(samples):
    for sample in samples:
        assert sample.prompt.count(sample.references[0]) == 1


def test_the_asked_needle_lies_at_its_depth(samples):
    for sample in samples:
        found, haystack = take_out(sample)
        before = next(place for place, _, value in found if value == sample.references[0])
        depth = sample.axes["depth"] * len(haystack) / 100
        moved = REACH * len(haystack) if 0 < sample.axes["depth"] < 100 else 0
        assert depth - moved <= before <= depth


def test_depth_0_opens_the_prompt_and_depth_100_stands_before_the_question(testbed):
    first, last = build("niah", lengths=[300], depths=[0, 100], repeats=1, forms="code").samples(testbed)
    assert re.match(f"The code of the [a-z]+ [a-z]+ is {first.references[0]}\\. \\S", first.prompt)
    assert re.search(f" The code of the [a-z]+ [a-z]+ is {last.references[0]}\\.\nThe code .* is$", last.prompt)


def test_depths_hold_in_tokens_too(testbed):
    shares = collections.defaultdict(list)
    for sample in build("niah", lengths=[1500], depths=[25, 75], repeats=12).samples(testbed):
        found, haystack = take_out(sample)
        before = next(place for place, _, value in found if value == sample.references[0])
        tokens = len(testbed.encode(haystack[:before])) / len(testbed.encode(haystack))
        shares[sample.axes["depth"]].append(tokens)
    for depth, values in shares.items():
        assert depth - 6 < 100 * sum(values) / len(values) < depth + 3


def test_other_needles_spread_over_the_haystack(testbed):
    places = []
    for sample in build("niah", lengths=[600], depths=[50], repeats=100).samples(testbed):
        found, haystack = take_out(sample)
        places += [place / len(haystack) for place, _, value in found if value != sample.references[0]]
    quarters = collections.Counter(int(4 * place) for place in places)
    assert len(places) == 300
    assert min(quarters[quarter] for quarter in range(4)) > 50


def test_prompts_end_with_the_question_and_no_space(samples):
    assert not any(sample.prompt.endswith((" ", "\n")) for sample in samples)


def test_every_prefix_covers_the_grid(samples):
    cells = [(sample.axes["length"], sample.axes["depth"]) for sample in samples]
    first = cells[:10]
    assert len(set(first)) == 10
    assert cells == first * 5
    assert [sample.id for sample in samples[:2]] == ["L300-d0-r0", "L300-d10-r0"]


def test_each_cell_sees_every_form_and_book_in_turn(testbed):
    samples = build("niah", lengths=[300], depths=[0, 50], repeats=20).samples(testbed)
    for depth in (0, 50):
        cell = [sample for sample in samples if sample.axes["depth"] == depth]
        assert set(collections.Counter(sample.axes["form"] for sample in cell).values()) == {4}
        assert set(collections.Counter(sample.axes["book"] for sample in cell).values()) == {5}


def test_samples_stay_when_the_grid_grows(testbed):
    small = build("niah", lengths=[400], depths=[50], repeats=2).samples(testbed)
    large = build("niah", lengths=[300, 400], depths=[0, 50, 100], repeats=3).samples(testbed)
    grown = {sample.id: sample for sample in large}
    assert len(grown) == len(large) == 18
    assert [grown[sample.id] for sample in small] == small


def test_seeds_and_repeats_differ(testbed):
    first = build("niah", lengths=[300], depths=[50], repeats=3, seed=0).samples(testbed)
    second = build("niah", lengths=[300], depths=[50], repeats=3, seed=1).samples(testbed)
    assert len({sample.prompt for sample in first + second}) == 6
    assert len({sample.document for sample in first + second}) == 6


def test_any_process_makes_the_same_prompts(words):
    code = """
import hashlib, json, tasks
class Words:
    def encode(self, text): return [1, 2] + text.split()
samples = tasks.build("niah", lengths=[400], repeats=2).samples(Words())
print(json.dumps([hashlib.sha256(sample.prompt.encode()).hexdigest() for sample in samples]))
"""
    here = [
        hashlib.sha256(sample.prompt.encode()).hexdigest()
        for sample in build("niah", lengths=[400], repeats=2).samples(words)
    ]
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == here


def test_prompts_are_those_of_version_2(words):
    # When this fails the prompts have changed: raise NeedleInAHaystack.version with the new sum.
    samples = build("niah", lengths=[300, 400], repeats=2).samples(words)
    sums = hashlib.sha256("\0".join(sample.prompt for sample in samples).encode()).hexdigest()
    assert (NeedleInAHaystack.version, sums[:16]) == ("2", "f1c0629e02bb361b")


def test_the_testbed_was_trained_on_these_forms_and_not_on_these_words():
    training = material("train")
    assert {(form.needle, form.question) for form in FORMS.values()} <= {(f.needle, f.question) for f in training.facts}
    adjectives, nouns = zip(*(key.split() for key in KEYS), strict=True)
    assert not {*adjectives} & {*training.adjectives}
    assert not {*nouns} & {*training.nouns}


def test_forms_select_and_one_may_be_given_alone(testbed):
    task = build("niah", lengths=[300], repeats=4, forms=["code", "coins"])
    assert {sample.axes["form"] for sample in task.samples(testbed)} == {"code", "coins"}
    assert build("niah", forms="code").forms == ("code",)


def test_lists_become_tuples_so_that_equal_tasks_are_equal():
    assert build("niah", lengths=[512, 1024], depths=[10, 30, 50, 70, 90]) == build("niah")


@pytest.mark.parametrize("needles", [1, 12])
def test_the_number_of_needles_is_kept(testbed, needles):
    for sample in build("niah", lengths=[500], needles=needles, repeats=2).samples(testbed):
        found, _ = take_out(sample)
        assert len(found) == needles


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        (" 48213", 1.0),
        ("48213. The code of", 1.0),
        (" is: 48213\n", 1.0),
        (" 48213 11111", 1.0),
        (" 48 213", 0.0),
        (" 482134444", 1.0),  # found, but not stopped
        (" 4821", 0.0),
        (" 48214", 0.0),
        (" number 7: 48213", 1.0),
        ("", 0.0),
        (" none", 0.0),
    ],
)
def test_the_number_has_to_occur_in_the_prediction(prediction, score):
    sample = Sample(id="a", prompt="", references=("48213",))
    assert build("niah").score(sample, prediction) == {"string_match": score}


def test_a_length_without_room_is_refused_with_one_that_has_it(tokenizer):
    with pytest.raises(TaskError, match=r"niah\.lengths has 60, which is too short.*Use \d+ or more") as refusal:
        build("niah", lengths=[60], needles=6).samples(tokenizer)
    enough = int(re.search(r"Use (\d+) or more", str(refusal.value))[1])
    assert len(build("niah", lengths=[enough], needles=6, repeats=10).samples(tokenizer)) == 50


def test_a_length_beyond_all_novels_is_refused(words):
    with pytest.raises(TaskError, match=r"niah\.lengths has 600000, more tokens than all novels hold"):
        build("niah", lengths=[600_000], depths=[50], repeats=1).samples(words)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("forms", ["secret"], r"niah knows no question form 'secret'\. Did you mean secret_code\?"),
        ("forms", [], r"niah\.forms is empty"),
        ("forms", ["code", "code"], r"niah\.forms lists code twice"),
        ("forms", 3, r"niah\.forms must be a list in brackets; got 3"),
        ("lengths", [], r"niah\.lengths is empty"),
        ("lengths", 512, r"niah\.lengths must be a list in brackets; got 512"),
        ("lengths", [0], r"Each of niah\.lengths must be a whole number of 1 or more; got 0"),
        ("lengths", [512, 512], r"niah\.lengths lists 512 twice"),
        ("depths", [], r"niah\.depths is empty"),
        ("depths", [101], r"Each of niah\.depths must be a whole number from 0 to 100; got 101"),
        ("depths", [-1], r"from 0 to 100; got -1"),
        ("depths", [12.5], r"from 0 to 100; got 12\.5"),
        ("repeats", 10**9, r"niah\.repeats must be at most 10,000 samples of each setting; got 1,000,000,000"),
        ("repeats", 0, r"niah\.repeats must be a whole number of 1 or more; got 0"),
        ("needles", 0, r"niah\.needles must be a whole number from 1 to 1590; got 0"),
        ("needles", 1591, r"from 1 to 1590; got 1591"),
        ("max_new_tokens", 0, r"niah\.max_new_tokens must be a whole number of 1 or more; got 0"),
        ("seed", None, r"niah\.seed must be a whole number of 0 or more; got None"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(field, value, sentence):
    with pytest.raises(TaskError, match=sentence):
        build("niah", **{field: value})
