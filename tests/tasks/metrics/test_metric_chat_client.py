"""How often a chat endpoint is asked, what is kept, and what it cost."""

import sys

import pytest

from tasks import TaskError
from tasks.metrics.chat_client import OPENAI, ChatClient, Endpoint
from tasks.metrics.judge import Judge, JudgeScores, JudgeSkipped

KEY = "TEST_JUDGE_KEY"
KEPT = "35989ad45357627ba7f74734a829170d2563188eabf4e4c2fa475c7786d04538"  # of the question below
SECRET = "not-a-real-key-27"
GOOD = "coherent: 4\nfaithful: 3\nhelpful: 5"


def judged(client, join="fixed", labels=("four",)):
    return Judge(client, join).score("What is 2+2?", "It is 4.", labels)


@pytest.mark.parametrize(
    "failure",
    [
        (429, {"error": "slow down"}),
        (500, b"oops"),
        (503, b""),
        (200, b"<html>not json"),
        (200, {"choices": []}),
        (200, ["a list"]),
        "drop",
    ],
    ids=str,
)
def test_passing_failures_are_tried_again(client, stub, slept, failure):
    stub.script = [failure, failure, stub.completion("4"), stub.completion(GOOD)]
    assert isinstance(judged(client), JudgeScores)
    first, second = slept
    assert 0 < first < second
    assert (client.usage.calls, client.usage.retries) == (2, 2)


def test_silence_is_a_passing_failure_too(client, stub, slept):
    stub.script = ["hang", stub.completion("4"), stub.completion(GOOD)]
    hasty = ChatClient(Endpoint("gpt-test", stub.url, KEY, timeout=2.0), client.cache)
    assert isinstance(judged(hasty), JudgeScores)
    assert len(slept) == 1


def test_the_endpoint_may_say_how_long_to_wait(client, stub, slept):
    stub.script = [(429, {}, ("Retry-After", "17")), stub.completion("4"), stub.completion(GOOD)]
    judged(client)
    assert slept == [17.0]


def test_an_endpoint_that_is_away_for_hours_is_not_waited_for(client, stub, slept):
    stub.script = [(429, {"error": "come back tomorrow"}, ("Retry-After", "9999"))]
    skipped = judged(client)
    assert isinstance(skipped, JudgeSkipped)
    assert "gave no answer in 1 attempts, at last: HTTP 429" in skipped.reason
    assert slept == []


def test_attempts_are_as_many_as_asked_for(client, stub, slept):
    stub.script = [(503, b"busy")] * 3
    thrice = ChatClient(Endpoint("gpt-test", stub.url, KEY, attempts=3), client.cache)
    assert "gave no answer in 3 attempts, at last: HTTP 503 Service Unavailable: busy" in judged(thrice).reason
    assert (len(stub.asked), len(slept), thrice.usage.retries) == (3, 2, 2)


def test_without_the_package_or_a_key_one_sentence_says_what_to_do(client, monkeypatch):
    assert Judge(client).skipped() is None
    monkeypatch.delenv(KEY)
    assert f"set the environment variable {KEY}" in Judge(client).skipped().reason
    monkeypatch.setitem(sys.modules, "openai", None)
    for skipped in (Judge(client).skipped(), judged(client)):
        assert skipped.reason == "The LLM judge is skipped: it needs the package openai: pip install -e '.[judge]'."


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_refusals_are_not_tried_again(client, stub, slept, status):
    stub.script = [(status, {"error": "no such model"}, ("Location", f"{stub.url}/elsewhere"))]
    skipped = judged(client)
    assert isinstance(skipped, JudgeSkipped)
    assert f"refuses model gpt-test: HTTP {status}" in skipped.reason
    assert "no such model" in skipped.reason
    assert (len(stub.asked), slept) == (1, [])


def test_what_was_answered_once_is_not_asked_again(client, stub, monkeypatch):
    stub.script = [stub.completion("4"), stub.completion(GOOD)]
    first = judged(client)
    monkeypatch.delenv(KEY)
    again = ChatClient(client.endpoint, client.cache)
    assert judged(again) == first
    assert len(stub.asked) == 2
    assert (again.usage.calls, again.usage.cached) == (0, 2)


