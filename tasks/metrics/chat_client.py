"""One question, one answer, from any endpoint that speaks OpenAI's chat completions; answers are kept on disk."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.base import TaskError, whole

OPENAI = "https://api.openai.com/v1"
_TRANSIENT = frozenset({408, 409, 429})  # HTTP statuses below 500 after which openai tries again


class UnansweredError(Exception):
    """There is no answer. The message says why, and what to do."""


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
            raise TaskError(f"The judge's base URL must start with http:// or https://; got '{self.shown}'.")
        whole("The judge's attempts", self.attempts, 1)

    @classmethod
    def from_environment(cls, default_model: str) -> Endpoint:
        """The endpoint that ``OPENAI_BASE_URL`` and ``KVREPLICA_JUDGE_MODEL`` name; OpenAI's where they are unset."""
        model = os.environ.get("KVREPLICA_JUDGE_MODEL") or default_model
        return cls(model, os.environ.get("OPENAI_BASE_URL") or OPENAI)

    @property
    def shown(self) -> str:
        """The base URL without a name and password that stand in it."""
        return re.sub(r"//[^/@]*@", "//", self.base_url)

    def key(self) -> str:
        """The key; empty where none is wanted. Raises `UnansweredError` where one is wanted and not there."""
        if not self.key_variable:
            return ""
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise UnansweredError(
                f"there is no key for {self.shown}: set the environment variable {self.key_variable}, "
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


@dataclass
class ChatClient:
    """Asks an endpoint through the package openai, and never the same question twice.

    An answer is found again by URL, model, prompt, temperature and length, in ``cache/<2 digits>/<digest>.json``. Even
    with a temperature above 0 it is therefore one draw for good: delete the file for another one. Cached answers need
    no package, key or network.
    """

    endpoint: Endpoint
    cache: Path
    usage: ChatUsage = field(default_factory=ChatUsage)

    def check(self) -> None:
        """Raise `UnansweredError` if a new question cannot be asked: the package openai or the key is missing."""
        _openai()
        self.endpoint.key()

    def ask(self, prompt: str, max_tokens: int, temperature: float) -> str:
        """The text of the answer, empty if the model declines to give any.

        openai repeats attempts after 429, 5xx, timeouts, broken connections and answers that are no chat completion,
        with growing pauses or after what ``Retry-After`` asks for. Raises `UnansweredError` with the last reason.
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
        answer = self._fetch(request)
        text = self._without_key(_text(answer))
        self._count(answer.get("usage"))
        _keep(file, {"url": self.endpoint.shown, "request": request, "text": text, "usage": answer.get("usage")})
        return text

    def _without_key(self, text: str) -> str:
        """The text of an answer; the key is left out where an endpoint repeats it, so that no file holds it."""
        key = self.endpoint.key()
        return text.replace(key, "<key>") if key else text

    def _file(self, request: Mapping[str, Any]) -> Path:
        content = json.dumps([self.endpoint.base_url, request], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return self.cache / digest[:2] / f"{digest}.json"

    def _fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        openai, endpoint, key = _openai(), self.endpoint, self.endpoint.key()
        attempts: list[Any] = []
        client = openai.OpenAI(
            base_url=endpoint.base_url,
            api_key=key or "none",
            timeout=endpoint.timeout,
            max_retries=endpoint.attempts - 1,
            http_client=openai.DefaultHttpxClient(
                follow_redirects=False,  # a redirect would carry the key to another host
                event_hooks={"request": [attempts.append], "response": [_check_completion]},
            ),
        )
        try:
            with client:
                chat = client.chat.completions.with_raw_response
                reply = chat.create(**_sendable(request), extra_headers={} if key else {"Authorization": openai.Omit()})
                answer: Mapping[str, Any] = reply.http_response.json()
                return answer
        except openai.APIStatusError as error:
            text = " ".join(error.response.text[:500].split())
            reason = f"HTTP {error.status_code} {error.response.reason_phrase}: {text}"
            if error.status_code not in _TRANSIENT and error.status_code < 500:
                raise UnansweredError(f"{endpoint.shown} refuses model {endpoint.model}: {reason}") from error
        except openai.APIConnectionError as error:  # unreachable, broken off, timed out
            cause = error.__cause__ or error
            reason = str(cause) or type(cause).__name__
        finally:
            self.usage.retries += max(0, len(attempts) - 1)
        raise UnansweredError(f"{endpoint.shown} gave no answer in {len(attempts)} attempts, at last: {reason}")

    def _count(self, tokens: Any) -> None:
        self.usage.calls += 1
        try:
            prompt, completion = int(tokens["prompt_tokens"]), int(tokens["completion_tokens"])
        except (TypeError, LookupError, ValueError):
            self.usage.uncounted += 1
            return
        self.usage.prompt_tokens += prompt
        self.usage.completion_tokens += completion


def _openai() -> Any:
    """The package, imported when a question is asked. Raises `UnansweredError` if it is missing."""
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise UnansweredError("it needs the package openai: pip install -e '.[judge]'") from error


def _check_completion(response: Any) -> None:
    """Called by the HTTP client for every response. A success that holds no chat completion, as from a proxy's page,
    becomes a 502, after which openai tries again.
    """
    if response.is_success:
        response.read()
        try:
            _text(response.json())
        except (ValueError, LookupError, TypeError):
            response.status_code, response.extensions["reason_phrase"] = 502, b"not a chat completion"


def _sendable(request: Mapping[str, Any]) -> dict[str, Any]:
    """Without halves of surrogate pairs, which models do produce and UTF-8 does not know."""
    messages = [{**each, "content": each["content"].encode(errors="replace").decode()} for each in request["messages"]]
    return {**request, "messages": messages}


def _text(answer: Mapping[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"] or "")


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
