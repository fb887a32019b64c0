"""How much of a hidden phrase a response repeats: the scores of needle-in-a-haystack variants (tasks.md 3.2, 3.3)."""

from __future__ import annotations

from tasks.metrics.google_rouge import rouge_scores


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


def contains(prediction: str, phrase: str) -> float:
    """1 if the phrase occurs in the response in any case, blanks around the phrase aside."""
    return float(phrase.strip().casefold() in prediction.casefold())
