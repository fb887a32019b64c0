"""What the testbed's training promises: a run that is killed ends as one that is not, and what it exports loads."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.errors import UserError
from scripts.testbed import network, training_loop, words
from scripts.testbed.curriculum import Curriculum
from scripts.testbed.export_model import export, write
from scripts.testbed.five_gram import FiveGram
from scripts.testbed.ingredients import CLOSE, SHORTEST_LINE, WRITERS
from scripts.testbed.mixture import Mixture
from scripts.testbed.weighted import ANSWER, FIRST
from scripts.testbed.word_lists import WORD_LISTS, WordLists
from tasks.mini.material import material

ROOT = Path(__file__).parents[2]
TINY = {
    "model": {
        "vocab_size": 512,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
    },
    "optimisers": {
        "clip": 1.0,
        "muon": {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.05},
        "adamw": {"lr": 0.003, "betas": [0.9, 0.95], "weight_decay": 0.0},
    },
    "warmup": 3,
    "mixtures": {"induction": {"repeat": 7, "pairs": 2, "prose": 1}, "all": {"facts": 3, "few_shot": 1, "repeat": 1}},
    "stages": [
        {"length": 32, "tokens": 512, "batch": 128, "mixture": "induction"},
        {"length": 96, "tokens": 768, "batch": 192, "mixture": "all", "rate": [1.0, 0.02]},
    ],
    "scale": 1.0,
    "start_from": None,
    "seed": 0,
    "threads": 1,
    "device": "cpu",
    "bf16": "auto",
    "compile": False,
    "save_every": 1000,
    "probe_every": 1000,
    "probe_samples": 1,
}
SLOWED = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def configured(name, *overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf/train")):
        return OmegaConf.to_container(compose(name, overrides=list(overrides)), resolve=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a tokenizer, which takes longest."""
    path = tmp_path_factory.mktemp("tokenizer")
    words.saved(path, 4096, material("train"), material("test"))
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return tokenizers.Tokenizer.from_file(str(folder / words.FILE))


def test_killed_and_resumed_gives_the_weights_of_an_uninterrupted_run(folder, tmp_path):
    config = TINY | {"model": TINY["model"] | {"vocab_size": 4096}}
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / words.FILE).write_bytes((folder / words.FILE).read_bytes())
    whole, _ = training_loop.train(config, tmp_path / "whole")
    for _ in range(3):
        parts, _ = training_loop.train(config, tmp_path / "parts", stop_after=3)
    untrained = network.build(config["model"], config["seed"])
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(whole.parameters(), untrained.parameters(), strict=True))