def test_another_model_text_or_endpoint_is_another_question(client, stub):
    stub.script = [stub.completion("4"), stub.completion(GOOD)] * 3
    judged(client)
    judged(ChatClient(Endpoint("gpt-other", stub.url, KEY), client.cache))
    judged(client, labels=("five",))
    assert len(stub.asked) == 5  # the scorecard does not show the labels
    stub.script = [stub.completion("4"), stub.completion(GOOD)]
    judged(ChatClient(Endpoint("gpt-test", f"{stub.url}/elsewhere", KEY), client.cache))
    assert len(stub.asked) == 7


def test_answers_that_are_on_disk_stay_there_to_be_found(tmp_path):
    """Another name for the same question would pay for every answer once more."""
    entry = tmp_path / KEPT[:2] / f"{KEPT}.json"
    entry.parent.mkdir()
    entry.write_text('{"text": "4"}')
    assert ChatClient(Endpoint("gpt-4o", "http://localhost:8000/v1"), tmp_path).ask("é \ud83d", 1, 0.5) == "4"


def test_spoilt_files_of_the_cache_are_asked_anew(client, stub):
    stub.script = [stub.completion("4"), stub.completion(GOOD)] * 2
    first = judged(client)
    files = list(client.cache.rglob("*.json"))
    assert len(files) == 2
    files[0].write_text('{"text": ')
    files[1].write_bytes(b"\xff\xfe")
    assert judged(client) == first
    assert len(stub.asked) == 4


def test_a_key_that_cannot_be_one_is_refused_before_it_is_sent(client, stub, monkeypatch):
    monkeypatch.setenv(KEY, "two\nlines")
    assert f"the key in {KEY} holds characters" in judged(client).reason
    assert stub.asked == []


def test_an_endpoint_of_ones_own_needs_no_key(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    stub.script = [stub.completion("4"), stub.completion(GOOD)]
    client = ChatClient(Endpoint("local", stub.url, key_variable=""), tmp_path)
    assert isinstance(judged(client), JudgeScores)
    assert stub.asked[0][1] is None


def test_the_key_is_written_nowhere(client, stub):
    stub.script = [stub.completion("4"), (401, {"error": "bad key"})]
    skipped = judged(client)
    texts = [file.read_text() for file in client.cache.rglob("*") if file.is_file()]
    assert len(texts) == 1
    assert all(SECRET not in text for text in [*texts, repr(client), skipped.reason])


def test_tokens_and_cost_are_counted(client, stub):
    stub.script = [stub.completion("4", 1000, 1), stub.completion(GOOD, 2000, 20)]
    judged(client)
    usage = client.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (2, 3000, 21)
    assert usage.dollars((2.5, 10.0)) == pytest.approx(0.0075 + 0.00021)
    judged(client)
    assert usage.report((2.5, 10.0)) == (
        "2 calls (0 retries) and 2 cached answers: 3000 prompt and 21 answer tokens, $0.0077."
    )
    assert usage.report(None).endswith("cost unknown (no prices given).")


def test_calls_without_token_counts_are_reported_as_such(client, stub):
    status, body = stub.completion("4")
    stub.script = [(status, body | {"usage": None}), stub.completion(GOOD)]
    judged(client)
    assert "107 tokens" not in client.usage.report(None)
    assert "100 prompt and 7 answer tokens, 1 calls without token counts" in client.usage.report(None)


def test_the_environment_may_name_endpoint_and_model(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("KVREPLICA_JUDGE_MODEL", raising=False)
    assert Endpoint.from_environment("gpt-4o") == Endpoint("gpt-4o", OPENAI)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    monkeypatch.setenv("KVREPLICA_JUDGE_MODEL", "local")
    assert Endpoint.from_environment("gpt-4o") == Endpoint("local", "http://localhost:8000/v1")


def test_endpoints_that_cannot_be_are_refused():
    with pytest.raises(TaskError, match="must start with http"):
        Endpoint("gpt-4o", "file:///etc")
    with pytest.raises(TaskError, match="attempts must be a whole number of 1 or more"):
        Endpoint("gpt-4o", attempts=0)


def test_a_cache_that_cannot_be_written_is_one_sentence(client, stub):
    client.cache.write_text("a file")
    stub.script = [stub.completion("4")]
    with pytest.raises(TaskError, match=r"answers cannot be kept in .*Choose another folder"):
        judged(client)
