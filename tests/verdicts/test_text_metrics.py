"""Scores from stored texts: those of the packages that the papers use, and a sentence where one cannot be had."""

import random
from pathlib import Path

import pandas as pd
import pytest
from rouge_score import rouge_scorer

from harness.papers.cell_index import CellRows, NoCellError
from harness.papers.text_metrics import ENCODER, TEXT_SCORES, bertscore_encoder, derived_scores
from tasks.metrics.bert import BertScore
from tasks.metrics.overlap import rouge_1, self_bleu

PAIRS = {
    "same": ("The cat sat on the mat.", "The cat sat on the mat."),
    "half": ("The cat sat there. A dog ran past it", "A small dog ran past the cat that sat on the mat."),
    "none": ("Nobody was hurt.", "Seven ships left port"),
    "empty": ("", "The cat sat on the mat."),
    "marks": ("... — !", "The cat sat on the mat."),
    "case": ("THE CAT'S mat, 3.5 metres", "the cat s mat 3 5 metres"),
    "repeated": ("the the the the cat", "the cat the cat the cat"),
}


def cell(texts=PAIRS, task="hashevict/gov_report", metric="rougeL"):
    """A cell whose rows have these predictions and references, under the task's own metric."""
    rows = pd.DataFrame(
        [
            {"sample_id": name, "metric": metric, "value": 0.5, "weight": 1.0, "document": name,
             "prediction": said, "reference": meant}
            for name, (said, meant) in texts.items()
        ]
    )  # fmt: skip
    return cell_of(rows, task)


def cell_of(rows, task):
    samples = rows.set_index("sample_id")
    return CellRows("testbed", "keydiff", "25%", "one_shot", 0, task, "2026-11-25", False, "prompt", rows, samples)


@pytest.mark.parametrize("metric", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
def test_rouge_is_that_of_the_package_by_sample(metric):
    scorer = rouge_scorer.RougeScorer([metric], use_stemmer=False)
    expected = {name: scorer.score(meant, said)[metric].fmeasure for name, (said, meant) in PAIRS.items()}
    found = derived_scores(cell(), metric)
    assert found.to_dict() == pytest.approx(expected, abs=1e-12)
    assert found["same"] == 1
    assert found["empty"] == found["none"] == 0


def test_the_longest_subsequence_is_that_of_the_package_on_long_random_texts():
    rng = random.Random(3)
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    for _ in range(200):
        said, meant = (" ".join(rng.choices("abcdefgh", k=rng.randrange(1, 90))) for _ in range(2))
        expected = scorer.score(meant, said)["rougeL"].fmeasure
        assert TEXT_SCORES["rougeL"](said, meant) == pytest.approx(expected, abs=1e-12)


def test_names_with_an_underscore_are_of_the_other_package():
    found = derived_scores(cell(), "rouge_1")
    assert found.to_dict() == {name: rouge_1(*texts) for name, texts in PAIRS.items()}
    assert found["case"] != pytest.approx(derived_scores(cell(), "rouge1")["case"], abs=0.1)


def test_self_bleu_is_each_text_with_itself():
    texts = {"a": ("A dog ran. A dog ran off. It sat.", "x"), "b": ("One sentence", "x")}
    found = derived_scores(cell(texts), "self_bleu")
    assert found.to_dict() == {name: self_bleu(said) for name, (said, _) in texts.items()}
    assert found["a"] > found["b"] == 0


def test_the_marks_of_our_summaries_are_no_words_of_theirs():
    texts = {"s": (" Key point 1: A dog ran. Key point 2: It sat.", "A dog ran. It sat.")}
    assert derived_scores(cell(texts, "longbench_mini/summary", "rouge_l"), "rouge1")["s"] == 1
    assert derived_scores(cell(texts), "rouge1")["s"] < 1


def test_what_texts_do_not_give_is_none():
    assert derived_scores(cell(), "accuracy") is None
    needles = cell({"n": ("The number is 4635.", "4635")}, "niah", "string_match")
    assert derived_scores(needles, "rouge1") is None  # a number to be found, no text to be compared with
    left_out = cell(dict.fromkeys(PAIRS, ("", "")))  # `store pack --without-texts`
    assert derived_scores(left_out, "self_bleu") is None
    stripped = cell_of(cell().rows.drop(columns="prediction"), "hashevict/gov_report")
    assert derived_scores(stripped, "rouge1") is None


def test_bertscore_without_an_encoder_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv(ENCODER, str(tmp_path / "nowhere"))
    with pytest.raises(NoCellError, match=rf"^BERTScore .it needs an encoder: There is no folder .*nowhere.*{ENCODER}"):
        derived_scores(cell(), "bertscore_f1")


def test_the_encoder_is_the_papers_unless_another_is_named(monkeypatch):
    monkeypatch.delenv(ENCODER, raising=False)
    assert bertscore_encoder() == BertScore("roberta-large", 17)
    monkeypatch.setenv(ENCODER, "/models/roberta-large")
    assert bertscore_encoder() == BertScore("/models/roberta-large", 17)
    monkeypatch.setenv(ENCODER, "bert-base-uncased@9")
    assert bertscore_encoder() == BertScore("bert-base-uncased", 9)


def test_bertscore_of_a_folder(tmp_path, monkeypatch):
    """On a random encoder: 1 for equal texts, 0 for an empty one, and the harmonic mean of precision and recall."""
    folder = random_encoder(tmp_path)
    monkeypatch.setenv(ENCODER, f"{folder}@2")
    f1, precision, recall = (derived_scores(cell(), f"bertscore_{part}") for part in ("f1", "precision", "recall"))
    assert f1["same"] == pytest.approx(1, abs=1e-5)
    assert f1["empty"] == 0
    expected = BertScore(str(folder), 2).score(*PAIRS["half"])
    assert (precision["half"], recall["half"], f1["half"]) == pytest.approx(tuple(expected))
    assert f1["half"] == pytest.approx(2 * precision["half"] * recall["half"] / (precision["half"] + recall["half"]))


def random_encoder(folder: Path) -> Path:
    """A RoBERTa of two layers with random weights, and a tokenizer of the texts' bytes."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    bpe = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator([text for pair in PAIRS.values() for text in pair], vocab_size=300, special_tokens=special)
    bpe.save_model(str(folder))
    files = {"vocab": str(folder / "vocab.json"), "merges": str(folder / "merges.txt")}
    transformers.RobertaTokenizer(**files).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=300, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=66, initializer_range=0.5,
    )  # fmt: skip
    transformers.RobertaModel(config).save_pretrained(folder)
    return folder
