"""Three tokenizers that tasks must get along with: the testbed's, one of whole words and one of bytes. The command that
fetches data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import tokenizers

from scripts import fetch_data
from tasks.base import Sample, Task

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Testbed:
    """The shipped tokenizer, without transformers around it; adds one special token."""

    __test__ = False
    backend: tokenizers.Tokenizer

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return self.backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids, *, skip_special_tokens: bool = False) -> str:
        return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)


class Words:
    """One token for each word; two special tokens in front."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [1, 2] * add_special_tokens + [len(word) for word in re.findall(r"\S+", text)]

    def decode(self, token_ids, *, skip_special_tokens: bool = False) -> str:
        raise NotImplementedError


class Bytes:
    """One token for each byte of UTF-8; no special tokens."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids, *, skip_special_tokens: bool = False) -> str:
        return bytes(token_ids).decode()


@pytest.fixture(scope="session")
def testbed() -> Testbed:
    return Testbed(tokenizers.Tokenizer.from_file(str(ROOT / "harness/testbed/tokenizer.json")))


@pytest.fixture(scope="session")
def first_samples(testbed) -> Callable[[Task, int], list[Sample]]:
    """The first samples of a task in tokens of the shipped tokenizer, made once for all tests that look at them."""
    return cache(lambda task, count: task.first(testbed, count))


@pytest.fixture(scope="session")
def words() -> Words:
    return Words()


@pytest.fixture(scope="session", params=["testbed", "words", "bytes"])
def tokenizer(request, testbed, words):
    return {"testbed": testbed, "words": words, "bytes": Bytes()}[request.param]


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Runs the command in an empty folder; returns exit code, what it printed and what it complained about."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        with pytest.raises(SystemExit) as end:
            fetch_data.main(words)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return end.value.code, captured.out, captured.err

    return run
