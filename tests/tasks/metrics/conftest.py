"""Pairs of random texts, and a small server that answers as a chat endpoint would."""

from __future__ import annotations

import json
import random
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks.metrics.chat_client import ChatClient, Endpoint

PAIRS = 200
ENGLISH = re.findall(
    r"\S+",
    "the a an The cat cats mat sat on under Paris U.S. 3.5 3,500 don't state-of-the-art “Hamlet” it's one–the–other 17 "
    "Paragraph running runs easily e.g . .. ; — naïve Straße x y z",
)
CHINESE = re.findall(
    r"\S+", "会议 讨论 了 预算 问题 。 ， 厦门大学 北京 在 举办 《三体》 3.5 年 Ｘ GDP ！ “好” 的 段落15 不是"
)
CODE = [
    "    ",
    "return",
    " ",
    "x",
    "==",
    "y",
    "(",
    ")",
    ":",
    "# note",
    "//",
    "`",
    "self.",
    "name",
    "\n",
    "for i in",
    "0",
]


def texts(seed: int, words: list[str], between: tuple[str, ...], longest: int = 24) -> list[tuple[str, str]]:
    """Pairs that share words, some of them empty, with all kinds of blanks and full stops."""
    rng = random.Random(seed)

    def text() -> str:
        return "".join(rng.choice(words) + rng.choice(between) for _ in range(rng.randrange(longest)))

    return [(text(), text()) for _ in range(PAIRS)]


@pytest.fixture(scope="session")
def english() -> list[tuple[str, str]]:
    return texts(1, ENGLISH, (" ", " ", " ", ". ", ".", "\n", "  ", "\t"))


@pytest.fixture(scope="session")
def chinese() -> list[tuple[str, str]]:
    return texts(2, CHINESE, ("", "", "", " ", "\n"))


@pytest.fixture(scope="session")
def programs() -> list[tuple[str, str]]:
    return [(said, meant.replace("\n", "")) for said, meant in texts(3, CODE, ("", " "))]


class Stub(ThreadingHTTPServer):
    """Gives the replies of a script, one for each request: (status, body[, headers]), or "hang" or "drop"."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.asked, self.over = [], [], threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @staticmethod
    def completion(text, prompt_tokens=100, completion_tokens=7):
        """The reply with this text, as OpenAI words it."""
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        return 200, {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}

    def handle_error(self, request, client_address):
        """Broken connections are part of the test."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        reply = self.server.script.pop(0)
        if reply == "hang":
            self.server.over.wait(10)
            return
        if reply == "drop":
            self.connection.close()
            return
        status, content, *headers = reply
        payload = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        """Silence."""


@pytest.fixture
def stub():
    server = Stub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def slept(monkeypatch):
    """The pauses between attempts, in seconds; nobody waits for them."""
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


@pytest.fixture
def client(stub, slept, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_JUDGE_KEY", "not-a-real-key-27")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return ChatClient(Endpoint("gpt-test", stub.url, "TEST_JUDGE_KEY", timeout=30.0), tmp_path / "cache")
