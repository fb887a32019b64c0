"""What tokens are as text, piece by piece, so that all pieces together are the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_UNFINISHED = "\ufffd"  # what a tokenizer shows for a character of which only some bytes have come


def pieces(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text that each token adds to that of the tokens before it, special tokens included.

    A character of several tokens is the last one's; the others add "". A token alone may decode to another text than in
    its place (word starts lose their space), so every one is read behind the piece before it, as text streamers do.
    """

    def text(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    found: list[str] = []
    before, done = 0, 0  # tokens[before:done] have been shown and are read again; those from `done` on are pending
    for end in range(1, len(tokens) + 1):
        shown, whole = text(tokens[before:done]), text(tokens[before:end])
        if whole.endswith(_UNFINISHED) and end < len(tokens):
            found.append("")
            continue
        found.append(whole[len(shown) :])
        before, done = done, end
    return found
