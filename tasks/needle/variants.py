"""How the question is put and scored in each line of the literature (``prompts/needle_in_a_haystack.yaml``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasks.templates import prompts

_TEXTS: Any = prompts("needle_in_a_haystack")
_MESSAGES = [message["content"] for message in _TEXTS["gkamradt"]["openai_messages"]]
_WU, _FU = _TEXTS["retrieval_head"], _TEXTS["headkv"]

NEEDLE: str = _TEXTS["needle"]
PHRASE: str = _WU["real_needle"]  # what an answer should repeat
WORDS = PHRASE + "."  # HeadKV counts words with the full stop attached


@dataclass(frozen=True)
class Variant:
    """One protocol. ``chat_prompt`` is for models with a chat format; None where none is used."""

    prompt: str
    chat_prompt: str | None
    question: str
    max_new_tokens: int
    headline: str  # the metric that its tables show
    system: str = ""
    stop_tokens: tuple[str, ...] = ()


_RETRIEVAL_HEAD = Variant(
    prompt=_WU["prompt"],
    chat_prompt=_WU["chat_prompt_for_chat_models"],
    question=_WU["question"],
    max_new_tokens=_WU["max_new_tokens"],
    headline="rouge1_recall",
    stop_tokens=("\n",),
)

VARIANTS: dict[str, Variant] = {
    # Two user messages in a row, which most chat formats refuse, become two paragraphs of one.
    "gkamradt": Variant(
        prompt="\n\n".join(_MESSAGES),
        chat_prompt="\n\n".join(_MESSAGES[1:]),
        question=_TEXTS["gkamradt"]["question"],
        max_new_tokens=_TEXTS["gkamradt"]["max_new_tokens"],
        headline="contains",
        system=_MESSAGES[0],
    ),
    "wu": _RETRIEVAL_HEAD,
    "fu": Variant(
        prompt=_FU["prompt"],
        chat_prompt=None,
        question=_FU["question"],
        max_new_tokens=_FU["max_new_tokens"],
        headline="word_overlap",
        stop_tokens=("\n",),
    ),
    # KeyDiff and CAOTE state neither prompt nor score (tasks.md 3.4): Wu's prompt, success as in a yes-or-no judgement.
    "grid": Variant(
        prompt=_RETRIEVAL_HEAD.prompt,
        chat_prompt=_RETRIEVAL_HEAD.chat_prompt,
        question=_RETRIEVAL_HEAD.question,
        max_new_tokens=_RETRIEVAL_HEAD.max_new_tokens,
        headline="contains",
        stop_tokens=_RETRIEVAL_HEAD.stop_tokens,
    ),
}
