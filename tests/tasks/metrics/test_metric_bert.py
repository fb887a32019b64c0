"""BERTScore against bert-score 0.3.13, on random encoders built here."""

import random

import pytest

from tasks import TaskError
from tasks.metrics.bert import BertScore

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "while",
    "seventeen",
    "small",
    "dogs",
    "ran",
    "past",
    "it",
    ",",
    "and",
    "nobody",
    "was",
    "hurt",
    ".",
    "Then",
    "they",
    "slept",
]
POSITIONS = 66  # of which RoBERTa uses 64


def write_model(folder, family="Roberta", **options):
    """An encoder with three layers, and RoBERTa's tokenizer with these options."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        [" ".join(WORDS)] * 9, vocab_size=330, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    bpe.save_model(str(folder))
    vocab, merges = str(folder / "vocab.json"), str(folder / "merges.txt")
    transformers.RobertaTokenizer(vocab=vocab, merges=merges, **options).save_pretrained(folder)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=330,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=POSITIONS,
        initializer_range=0.5,  # so that tokens differ in the random model
    )
    getattr(transformers, f"{family}Model")(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def blanks_first(tmp_path_factory):
    """Where the package is right: the tokenizer itself puts the blank, and states its greatest length."""
    return write_model(tmp_path_factory.mktemp("blanks"), add_prefix_space=True, model_max_length=64)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """As roberta-large comes: no blank before the first word; without a greatest length."""
    return write_model(tmp_path_factory.mktemp("usual"))


@pytest.fixture(scope="module")
def pairs():
    rng = random.Random(5)
    return [tuple(" ".join(rng.choices(WORDS, k=rng.randrange(1, 12))) for _ in range(2)) for _ in range(200)]


@pytest.fixture(scope="module")
def package(blanks_first, pairs):
    bert_score = pytest.importorskip("bert_score")
    said, meant = zip(*pairs, strict=True)
    scores = bert_score.score(list(said), list(meant), model_type=blanks_first, num_layers=2, device="cpu")
    return torch.stack(scores, dim=1).tolist()


def test_it_is_the_package_where_the_package_works(blanks_first, pairs, package):
    scorer = BertScore(blanks_first, layer=2)
    for pair, expected in zip(pairs, package, strict=True):
        assert scorer.score(*pair) == pytest.approx(expected, abs=1e-5)
    assert len({round(f1, 3) for *_, f1 in package}) > 100


def test_first_words_have_their_blank_whatever_the_tokenizer_does(usual, blanks_first, pairs):
    for pair in pairs[:20]:
        plain = BertScore(usual, layer=2).score(*pair)
        assert plain == pytest.approx(BertScore(blanks_first, layer=2).score(*pair), abs=1e-6)


def test_empty_texts_score_0(usual):
    for pair in (("", "the cat"), (" \n", "the cat"), ("the cat", ""), ("", "")):
        assert BertScore(usual, layer=2).score(*pair) == (0.0, 0.0, 0.0)


def test_other_families_are_the_package_too_without_a_blank(tmp_path, pairs):
    bert_score = pytest.importorskip("bert_score")
    folder = write_model(tmp_path, "Bert", add_prefix_space=True, model_max_length=64)
    said, meant = zip(*pairs[:20], strict=True)
    expected = bert_score.score(list(said), list(meant), model_type=folder, num_layers=2, device="cpu")
    for index, pair in enumerate(pairs[:20]):
        assert BertScore(folder, layer=2).score(*pair) == pytest.approx(
            [float(score[index]) for score in expected], abs=1e-5
        )
    assert BertScore(folder, layer=2).score("</s><s>", "the cat") == (0.0, 0.0, 0.0)  # nothing but special tokens


def test_a_model_without_the_tokens_of_an_encoder_is_refused(tmp_path):
    write_model(tmp_path)
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    for file in tmp_path.glob("*token*"):
        file.unlink()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path)
    with pytest.raises(TaskError, match="needs an encoder like BERT or RoBERTa"):
        BertScore(str(tmp_path), layer=2).check()


def test_equal_texts_score_1(usual):
    assert BertScore(usual, layer=2).score("the cat sat", " the cat sat\n") == pytest.approx((1, 1, 1), abs=1e-6)


def test_long_texts_are_cut_at_their_ends_as_in_the_package(usual, blanks_first):
    bert_score = pytest.importorskip("bert_score")
    long, short = " ".join(WORDS * 20), "the cat sat on a mat"
    ours = BertScore(usual, layer=2)
    assert ours.score(long, short) == pytest.approx(ours.score(f"{long} dogs ran past", short), abs=1e-6)
    expected = [
        float(score[0])
        for score in bert_score.score([long], [short], model_type=blanks_first, num_layers=2, device="cpu")
    ]
    assert ours.score(long, short) == pytest.approx(expected, abs=1e-5)


def test_layers_are_told_apart_and_those_that_do_not_exist_are_refused(usual):
    pair = ("the cat sat", "a dog ran")
    assert BertScore(usual, layer=1).score(*pair) != BertScore(usual, layer=3).score(*pair)
    for layer in (0, 4):
        with pytest.raises(TaskError, match=r"has layers 1 to 3: choose one"):
            BertScore(usual, layer=layer).check()


def test_the_default_is_layer_17_of_roberta_large():
    assert (BertScore().model, BertScore().layer) == ("roberta-large", 17)


def test_a_model_that_is_not_there_is_one_sentence_with_the_command(tmp_path):
    with pytest.raises(TaskError, match=r"^BERTScore's model nobody/nothing is not on .*'hf download nobody/nothing'"):
        BertScore("nobody/nothing").check()
    with pytest.raises(TaskError, match=r"^There is no folder ./nowhere"):
        BertScore("./nowhere").score("a", "b")
    with pytest.raises(TaskError, match=r"holds no model that BERTScore can load"):
        BertScore(str(tmp_path)).check()
