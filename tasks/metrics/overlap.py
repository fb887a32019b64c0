"""How much two texts overlap: two ROUGEs that do not compare, the needle scores, and Self-BLEU.

`rouge_l`, `rouge_1` and `rouge_2` are those of the PyPI package ``rouge`` 1.0.1, which LongBench and BUZZ use: words
are case-sensitive and keep their punctuation, sentences end at every full stop, n-grams are counted once, and ROUGE-L
takes the union of longest common subsequences over all pairs of sentences. Scores are F with 1e-8 in the denominator,
so equal texts reach 0.999999995. Source: tasks.md 2.4 and the package itself; written anew, without recursion.

`rouge_scores` is Google's package ``rouge-score``: lower case, words of letters and digits, clipped counts. HashEvict
(through ``evaluate``) and the needle scores use it; the package itself computes it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from tasks.base import TaskError, import_package, nearest

# The package walks back through its table by recursion, one call for each step and one at the edge. Below LongBench's
# eval.py (module, scorer, rouge_score) and the package's own six frames, Python's default limit of 1000 leaves room
# for 990 steps: measured with Python 3.11, 3.12 and 3.13; before 3.11 it was one less.
STEPS = 990
STEPS_ZH = STEPS - 1  # rouge_zh_score is one more frame
ROUGE_KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")  # of Google's ROUGE
_BLEU_WEIGHTS = (1 / 3, 1 / 3, 1 / 3)


def rouge_l(prediction: str, reference: str, recursion_limit: bool = True) -> float:
    """F of ``rouge-l``; 0 where either text has no sentence (the package raises, LongBench turns that into 0).

    With ``recursion_limit``, as in the published numbers: 0 also where the package exceeds Python's recursion limit,
    that is where the walk back through the table of any pair of sentences takes more than `STEPS` steps (as soon as
    one sentence of the prediction is longer than `STEPS` words, if it shares no word with the reference). Without it,
    the value that the definition gives.
    """
    return _rouge_l(prediction, reference, STEPS if recursion_limit else None)


def rouge_l_zh(prediction: str, reference: str, recursion_limit: bool = True) -> float:
    """`rouge_l` over Chinese words, with `STEPS_ZH`. Source: LongBench ``rouge_zh_score``.

    Chinese full stops end no sentence, so each text is one, but for ASCII full stops in it (``3.5``).
    Raises `TaskError` where jieba is not installed.
    """
    prediction, reference = " ".join(chinese_words(prediction)), " ".join(chinese_words(reference))
    return _rouge_l(prediction, reference, STEPS_ZH if recursion_limit else None)


def rouge_1(prediction: str, reference: str) -> float:
    """F of ``rouge-1``; 0 where either text has no sentence (the package raises)."""
    return _rouge_n(prediction, reference, 1)


def rouge_2(prediction: str, reference: str) -> float:
    """F of ``rouge-2``, over pairs of words across sentences too; 0 where either text has no sentence."""
    return _rouge_n(prediction, reference, 2)


def _sentences(text: str) -> list[list[str]]:
    # A piece of blanks only stays, as one empty word.
    return [" ".join(piece.split()).split(" ") for piece in text.split(".") if piece]


def _rouge_n(prediction: str, reference: str, n: int) -> float:
    predicted, expected = (_ngrams(_sentences(text), n) for text in (prediction, reference))
    return _f(len(predicted & expected), len(predicted), len(expected))


def _ngrams(sentences: list[list[str]], n: int) -> set[tuple[str, ...]]:
    words = _words(sentences)
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def _rouge_l(prediction: str, reference: str, steps: int | None) -> float:
    predicted, expected = _sentences(prediction), _sentences(reference)
    common: set[str] = set()
    for ours, theirs in product(expected, predicted):
        words, walked = _common_subsequence(ours, theirs)
        if steps is not None and walked > steps:
            return 0.0
        common |= words
    return _f(len(common), len(set(_words(predicted))), len(set(_words(expected))))


def _words(sentences: list[list[str]]) -> list[str]:
    return [word for sentence in sentences for word in sentence]


def _f(common: int, predicted: int, expected: int) -> float:
    precision = common / predicted if predicted else 0.0
    recall = common / expected if expected else 0.0
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def _common_subsequence(rows: Sequence[str], columns: Sequence[str]) -> tuple[set[str], int]:
    """The words of one longest common subsequence, and the steps of the walk that finds it.

    Of several, the one that the package's walk from the ends meets: up (fewer rows) only where that loses less.
    """
    table = [[0] * (len(columns) + 1)]
    for row in rows:
        above, here = table[-1], [0]
        for index, column in enumerate(columns):
            here.append(above[index] + 1 if row == column else max(above[index + 1], here[index]))
        table.append(here)
    words, steps, i, j = set(), 0, len(rows), len(columns)
    while i and j:
        steps += 1
        if rows[i - 1] == columns[j - 1]:
            words.add(rows[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words, steps


def chinese_words(text: str) -> list[str]:
    """Chinese text cut into words by jieba 0.42.1, blanks and punctuation included; joined they give the text again.

    Exact mode with jieba's own dictionary. Raises `TaskError` where jieba is not installed.
    """
    pieces: list[str] = _chinese_cutter().lcut(text, cut_all=False)
    return pieces


@lru_cache(maxsize=1)
def _chinese_cutter() -> Any:
    jieba = import_package("jieba", "jieba", "Scoring Chinese text")
    jieba.setLogLevel(logging.WARNING)  # it reports on the loading of its dictionary otherwise
    return jieba.Tokenizer()  # not jieba's shared one, to which anyone may add words


class GoogleRouge(NamedTuple):
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    precision: float
    recall: float
    f: float


def rouge_scores(
    prediction: str, reference: str, kinds: tuple[str, ...] = ROUGE_KINDS, stemmer: bool = False
) -> dict[str, GoogleRouge]:
    """Each of ``kinds`` for one pair; sentences of ``rougeLsum`` end at newlines.

    Raises `TaskError` for a kind that is not in `ROUGE_KINDS`, and where the package rouge-score is not installed.
    """
    for kind in kinds:
        if kind not in ROUGE_KINDS:
            raise TaskError(f"There is no ROUGE '{kind}'. {nearest(kind, ROUGE_KINDS)}")
    scores = _google_scorer(tuple(kinds), stemmer).score(reference, prediction)
    return {
        kind: GoogleRouge(float(score.precision), float(score.recall), float(score.fmeasure))
        for kind, score in scores.items()
    }


@lru_cache
def _google_scorer(kinds: tuple[str, ...], stemmer: bool) -> Any:
    module = import_package("rouge_score.rouge_scorer", "rouge-score", "Google's ROUGE")
    return module.RougeScorer(list(kinds), use_stemmer=stemmer)


# Scores of needle-in-a-haystack variants: how much of a hidden phrase a response repeats (tasks.md 3.2, 3.3).


def rouge1_recall(prediction: str, phrase: str) -> float:
    """The share of the phrase's words, stemmed, that the response has. Source: Retrieval_Head (there times 100).

    Raises `TaskError` where the package rouge-score is not installed.
    """
    return rouge_scores(prediction, phrase, ("rouge1",), stemmer=True)["rouge1"].recall


def rouge1_f(prediction: str, needle: str) -> float:
    """F of ROUGE-1 against the whole needle sentence, stemmed. Source: PyramidKV and HeadKV at run time (times 10)."""
    return rouge_scores(prediction, needle, ("rouge1",), stemmer=True)["rouge1"].f


def word_overlap(prediction: str, phrase: str) -> float:
    """The share of the phrase's distinct words that the response has. Source: HeadKV's figure and average.

    Words are what stands between blanks, in lower case, punctuation attached: give the phrase with its full stop.
    """
    wanted = set(phrase.lower().split())
    return len(wanted & set(prediction.lower().split())) / len(wanted)


def contains_phrase(prediction: str, phrase: str) -> float:
    """1 if the phrase occurs in the response in any case, blanks around the phrase aside."""
    return float(phrase.strip().casefold() in prediction.casefold())


def self_bleu(text: str, drop_empty: bool = False) -> float:
    """How much the sentences of one text repeat each other; BUZZ measures summaries with it.

    Mean BLEU-3 of each sentence against all others, NLTK's smoothing method 1; 0 with fewer than two sentences.
    Sentences are what stands between full stops, stripped; words what stands between blanks. The empty sentence
    behind a final full stop stays, as in BUZZ's ``run_bleu_eval.py``: it scores 0 and lowers the mean, and it is the
    reference of a lone sentence (which scores 0 too). ``drop_empty`` leaves empty sentences out. The official code
    has no value for a text without a full stop; 0 is ours. Raises `TaskError` where nltk is not installed.
    """
    bleu = import_package("nltk.translate.bleu_score", "nltk", "Self-BLEU")
    sentences = [piece.strip().split() for piece in text.split(".")]
    if drop_empty:
        sentences = [sentence for sentence in sentences if sentence]
    if len(sentences) < 2:
        return 0.0
    smoothing = bleu.SmoothingFunction().method1
    scores = [
        float(bleu.sentence_bleu(sentences[:index] + sentences[index + 1 :], sentence, _BLEU_WEIGHTS, smoothing))
        for index, sentence in enumerate(sentences)
    ]
    return sum(scores) / len(scores)
