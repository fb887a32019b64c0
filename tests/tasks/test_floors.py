"""Floors: every task of conf/task has one, each says how it is known, and those of our own tasks are measured again."""

import collections
import re

import numpy as np
import pytest
import yaml
from composed import each_of
from omegaconf import OmegaConf

from harness.config.experiments import option_names
from harness.papers.published import FOLDER
from tasks import build, task_class
from tasks.mini.suite import MINI_SUITE

FLOORS = yaml.safe_load((FOLDER / "floors.yaml").read_text())


def label_of(option):
    """The label of a file of conf/task; that of an lm-eval task is the file's, since its data may be elsewhere."""
    if option.startswith("lm_eval"):
        return option
    settings = OmegaConf.to_container(each_of("task")[option], resolve=True)["task"]
    return build(settings.pop("name"), **settings).label


def test_every_task_has_a_floor():
    options = [option for option in option_names("task") if option != "lm_eval"]  # which names no task of its own
    labels = {label_of(option) for option in options}
    assert not {label for label in labels if not {label, label.partition("/")[0]} & FLOORS.keys()}
    assert all(0 <= floor < 1 for floor in FLOORS.values())


def test_every_floor_says_how_it_is_known():
    """LongBench-E's are those of LongBench, said once."""
    for line in (FOLDER / "floors.yaml").read_text().splitlines():
        if re.match(r"\S+: ", line):
            label, _, reason = line.partition(": ")
            assert "  # " in reason or FLOORS[label] == FLOORS[label.removesuffix("_e")]


@pytest.mark.parametrize("name", [*(task.name for task in MINI_SUITE), "niah"])
def test_answers_without_the_text_score_the_floor_of_our_tasks(name, first_samples):
    """The references of other samples, and the three commonest answers, against 120 samples.

    The margin is 2.5 standard errors of a share of .25 over 120 samples: .10.
    """
    task = build(name, lengths=[512], **({"repeats": 24} if name == "niah" else {}))
    samples = first_samples(task, 120)
    metric, count = task.metrics[0], len(samples)

    def scored(answers):
        pairs = zip(samples, answers, strict=True)
        return float(np.mean([task.score(sample, f" {answer}")[metric] for sample, answer in pairs]))

    said = [sample.references[0] for sample in samples]
    others = np.mean([scored(said[shift:] + said[:shift]) for shift in range(1, 5)])
    fixed = [scored([answer] * count) for answer, _ in collections.Counter(said).most_common(3)]
    assert max(others, *fixed) < FLOORS[name] + 0.10


def test_floors_of_choices_are_the_shares_that_the_prompts_leave(testbed):
    """Chances that no other sample's answer shows: of labels and passages that stand in the prompt itself."""
    passages = [
        sample.prompt.count("[Passage") for sample in build("longbench_mini/passage_retrieval").first(testbed, 60)
    ]
    assert np.mean([1 / (count - 1) for count in passages]) == pytest.approx(
        FLOORS["longbench_mini/passage_retrieval"], abs=0.02
    )
    for sample in build("longbench_mini/few_shot").first(testbed, 20):
        labels = {line.rpartition(" ")[2] for line in sample.prompt.splitlines()[:-1]}
        assert 1 / len(labels) == pytest.approx(FLOORS["longbench_mini/few_shot"])


def test_counts_and_sums_have_the_floors_of_their_distributions():
    assert FLOORS["longbench_mini/passage_count"] == pytest.approx(1 / 6, abs=0.01)
    sums = collections.Counter(a + b for a in range(1, 10) for b in range(1, 10))
    assert FLOORS["reasoning_mini"] == pytest.approx(max(sums.values()) / 81, abs=0.01)
    assert task_class("reasoning_mini").metrics == ("string_match",)
