"""Self-BLEU: how much the sentences of one text repeat each other. BUZZ measures summaries with it."""

from __future__ import annotations

from tasks.metrics.packages import package

_WEIGHTS = (1 / 3, 1 / 3, 1 / 3)


def self_bleu(text: str, drop_empty: bool = False) -> float:
    """Mean BLEU-3 of each sentence against all others, NLTK's smoothing method 1; 0 with fewer than two sentences.

    Sentences are what stands between full stops, stripped; words what stands between blanks. The empty sentence
    behind a final full stop stays, as in BUZZ's ``run_bleu_eval.py``: it scores 0 and lowers the mean, and it is the
    reference of a lone sentence (which scores 0 too). ``drop_empty`` leaves empty sentences out. The official code
    has no value for a text without a full stop; 0 is ours. Raises `TaskError` where nltk is not installed.
    """
    bleu = package("nltk.translate.bleu_score", "nltk", "Self-BLEU")
    sentences = [piece.strip().split() for piece in text.split(".")]
    if drop_empty:
        sentences = [sentence for sentence in sentences if sentence]
    if len(sentences) < 2:
        return 0.0
    smoothing = bleu.SmoothingFunction().method1
    scores = [
        float(bleu.sentence_bleu(sentences[:index] + sentences[index + 1 :], sentence, _WEIGHTS, smoothing))
        for index, sentence in enumerate(sentences)
    ]
    return sum(scores) / len(scores)
