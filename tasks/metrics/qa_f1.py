"""F1 of the words that answer and gold answer share: LongBench's score for question answering."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence

from tasks.metrics import chinese
from tasks.metrics.exact import normalised

_CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､"
    "、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏"
)
_PUNCTUATION = str.maketrans("", "", string.punctuation + _CHINESE_PUNCTUATION)


def qa_f1(prediction: str, gold: str) -> float:
    """F1 over words of the `normalised` texts, repeated words counted as often as both have them.

    0 without a common word, also when both normalise to nothing. Source: LongBench ``qa_f1_score``.
    """
    return _f1(normalised(prediction).split(), normalised(gold).split())


def qa_f1_zh(prediction: str, gold: str) -> float:
    """`qa_f1` over Chinese words, each without punctuation and blanks, empty ones dropped.

    Source: LongBench ``qa_f1_zh_score``; the punctuation is the list there, which lacks ``《``.
    Raises `TaskError` where jieba is not installed.
    """
    return _f1(_chinese_words(prediction), _chinese_words(gold))


def _chinese_words(text: str) -> list[str]:
    plain = ("".join(word.lower().translate(_PUNCTUATION).split()) for word in chinese.words(text))
    return [word for word in plain if word]


def _f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    common = (Counter(prediction) & Counter(gold)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(prediction), common / len(gold)
    return 2 * precision * recall / (precision + recall)
