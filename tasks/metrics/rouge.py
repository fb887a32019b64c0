"""ROUGE as the PyPI package ``rouge`` 1.0.1 defines it, which LongBench and BUZZ use.

It is not Google's (`tasks.metrics.google_rouge`): words are case-sensitive and keep their punctuation, sentences end at
every full stop, n-grams are counted once, and ROUGE-L takes the union of longest common subsequences over all pairs of
sentences. Scores are F with 1e-8 in the denominator, so equal texts reach 0.999999995. Read in tasks.md 2.4 and the
package itself; written anew, without recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tasks.metrics import chinese

# The package walks back through its table by recursion, one call for each step and one at the edge. Below LongBench's
# eval.py (module, scorer, rouge_score) and the package's own six frames, Python's default limit of 1000 leaves room
# for 990 steps: measured with Python 3.11, 3.12 and 3.13; before 3.11 it was one less.
STEPS = 990
STEPS_ZH = STEPS - 1  # rouge_zh_score is one more frame


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
    prediction, reference = " ".join(chinese.words(prediction)), " ".join(chinese.words(reference))
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
    said, meant = (_ngrams(_sentences(text), n) for text in (prediction, reference))
    return _f(len(said & meant), len(said), len(meant))


def _ngrams(sentences: list[list[str]], n: int) -> set[tuple[str, ...]]:
    words = _words(sentences)
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def _rouge_l(prediction: str, reference: str, steps: int | None) -> float:
    said, meant = _sentences(prediction), _sentences(reference)
    common: set[str] = set()
    for ours, theirs in product(meant, said):
        words, walked = _common_subsequence(ours, theirs)
        if steps is not None and walked > steps:
            return 0.0
        common |= words
    return _f(len(common), len(set(_words(said))), len(set(_words(meant))))


def _words(sentences: list[list[str]]) -> list[str]:
    return [word for sentence in sentences for word in sentence]


def _f(common: int, said: int, meant: int) -> float:
    precision = common / said if said else 0.0
    recall = common / meant if meant else 0.0
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
