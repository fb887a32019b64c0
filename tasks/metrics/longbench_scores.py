"""LongBench's scores: one function for each kind of answer, and the scorer of its 21 tasks (tasks.md 2.4)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial

from tasks.base import TaskError, nearest
from tasks.metrics.answers import normalised
from tasks.metrics.overlap import chinese_words, rouge_l, rouge_l_zh

_CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､"
    "、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏"
)
_ALL_PUNCTUATION = str.maketrans("", "", string.punctuation + _CHINESE_PUNCTUATION)
_PARAGRAPH = re.compile(r"Paragraph (\d+)")
_PARAGRAPH_ZH = re.compile(r"段落(\d+)")


def qa_f1(prediction: str, gold: str) -> float:
    """F1 over words of the `normalised` texts: the score for question answering.

    Repeated words count as often as both texts have them.
    0 without a common word, also when both normalise to nothing. Source: LongBench ``qa_f1_score``.
    """
    return _f1(normalised(prediction).split(), normalised(gold).split())


def qa_f1_zh(prediction: str, gold: str) -> float:
    """`qa_f1` over Chinese words, each without punctuation and blanks, empty ones dropped.

    Source: LongBench ``qa_f1_zh_score``; the punctuation is the list there, which lacks ``《``.
    Raises `TaskError` where jieba is not installed.
    """
    return _f1(_plain_words_zh(prediction), _plain_words_zh(gold))


def _plain_words_zh(text: str) -> list[str]:
    plain = ("".join(word.lower().translate(_ALL_PUNCTUATION).split()) for word in chinese_words(text))
    return [word for word in plain if word]


def _f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    common = (Counter(prediction) & Counter(gold)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(prediction), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def classification(prediction: str, gold: str, classes: Iterable[str]) -> float:
    """1 / n if the gold class is among the n classes that the prediction names, else 0: one of a list of classes.

    Named is every class that is a substring of the prediction, case-sensitive. Then those that are part of the gold
    name without being it are taken out, but as the official loop does it: it deletes from the list that it walks
    over, and so passes over the class behind each one deleted. Source: LongBench ``classification_score``.
    """
    named = [name for name in classes if name in prediction]
    index = 0
    while index < len(named):
        if named[index] in gold and named[index] != gold:
            named.remove(named[index])  # the first of that name, wherever the walk is
        index += 1
    return 1.0 / len(named) if gold in named else 0.0


def retrieval(prediction: str, gold: str) -> float:
    """The share of the prediction's numbers that are the gold paragraph's; 0 without any number.

    Numbers are runs of digits and compared as text (``015`` is not ``15``). Source: LongBench ``retrieval_score``.
    Raises `TaskError` where the gold answer has no ``Paragraph N``.
    """
    return count(prediction, _paragraph(_PARAGRAPH, "Paragraph", gold))


def retrieval_zh(prediction: str, gold: str) -> float:
    """`retrieval` with gold answers like ``段落15``. Source: LongBench ``retrieval_zh_score``."""
    return count(prediction, _paragraph(_PARAGRAPH_ZH, "段落", gold))


def count(prediction: str, gold: str) -> float:
    """The share of the prediction's numbers that equal the gold text; 0 without any. Source: ``count_score``."""
    numbers = re.findall(r"\d+", prediction)
    return sum(number == gold for number in numbers) / len(numbers) if numbers else 0.0


def _paragraph(pattern: re.Pattern[str], word: str, gold: str) -> str:
    found = pattern.search(gold)
    if found is None:
        raise TaskError(f"The gold answer '{gold}' names no paragraph: '{word}' and a number are missing in the data.")
    return found[1]


def code_similarity(prediction: str, gold: str) -> float:
    """Similarity of the prediction's first line of code with the gold line, in hundredths.

    The first line, after newlines at the start, that holds no backtick, no ``#`` and no ``//`` (a line of blanks
    counts); the empty string where there is none. The similarity is ``fuzz.ratio`` of fuzzywuzzy 0.18.0 on difflib,
    which is what LongBench's requirements install; with python-Levenshtein it would differ on some lines.
    Source: LongBench ``code_sim_score``.
    """
    lines = prediction.lstrip("\n").split("\n")
    line = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    if line == gold:
        return 1.0
    if not line or not gold:
        return 0.0
    return round(100 * SequenceMatcher(None, line, gold).ratio()) / 100


# The scorer: the function for each task, and what is done with its values.

_PAIRWISE: Mapping[str, Callable[[str, str], float]] = {
    "narrativeqa": qa_f1,
    "qasper": qa_f1,
    "multifieldqa_en": qa_f1,
    "multifieldqa_zh": qa_f1_zh,
    "hotpotqa": qa_f1,
    "2wikimqa": qa_f1,
    "musique": qa_f1,
    "dureader": rouge_l_zh,
    "gov_report": rouge_l,
    "qmsum": rouge_l,
    "multi_news": rouge_l,
    "vcsum": rouge_l_zh,
    "triviaqa": qa_f1,
    "samsum": rouge_l,
    "passage_count": count,
    "passage_retrieval_en": retrieval,
    "passage_retrieval_zh": retrieval_zh,
    "lcc": code_similarity,
    "repobench-p": code_similarity,
}
_CLASSIFIED = frozenset({"trec", "lsht"})
_FIRST_LINE = frozenset({"trec", "triviaqa", "samsum", "lsht"})


def item_score(dataset: str, prediction: str, answers: Sequence[str], classes: Sequence[str] = ()) -> float:
    """The best score over the gold answers, in [0, 1]; of the first line only in the few-shot tasks.

    ``dataset`` is the name without ``_e``, ``classes`` the row's ``all_classes`` (trec and lsht).
    Raises `TaskError` for a name that LongBench does not have.
    """
    scored = first_line(prediction) if dataset in _FIRST_LINE else prediction
    metric = _metric(dataset, classes)
    return max((metric(scored, answer) for answer in answers), default=0.0)


def first_line(prediction: str) -> str:
    """What stands before the first newline, newlines at the start aside."""
    return prediction.lstrip("\n").partition("\n")[0]


def _metric(dataset: str, classes: Sequence[str]) -> Callable[[str, str], float]:
    if dataset in _CLASSIFIED:
        return partial(classification, classes=classes)
    if dataset not in _PAIRWISE:
        raise TaskError(f"LongBench has no task '{dataset}'. {nearest(dataset, [*_PAIRWISE, *_CLASSIFIED])}")
    return _PAIRWISE[dataset]
