"""The question of a sample ends its prompt, and is what follows the context: `prompt_split=context` rests on that."""

from __future__ import annotations

import pytest

import tasks
from harness.config.model import ModelSpec
from tasks.longbench_subsets import SUBSETS as LONGBENCH
from tasks.needle import VARIANTS
from tasks.ruler_samples import SUBSETS as RULER

ASKING = [
    ("niah", {"lengths": [192], "depths": [50], "repeats": 2}),
    ("lost_in_the_middle", {}),
    *(("lost_in_the_middle", {"wording": wording}) for wording in ("buzz", "query_aware", "ordered_randomly")),
    ("key_value", {}),
    ("key_value", {"query_aware": True}),
    *(("ruler", {"subset": subset, "lengths": [1024], "repeats": 1}) for subset in RULER),
    ("ruler", {"subset": "niah_single_2", "lengths": [512], "repeats": 1, "prefix_in_prompt": True}),
    ("ruler_answers", {"subset": "niah_multikey_1", "lengths": [512], "repeats": 1}),
    *(("longbench", {"subset": subset, "data": "fixture"}) for subset in LONGBENCH),
    ("longbench_v2", {"data": "fixture"}),
    *(("ruler_qa", {"subset": subset, "lengths": [2048], "data": "fixture"}) for subset in ("qa_1", "qa_2")),
    *(
        ("needle", {"variant": name, "lengths": [500], "depths": [50], "chat": chat})
        for name in VARIANTS
        for chat in (True, False)
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return ModelSpec.parse({"path": "bundled/testbed"}).tokenizer()


@pytest.mark.parametrize(("name", "settings"), ASKING, ids=lambda value: str(value))
def test_the_question_ends_the_prompt(tokenizer, name, settings):
    task = tasks.build(name=name, **settings)
    assert task.asks_last
    for sample in task.first(tokenizer, 2):
        assert sample.question.strip()
        assert sample.prompt.endswith(sample.question)
        context = sample.prompt.removesuffix(sample.question)
        assert len(context) > 20
        if name == "ruler" and sample.references[0].isdigit():
            assert sample.references[0] in context


def test_every_task_that_asks_last_is_tested_here():
    """A new task cannot say so and be forgotten."""
    asking = {name for name in tasks.TASKS if tasks.task_class(name).asks_last}
    assert asking == {name for name, _ in ASKING}
