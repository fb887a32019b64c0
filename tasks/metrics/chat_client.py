"""One question, one answer, from any endpoint that speaks OpenAI's chat completions; answers are kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tasks.base import TaskError, whole

OPENAI = "https://api.openai.com/v1"
_LONGEST_WAIT = 60.0  # seconds
_TRANSIENT = frozenset({408, 409, 425, 429})  # HTTP statuses below 500 that another attempt may mend


class UnansweredError(Exception):
    """No answer was to be had. The message says why, and what to do."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked, and for how much.

    The key is read from the environment variable ``key_variable`` at each call and stored nowhere; an empty name
    means that the endpoint (one of your own) wants none.
    """

    model: str
    base_url: str = OPENAI
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = 60.0  # seconds for one attempt
    attempts: int = 6
    prices: tuple[float, float] | None = None  # dollars for a million tokens of prompts and of answers

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise TaskError(f"The judge's base URL must start with http:// or https://; got '{self.base_url}'.")
        whole("The judge's attempts", self.attempts, 1)

    @classmethod
    def from_environment(cls, default_model: str) -> Endpoint:
        """The endpoint that ``OPENAI_BASE_URL`` and ``KVREPLICA_JUDGE_MODEL`` name; OpenAI's where they are unset."""
        model = os.environ.get("KVREPLICA_JUDGE_MODEL") or default_model
        return cls(model, os.environ.get("OPENAI_BASE_URL") or OPENAI)

    def key(self) -> str:
        """The key; empty where none is wanted. Raises `UnansweredError` where one is wanted and not there."""
        if not self.key_variable:
            return ""
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise UnansweredError(
                f"there is no key for {self.base_url}: set the environment variable {self.key_variable}, "
                "or an empty key_variable for an endpoint that wants none"
            )
        if not (key.isascii() and key.isprintable()):
            raise UnansweredError(f"the key in {self.key_variable} holds characters that no key has: set it anew")
        return key


@dataclass
class ChatUsage:
    """What a client has asked so far."""

    calls: int = 0  # answers that came from the endpoint
    cached: int = 0  # answers that came from disk, at no cost
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0  # calls whose tokens the endpoint did not report

    def dollars(self, prices: tuple[float, float]) -> float:
        """The cost of the reported tokens."""
        return (self.prompt_tokens * prices[0] + self.completion_tokens * prices[1]) / 1e6

    def report(self, prices: tuple[float, float] | None) -> str:
        """One sentence with calls, tokens and, where prices are known, dollars."""
        cost = "cost unknown (no prices given)" if prices is None else f"${self.dollars(prices):.4f}"
        gap = f", {self.uncounted} calls without token counts" if self.uncounted else ""
        return (
            f"{self.calls} calls ({self.retries} retries) and {self.cached} cached answers: {self.prompt_tokens} "
            f"prompt and {self.completion_tokens} answer tokens{gap}, {cost}."
        )


class _StayHere(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class ChatClient:
    """Asks an endpoint, patiently, and never the same question twice.

    An answer is found again by URL, model, prompt, temperature and length, in ``cache/<2 digits>/<digest>.json``. Even
    with a temperature above 0 it is therefore one draw for good: delete the file for another one. Cached answers need
    neither key nor network.
    """

    endpoint: Endpoint
    cache: Path
    sleep: Callable[[float], None] = time.sleep
    usage: ChatUsage = field(default_factory=ChatUsage)

    def ask(self, prompt: str, max_tokens: int, temperature: float) -> str:
        """The text of the answer, empty where the model declines to give any.

        Attempts are repeated after 429, 5xx, timeouts, broken connections and answers that are not what the
        protocol says, after 1, 2, 4, ... seconds or what ``Retry-After`` asks for.
        Raises `UnansweredError` with the last reason.
        """
        request = {
            "model": self.endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "n": 1,
        }
        file = self._file(request)
        kept = _kept(file)
        if kept is not None:
            self.usage.cached += 1
            return kept
        answer = self._fetch(request, self.endpoint.key())
        text = _text(answer)
        self._count(answer.get("usage"))
        _keep(file, {"url": self.endpoint.base_url, "request": request, "text": text, "usage": answer.get("usage")})
        return text

    def _file(self, request: Mapping[str, Any]) -> Path:
        content = json.dumps([self.endpoint.base_url, request], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return self.cache / digest[:2] / f"{digest}.json"

    def _fetch(self, request: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        for attempt in range(self.endpoint.attempts):
            try:
                return self._once(request, key)
            except _TransientError as error:
                failure = error
            if attempt + 1 < self.endpoint.attempts:
                self.usage.retries += 1
                self.sleep(min(failure.wait or 2.0**attempt, _LONGEST_WAIT))
        raise UnansweredError(
            f"{self.endpoint.base_url} gave no answer in {self.endpoint.attempts} attempts, at last: {failure}"
        )

    def _once(self, request: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        url = f"{self.endpoint.base_url.rstrip('/')}/chat/completions"
        post = urllib.request.Request(url, json.dumps(request).encode(), headers, method="POST")
        try:
            with urllib.request.build_opener(_StayHere).open(post, timeout=self.endpoint.timeout) as response:
                answer = json.loads(response.read())
                _text(answer)
                return answer  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}: {_said(error)}"
            if error.code not in _TRANSIENT and error.code < 500:
                raise UnansweredError(
                    f"{self.endpoint.base_url} refuses model {self.endpoint.model}: {reason}"
                ) from error
            raise _TransientError(reason, _seconds(error.headers.get("Retry-After"))) from error
        except (OSError, HTTPException) as error:  # unreachable, broken off, timed out
            raise _TransientError(f"{error or type(error).__name__}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise _TransientError("an answer that is not a chat completion") from error

    def _count(self, tokens: Any) -> None:
        self.usage.calls += 1
        try:
            prompt, completion = int(tokens["prompt_tokens"]), int(tokens["completion_tokens"])
        except (TypeError, LookupError, ValueError):
            self.usage.uncounted += 1
            return
        self.usage.prompt_tokens += prompt
        self.usage.completion_tokens += completion


class _TransientError(Exception):
    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait  # seconds that the endpoint asks for


def _text(answer: Mapping[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"] or "")


def _said(error: urllib.error.HTTPError) -> str:
    """The start of what came with an error, on one line."""
    try:
        with error:
            return " ".join(error.read(500).decode(errors="replace").split())
    except (OSError, HTTPException):
        return "(broken off)"


def _seconds(header: str | None) -> float:
    return float(header) if header and header.isdecimal() else 0.0


def _kept(file: Path) -> str | None:
    """The cached text; a file that cannot be read counts as absent and is written anew."""
    try:
        return str(json.loads(file.read_bytes())["text"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _keep(file: Path, entry: Mapping[str, Any]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(entry, indent=1), encoding="ascii")
        draft.replace(file)
    except OSError as error:
        raise TaskError(
            f"The judge's answers cannot be kept in {file.parent}: {error}. Choose another folder."
        ) from error
