"""Competition mathematics: prompts of lm-eval or with a box, answers found and compared as lm-eval's AIME tasks do."""

from __future__ import annotations

import pytest

from tasks import TaskError, build
from tasks.data import CATALOGUE
from tasks.data.tables import table

HALF = r"\frac{1}{2}"


def asked(words, **settings):
    task = build("math", data="fixture", **settings)
    return task, task.samples(words)


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        (r"The difference is \boxed{\frac{1}{2}}.", True),
        (r"First \boxed{3}, but then \boxed{\frac12}.", True),  # the last box, and \frac12 is \frac{1}{2}
        (r"\boxed{0.5}", True),
        (r"\boxed{\dfrac{1}{2}}", True),
        (r"\boxed{\frac{2}{4}}", False),  # a text is compared, no algebra is done
        (r"It is $\frac{1}{2}$", True),  # between dollar signs where there is no box
        (r"It is $x = 1/2$", True),
        (HALF, True),
        (r"so the answer is \frac{1}{2}", False),
        (r"\boxed{\frac{1}{2}", False),  # cut off
        ("", False),
    ],
)
def test_the_final_answer_is_compared(words, prediction, right):
    task, samples = asked(words)
    assert samples[0].references == (HALF,)
    assert task.score(samples[0], prediction) == {"exact_match": float(right)}


def test_numbers_of_the_aime_are_compared_as_texts(words):
    task, samples = asked(words, dataset="aime_2024")
    assert samples[0].references == ("21",)
    assert task.score(samples[0], r"\boxed{21}")["exact_match"] == 1
    assert task.score(samples[0], r"\boxed{021}")["exact_match"] == 0  # as in lm-eval


def test_prompts(words):
    problem = table("math/math_500", "fixture").rows[0]["problem"]
    _, (boxed, *_) = asked(words)
    assert boxed.prompt == f"{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
    assert (boxed.until, boxed.chat, boxed.max_new_tokens) == ((), True, 4096)
    _, (bare, *_) = asked(words, style="lm_eval")
    assert bare.prompt == f"Problem: {problem}\nAnswer:"
    assert bare.until == ("Problem:",)
    _, (aime, *_) = asked(words, dataset="aime_2025", style="lm_eval")
    assert aime.prompt.startswith("Question: Find the remainder when $2^{10}$")


def test_labels_tell_data_sets_and_styles_apart():
    assert build("math").label == "math/math_500"
    assert build("math", dataset="aime_2024", style="lm_eval").label == "math/aime_2024/lm_eval"


def test_each_data_set_has_its_own_place_on_the_hub():
    places = {name: CATALOGUE[f"math/{name}"].hub for name in ("math_500", "aime_2024", "aime_2025")}
    assert [(hub.repository, hub.split) for hub in places.values()] == [
        ("HuggingFaceH4/MATH-500", "test"),
        ("Maxwell-Jia/AIME_2024", "train"),
        ("math-ai/aime25", "test"),
    ]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dataset": "aime_2023"}, r"math has no data set 'aime_2023'\. Did you mean aime_2025 or aime_2024"),
        ({"style": "few_shot"}, r"math knows no style 'few_shot'"),
        ({"max_new_tokens": 0}, r"math\.max_new_tokens must be a whole number"),
    ],
)
def test_wrong_settings_are_refused(settings, sentence):
    with pytest.raises(TaskError, match=sentence):
        build("math", **settings)
