"""The LLM judge against a small server in a thread: what is asked, and what becomes of the answers."""

import pytest

from tasks.metrics.judge import Judge, JudgeScores, JudgeSkipped

KEY = "TEST_JUDGE_KEY"
SECRET = "not-a-real-key-27"
GOOD = "coherent: 4\nfaithful: 3\nhelpful: 5"


def judged(client, join="fixed", labels=("four",)):
    return Judge(client, join).score("What is 2+2?", "It is 4.", labels)


def test_the_verdict_and_what_was_asked_for_it(client, stub):
    stub.script = [stub.completion("4"), stub.completion(GOOD)]
    verdict = judged(client)
    assert verdict == JudgeScores(similarity=4, coherent=4, faithful=3, helpful=5)
    assert verdict.mean == 4.0
    (path, authorization, similarity), (_, _, scorecard) = stub.asked
    assert path == "/v1/chat/completions"
    assert authorization == f"Bearer {SECRET}"
    assert (similarity["model"], similarity["max_tokens"], similarity["temperature"]) == ("gpt-test", 1, 0.5)
    assert (scorecard["model"], scorecard["max_tokens"], scorecard["temperature"]) == ("gpt-test", 20, 0.5)
    [message] = similarity["messages"]
    assert message["role"] == "user"
    assert message["content"].endswith("====GROUND TRUTHS====\nfour\n\n====ANSWER====\nIt is 4.")
    [message] = scorecard["messages"]
    assert "===CRITERIA===\ncoherent: The answer is logically" in message["content"]
    order = [message["content"].index(f"\n{name}: ") for name in ("coherent", "faithful", "helpful")]
    assert order == sorted(order)
    assert message["content"].endswith("====PROMPT====\nWhat is 2+2?\n\n====ANSWER====\nIt is 4.")


def test_the_released_join_takes_a_single_label_apart(client, stub):
    stub.script = [stub.completion("4"), stub.completion(GOOD)] * 2
    judged(client, "released")
    judged(client, "released", ("one", "two"))
    contents = [request["messages"][0]["content"] for *_, request in stub.asked]
    assert "\nf\n---\no\n---\nu\n---\nr\n\n====ANSWER" in contents[0]
    assert "\none\n---\ntwo\n\n====ANSWER" in contents[2]


def test_several_labels_are_joined_by_a_line(client, stub):
    stub.script = [stub.completion("4"), stub.completion(GOOD)]
    judged(client, labels=("one", "two"))
    assert "\none\n---\ntwo\n\n====ANSWER" in stub.asked[0][2]["messages"][0]["content"]


def test_failures_that_last_skip_the_verdict_and_give_no_score(client, stub, slept):
    stub.script = [(503, b"down for repair")] * 6
    skipped = judged(client)
    assert isinstance(skipped, JudgeSkipped)
    assert "gave no answer in 6 attempts, at last: HTTP 503 Service Unavailable: down for repair" in skipped.reason
    assert len(slept) == 5
    assert slept == sorted(slept)
    assert not hasattr(skipped, "mean")


@pytest.mark.parametrize(
    ("scorecard", "scores", "missing"),
    [
        ("Coherent: 4", (4, 1, 1), ("faithful", "helpful")),
        ("coherent: 2\nhelpful: 5", (2, 1, 5), ("faithful",)),
        ("**coherent**: 4/5\n- helpful - 5/5", (4, 1, 5), ("faithful",)),
        ("4\nfaithful: 3\nhelpful: 5", (4, 3, 5), ()),
        ("2\n3\n4", (2, 3, 4), ()),
        ("coherent: 9\nfaithful: 0\nhelpful: 5", (1, 1, 5), ("coherent", "faithful")),
        ("I cannot judge this.", (1, 1, 1), ("coherent", "faithful", "helpful")),
        ("", (1, 1, 1), ("coherent", "faithful", "helpful")),
        (None, (1, 1, 1), ("coherent", "faithful", "helpful")),
    ],
)
def test_missing_scores_are_1_and_named(client, stub, scorecard, scores, missing):
    stub.script = [stub.completion("Score 3"), stub.completion(scorecard)]
    verdict = judged(client)
    assert (verdict.coherent, verdict.faithful, verdict.helpful) == scores
    assert verdict.similarity == 3
    assert verdict.missing == missing


def test_a_similarity_without_a_number_is_1_and_named(client, stub):
    stub.script = [stub.completion("Good"), stub.completion(GOOD)]
    verdict = judged(client)
    assert (verdict.similarity, verdict.missing) == (1, ("similarity",))


def test_without_a_key_nothing_is_asked_and_no_score_made_up(client, stub, monkeypatch):
    assert Judge(client).skipped() is None
    monkeypatch.delenv(KEY)
    skipped = judged(client)
    assert isinstance(skipped, JudgeSkipped)
    assert f"set the environment variable {KEY}" in skipped.reason
    assert Judge(client).skipped() == skipped
    assert stub.asked == []


def test_any_text_can_be_judged(client, stub):
    stub.script = [stub.completion("4"), stub.completion(GOOD)]
    assert isinstance(Judge(client).score("段落 {x}", "lone surrogate \ud83d, {labels}", ["{prediction}"]), JudgeScores)
    assert "====GROUND TRUTHS====\n{prediction}\n" in stub.asked[0][2]["messages"][0]["content"]