def test_two_threads_and_compilation_give_the_same_gradients_every_time():
    """Few ids, many tokens: each row of the embedding's gradient has addends of both threads."""
    model = network.build(TINY["model"], seed=1)
    ids = torch.randint(0, 50, (64, 65), generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        forward = training_loop.forward(model, 64, TINY | {"compile": True})
        found = []
        for _ in range(6):
            model.zero_grad()
            forward(ids, torch.ones(64, 64))[0].backward()
            found.append([parameter.grad.clone() for parameter in model.parameters()])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_training_can_start_from_exported_weights_and_their_tokenizer(folder, tmp_path):
    model = network.build(TINY["model"] | {"vocab_size": 4096}, seed=3)
    write(model, folder / words.FILE, tmp_path / "before")
    config = TINY | {"model": TINY["model"] | {"vocab_size": 4096}, "start_from": str(tmp_path / "before")}
    started, file = training_loop.train(config, tmp_path / "after", stop_after=0)
    assert all(torch.equal(a.float(), b) for a, b in zip(model.parameters(), started.parameters(), strict=True))
    assert file.read_bytes() == (folder / words.FILE).read_bytes()


@pytest.mark.parametrize("rope", [{}, {"rope_parameters": SLOWED}], ids=["plain", "slowed"])
@pytest.mark.parametrize("length", [40, 150, network.WRITTEN_OUT + 8])  # one block, several, the fused kernel
def test_the_forward_pass_is_that_of_transformers(length, rope):
    model = network.build(TINY["model"] | rope, seed=1)
    ids = torch.randint(0, 512, (2, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = network.logits(model, network.embedded(model, ids), network.rotation(model, length))
        theirs = model(ids).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_new_model_looks_at_the_token_before_with_one_group_of_heads_only(seed):
    shape = configured("testbed")["model"]
    model = network.build(shape, seed)
    model.set_attn_implementation("eager")
    ids = torch.randint(0, shape["vocab_size"], (1, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    before = torch.stack([layer[0].diagonal(-1, dim1=1, dim2=2).mean(-1) for layer in weights])  # [layer, query head]
    group = shape["num_attention_heads"] // shape["num_key_value_heads"]
    assert (before[0, :group] > 0.8).all()
    assert (before[0, group:] < 0.2).all()
    assert (before[1:] < 0.2).all()


def test_the_loss_weighs_each_token():
    model = network.build(TINY["model"], seed=1)
    ids = torch.randint(0, 512, (1, 9), generator=torch.Generator().manual_seed(0))
    turn = network.rotation(model, 8)

    def loss(weights):
        return network.loss(model, network.embedded(model, ids[:, :-1]), ids[:, 1:], weights, turn, FIRST)[0].item()

    alone = [loss(torch.eye(8)[i : i + 1]) for i in range(8)]
    expected = sum(weight * each for weight, each in zip(range(8), alone, strict=True)) / 28
    assert loss(torch.arange(8.0)[None]) == pytest.approx(expected, rel=1e-5)


def test_what_is_exported_loads_in_transformers_with_its_tokenizer(folder, tmp_path):
    model = network.build(TINY["model"] | {"vocab_size": 4096}, seed=2)
    write(model, folder / words.FILE, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "The code of the silver falcon is 48213.\n\nWhat next?"
    ids = tokenizer.encode(text)
    assert ids[0] == loaded.config.bos_token_id == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_an_export_before_any_training_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"There is nothing to export: .*checkpoint.pt is not there. Train first"):
        export({}, tmp_path)


def test_digits_are_tokens_of_their_own_and_the_first_holds_the_space(tokenizer):
    pieces = [tokenizer.decode([index]) for index in tokenizer.encode("is 48213.", add_special_tokens=False).ids]
    assert pieces == ["is", " 4", "8", "2", "1", "3", "."]


def test_every_key_word_is_one_token(tokenizer):
    for split in ("train", "test"):
        source = material(split)
        for word in (*source.adjectives, *source.nouns, *source.names, *source.labels):
            assert len(tokenizer.encode(f" {word}", add_special_tokens=False).ids) == 1, word


@pytest.mark.parametrize("length", [64, 300])
def test_batches_are_full_and_the_same_every_time(tokenizer, length):
    mixture = Mixture(tokenizer, material("train"), dict.fromkeys([*WRITERS, *WORD_LISTS], 1.0), length)
    ids, weights = mixture.batch("0/1/2", 12)
    again = Mixture(tokenizer, material("train"), dict.fromkeys([*WRITERS, *WORD_LISTS], 1.0), length)
    assert ids.shape == (12, length + 1)
    assert weights.shape == (12, length)
    assert np.array_equal(ids, again.batch("0/1/2", 12)[0])
    assert not np.array_equal(ids, again.batch("0/1/3", 12)[0])


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "prose"])
def test_an_exercise_in_pieces_has_the_tokens_of_its_text_and_its_answers_count_most(tokenizer, name):
    """So that a prompt at evaluation is, token for token, what training showed."""
    mixture = Mixture(tokenizer, material("train"), {name: 1.0}, 600)
    part = mixture.fitted(random.Random(5), name, 600)
    assert len(part) <= 600
    assert tokenizer.encode(tokenizer.decode(part.ids)).ids == part.ids
    assert sum(weight == FIRST for weight in part.weights) > 0
    assert FIRST > ANSWER == max(weight for weight in part.weights if weight != FIRST)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "prose"])
def test_every_exercise_has_answers_at_every_size(name):
    """Other words come in other numbers, of which some exercises need several: a rare draw must not end a run."""
    for size in (20, 60, 200, 1000, 8000):
        for seed in range(20 if size < 1000 else 3):
            exercise = WRITERS[name](random.Random(seed), material("train"), size)
            assert all(question.answer.startswith(" ") for question in exercise.questions)
            assert exercise.questions


@pytest.mark.parametrize("name", [name for name in WRITERS if name.startswith("close_")])
def test_close_numbers_begin_alike_and_are_no_others(name):
    for size in (60, 1000, 8000):
        for seed in range(5):
            exercise = WRITERS[name](random.Random(seed), material("train"), size)
            values = {value for question in exercise.questions for value in question.references if value.isdigit()}
            spread = max(CLOSE, size // SHORTEST_LINE)
            assert max(map(int, values), default=0) - min(map(int, values), default=0) < spread
            assert all(value in exercise.context for value in values)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["entries", "classes"])
def test_an_entry_is_asked_for_where_its_whole_line_came_before_and_nowhere_else(tokenizer, name, seed):
    part = WORD_LISTS[name](WordLists.of(tokenizer), random.Random(seed), 400)
    assert len(part) == len(part.weights) == 400
    answers = [place for place, weight in enumerate(part.weights) if weight == FIRST]
    assert len(answers) > 5
    width = math.gcd(*(place - answers[0] for place in answers))  # all lines of a list are of one length
    lines = [tuple(part.ids[start : start + width]) for start in range(1, 401 - width, width)]
    asked = [FIRST in part.weights[start : start + width] for start in range(1, 401 - width, width)]
    assert asked == [line in lines[:number] for number, line in enumerate(lines)]


def bytes_of(ids):
    """Four bytes for each token, so that one list can be looked for within another."""
    return np.array(ids, dtype=np.int32).tobytes()


def test_the_five_gram_model_is_a_distribution_that_knows_its_text():
    text = [0, 1, 2, 3, 4, 5, 0, 1, 2, 7, 6, 5, 1, 0]
    model = FiveGram([text], vocabulary=9)
    for context in ([], [1], [0, 1, 2], [8, 8], [3, 4, 5, 0, 1]):
        assert sum(model.probability(context, token) for token in range(9)) == pytest.approx(1)
    assert model.probability([1, 2], 3) > model.probability([1, 2], 4) > 0
    assert model.perplexity([text]) < 9 < model.perplexity([[8, 8, 8]])


def test_every_configuration_makes_a_plan():
    for file in (ROOT / "conf/train").glob("*.yaml"):
        config = configured(file.stem)
        plan = Curriculum.parse(config)
        assert plan.at(plan.steps - 1)[0] == len(plan.stages) - 1
        assert plan.rate(plan.steps - 1) < 0.1
        assert max(stage.length for stage in plan.stages) <= config["model"]["max_position_embeddings"]


def test_the_large_model_is_of_the_size_that_its_name_says():
    with torch.device("meta"):
        model = network.build(configured("testbed-30m")["model"], seed=0)
    assert 25e6 < model.num_parameters() < 32e6
