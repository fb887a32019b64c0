"""Words of Chinese text, as jieba 0.42.1 cuts them."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from tasks.metrics.packages import package


def words(text: str) -> list[str]:
    """All pieces of the text in their order, blanks and punctuation included; joined they give the text again.

    Exact mode with jieba's own dictionary. Raises `TaskError` where jieba is not installed.
    """
    pieces: list[str] = _cutter().lcut(text, cut_all=False)
    return pieces


@lru_cache(maxsize=1)
def _cutter() -> Any:
    jieba = package("jieba", "jieba", "Scoring Chinese text")
    jieba.setLogLevel(logging.WARNING)  # it reports on the loading of its dictionary otherwise
    return jieba.Tokenizer()  # not jieba's shared one, to which anyone may add words
