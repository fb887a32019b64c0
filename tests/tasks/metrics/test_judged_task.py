"""HashEvict's free responses with a judge: its scores stand beside the others, and none is made up without it."""

from __future__ import annotations

import pytest

import tasks
from tasks import TaskError
from tasks.metrics import judge


@pytest.fixture
def task(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(judge, "ANSWER_CACHE", tmp_path)
    judge.hashevict_judge.cache_clear()
    yield tasks.build("hashevict", subset="gsm8k_free_response", data="fixture", judge="some-model")
    judge.hashevict_judge.cache_clear()


class Characters:
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())


def test_four_scores_and_their_mean_stand_beside_the_overlap(task, stub):
    stub.script = [stub.completion("4"), stub.completion("coherent: 5\nfaithful: 2\nhelpful: 3")]
    sample = task.samples(Characters())[0]
    scores = task.score(sample, "It is 12.")
    assert set(scores) == set(task.metrics)
    assert [scores[name] for name in judge.JUDGE_METRICS] == [3.5, 4, 5, 2, 3]


def test_without_a_key_the_task_is_refused_before_anything_runs(task, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(TaskError, match=r"no key .*set the environment variable OPENAI_API_KEY.*task\.judge=null"):
        task.samples(Characters())


def test_an_endpoint_that_fails_gives_no_score(task, stub, monkeypatch):
    stub.script = [(401, {"error": "no"})] * 9
    with pytest.raises(TaskError, match="run the same command again"):
        task.score(task.samples(Characters())[0], "It is 12.")


def test_one_letter_needs_no_judge():
    with pytest.raises(TaskError, match=r"judge=null"):
        tasks.build("hashevict", subset="gsm8k_multiple_choice", judge="some-model")
