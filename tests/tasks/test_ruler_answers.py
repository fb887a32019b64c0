"""RULER by likelihood: ruler's samples, the right answer as the continuation, its probability worked by hand."""

import math

import pytest
import torch

from harness.config.model import ModelSpec
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from harness.runner.prompt_encoder import PromptEncoder, split_continuations
from harness.runner.samples import likelihoods
from policies import DENSE
from tasks import Likelihood, TaskError, build
from tasks.ruler_answers import ONE_ANSWER, answer_probability
from tasks.ruler_samples import enumerated

SPEC = ModelSpec("testbed", "bundled/testbed")


@pytest.mark.parametrize("subset", ONE_ANSWER)
def test_the_samples_are_those_of_ruler_and_the_answer_is_its_references(subset, testbed):
    settings = {"subset": subset, "lengths": [1500], "repeats": 3}
    for asked, plain in zip(
        build("ruler_answers", **settings).samples(testbed), build("ruler", **settings).samples(testbed), strict=True
    ):
        assert (asked.id, asked.prompt, asked.answer_prefix) == (plain.id, plain.prompt, plain.answer_prefix)
        assert asked.references == plain.references
        assert asked.continuations == (f" {enumerated(plain.references)}",)
        # The official score of the text that is scored here is 1.
        assert build("ruler", **settings).score(plain, asked.continuations[0]) == {"string_match": 1.0}


def test_several_answers_follow_in_the_order_in_which_they_are_asked(testbed):
    (sample,) = build("ruler_answers", subset="niah_multiquery", lengths=[1500], repeats=1).samples(testbed)
    places = [sample.answer_prefix.index(key) for key in keys_of(sample)]
    assert len(places) == 4
    assert places == sorted(places)


def keys_of(sample):
    """The keys whose needles hold the references, in the references' order."""
    return [sample.prompt.partition(f" is: {value}.")[0].rpartition(" for ")[2] for value in sample.references]


def test_the_probability_is_the_geometric_mean_over_the_answers_tokens():
    """Probabilities 1/2, 1/2 and 1/16: their product is 1/64, its third root 1/4."""
    task = build("ruler_answers")
    found = Likelihood(math.log(1 / 2) + math.log(1 / 2) + math.log(1 / 16), 3, greedy=False)
    assert answer_probability(found) == pytest.approx(1 / 4)
    assert task.score_continuations(None, [found]) == {"answer_probability": pytest.approx(1 / 4), "greedy": 0.0}
    assert task.score_continuations(None, [Likelihood(0.0, 3, greedy=True)]) == {"answer_probability": 1, "greedy": 1}


def test_the_engine_gives_the_probability_of_a_plain_forward_pass(testbed):
    """Of transformers, over prompt and answer at once."""
    task = build("ruler_answers", subset="niah_single_2", lengths=[600], repeats=1)
    (sample,) = task.samples(testbed)
    prompt, (answer,) = split_continuations(sample, PromptEncoder.for_model(SPEC))
    model = SPEC.load("cpu")
    found = likelihoods(Engine(model).follow([Request(prompt, DENSE, continuation=answer)], Prompting("blocked", 64)))
    with torch.inference_mode():
        said = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].softmax(-1)
    each = [float(said[place, token]) for place, token in enumerate(answer)]
    expected = math.prod(each) ** (1 / len(answer))
    assert task.score_continuations(sample, found)["answer_probability"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("subset", ["niah_multivalue", "vt", "cwe"])
def test_an_answer_without_one_wording_is_refused(subset):
    with pytest.raises(TaskError, match=rf"^The right answer of RULER's {subset} can be written in several ways"):
        build("ruler_answers", subset=subset)
