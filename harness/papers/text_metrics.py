"""A paper's metric by sample: of the rows, else of the texts that rows have (ROUGE, BERTScore and Self-BLEU).

Texts are scored only of cells whose task scores whole texts by their overlap: elsewhere the stored reference is a
number or a name that a prediction must contain, and not a text to be compared with.

Names with an underscore are of the package ``rouge``, which BUZZ and LongBench use; those without are of Google's
``rouge-score`` without stemmer, as in HashEvict (docs/tasks.md 5.1 and 6.1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import pandas as pd

from harness.papers.cell_index import CellRows, NoCellError
from harness.papers.published import Scale, proxy_metrics, row_metrics
from tasks import TaskError
from tasks.base import import_package
from tasks.metrics.bert import BertScore, BertScores
from tasks.metrics.overlap import rouge_1, rouge_2, rouge_l, rouge_scores, self_bleu
from tasks.mini.suite import Summary, without_marks

OVERLAPS = ("rouge_l", "rougeL", "rouge_l_zh")  # headline metrics of the tasks whose texts are compared as wholes
ENCODER = "KVREPLICA_BERTSCORE"  # environment variable: a folder or hub id; "folder@9" takes layer 9 for 17
PAPER_ENCODER = BertScore()  # roberta-large, layer 17: HashEvict's, through `evaluate`
TextScore = Callable[[str, str], float]  # of a prediction and its reference, in [0, 1]


def paper_scores(cell: CellRows, metric: str, scale: Scale) -> tuple[pd.Series, str]:
    """The paper's metric by sample, and "a for b" where at a scale of our own another one stands for it (else empty).

    Raises `NoCellError`, with the end of a sentence, where the cell has no such metric.
    """
    own = [cell.metric if each == "first" else each for each in row_metrics(metric)]
    if name := next((each for each in own if each in cell.scores), ""):
        return cell.scores[name], ""
    # The task's own package first: its names have an underscore, or none.
    for each in sorted(own, key=lambda name: ("_" in name) != ("_" in cell.metric)):
        if (found := derived_scores(cell, each)) is not None:
            return found, ""
    proxies = proxy_metrics(metric, scale)
    name = next((each for each in proxies if each in cell.scores), "")
    if not name:
        raise NoCellError(" or ".join([*own, *proxies]) or metric)
    return cell.scores[name], f"{name} for {metric}"


def derived_scores(cell: CellRows, metric: str) -> pd.Series | None:
    """A metric of `TEXT_SCORES` by sample, from the stored texts; None where they do not give it.

    Raises `NoCellError`, which says what to do, for BERTScore where no encoder can be loaded.
    """
    if metric not in TEXT_SCORES or cell.metric not in OVERLAPS:
        return None
    if ("text", metric) not in cell.computed:
        samples = cell.samples
        if not has_texts(samples):
            return None
        predictions, references = (samples[name].fillna("").astype(str) for name in ("prediction", "reference"))
        values = [text_score(metric, cell.task, *each) for each in zip(predictions, references, strict=True)]
        cell.computed["text", metric] = pd.Series(values, samples.index, dtype=float)
    found: pd.Series = cell.computed["text", metric]
    return found


def has_texts(samples: pd.DataFrame) -> bool:
    """Whether the texts of rows are there. ``store pack --without-texts`` leaves both empty; a text to be compared
    with never is."""
    if not {"prediction", "reference"} <= set(samples):
        return False
    return bool(samples["reference"].fillna("").astype(str).ne("").any())


def text_score(metric: str, task: str, prediction: str, reference: str) -> float:
    """A metric of `TEXT_SCORES` of one prediction, without what the task takes out before it scores."""
    return TEXT_SCORES[metric](_CLEANED.get(task, str)(prediction), reference)


_CLEANED: Mapping[str, Callable[[str], str]] = {Summary.name: without_marks}


@cache
def _google_rouge(kind: str, prediction: str, reference: str) -> float:
    return rouge_scores(prediction, reference, (kind,))[kind].f


@cache
def _google_rouge_l(prediction: str, reference: str) -> float:
    """Equal to the package's, whose table of subsequences takes minutes for a paper's predictions."""
    said, meant = _google_words(prediction), _google_words(reference)
    if not said or not meant:
        return 0.0
    common = _common_length(meant, said)
    precision, recall = common / len(said), common / len(meant)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def _google_words(text: str) -> list[str]:
    words: list[str] = import_package("rouge_score.tokenize", "rouge-score", "Google's ROUGE").tokenize(text, None)
    return words


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of a longest common subsequence; a row of the table is one integer (Hyyro, 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(one)) - 1
    row = whole  # a nought for each place where the length grows
    for word in other:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & whole
    return len(one) - row.bit_count()


@cache
def _bert_scores(encoder: BertScore, prediction: str, reference: str) -> BertScores:
    try:
        return encoder.score(prediction, reference)
    except TaskError as absent:
        raise NoCellError(
            f"BERTScore (it needs an encoder: {absent} The environment variable {ENCODER} names a folder or another)"
        ) from absent


def bertscore_encoder() -> BertScore:
    """The encoder that `ENCODER` names, else HashEvict's."""
    named, _, layer = os.environ.get(ENCODER, "").rpartition("@")
    if named and layer.isdigit():
        return BertScore(named, int(layer))
    return BertScore(os.environ.get(ENCODER) or PAPER_ENCODER.model)


def _bertscore(part: str, prediction: str, reference: str) -> float:
    scores: dict[str, float] = _bert_scores(bertscore_encoder(), prediction, reference)._asdict()
    return scores[part]


@cache
def _self_bleu(drop_empty: bool, prediction: str, reference: str) -> float:
    return self_bleu(prediction, drop_empty)


# Every metric that texts give, as papers and rows name it.
TEXT_SCORES: Mapping[str, TextScore] = {
    **{kind: partial(_google_rouge, kind) for kind in ("rouge1", "rouge2", "rougeLsum")},
    "rougeL": _google_rouge_l,
    "rouge_1": cache(rouge_1),
    "rouge_2": cache(rouge_2),
    "rouge_l": cache(rouge_l),
    **{f"bertscore_{part}": partial(_bertscore, part) for part in BertScores._fields},
    **{f"bert_{part}": partial(_bertscore, part) for part in BertScores._fields},
    "self_bleu": partial(_self_bleu, False),
    "self_bleu_no_empty": partial(_self_bleu, True),
}
