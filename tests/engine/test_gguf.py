"""A GGUF file is the model that it was made from: configuration, weights, tokenizer, chat format, identity."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from tiny import prompt, tiny_model
from tiny_gguf import CHAT, TOKENS, write_gguf

from harness.config import gguf_model, identity
from harness.config.model import ModelSpec
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from harness.errors import MissingInputError, UserError
from policies import DENSE


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """Converted models of this module."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVREPLICA_CACHE", str(folder))
        yield folder / "gguf"


@pytest.fixture(scope="module")
def original():
    return tiny_model("llama", vocab_size=len(TOKENS), rms_norm_eps=1e-5)


@pytest.fixture(scope="module")
def file(original, tmp_path_factory):
    return write_gguf(original, tmp_path_factory.mktemp("gguf") / "tiny-F32.gguf")


def spec(**settings) -> ModelSpec:
    return ModelSpec.parse({"dtype": "float32", **{name: str(value) for name, value in settings.items()}})


def test_the_weights_are_those_of_the_original(original, file):
    loaded = spec(path=file).load("cpu")
    for name, weight in original.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight, rtol=0, atol=0, msg=name)


def test_the_engine_generates_the_tokens_of_the_original(original, file):
    request = Request(prompt(60), DENSE, max_new_tokens=12)
    loaded = spec(path=file).load("cpu")
    loaded.generation_config.eos_token_id = None
    (ours,) = Engine(loaded).generate([request], Prompting("blocked", 16))
    (expected,) = Engine(original).generate([request], Prompting("blocked", 16))
    assert ours.tokens == expected.tokens


def test_settings_are_the_decimals_that_the_author_wrote(original, file):
    config = spec(path=file).config()
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters["rope_theta"] == original.config.rope_parameters["rope_theta"]
    assert config.max_position_embeddings == original.config.max_position_embeddings


def test_the_shape_is_read_without_weights(file):
    shape = spec(path=file).shape()
    assert (shape.layers, shape.kv_heads, shape.query_heads) == (3, 2, 4)


def test_it_can_be_saved_and_loaded_as_any_model(file, tmp_path):
    model = spec(path=file).load("cpu")
    model.save_pretrained(tmp_path)
    again = spec(path=tmp_path).load("cpu")
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("text", ["the number 1234", "a  12 \n\n  34  ", "Überraschung: 7,5 % – 老師", "   "])
def test_texts_come_back_and_digits_stand_alone(file, text):
    tokenizer = spec(path=file).tokenizer()
    tokens = tokenizer(text).input_ids
    assert tokenizer.decode(tokens) == text
    pieces = tokenizer.convert_ids_to_tokens(tokens)
    assert all(len(piece) == 1 for piece in pieces if any(letter.isdigit() for letter in piece))


def test_what_stands_before_a_digit_is_not_cut_for_it(file):
    """Two spaces are one token here; without the rule the second would go with the digit."""
    tokenizer = spec(path=file).tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer("a  1").input_ids) == ["a", "ĠĠ", "1"]


def test_the_chat_format_comes_from_the_file(file):
    tokenizer = spec(path=file).tokenizer()
    assert tokenizer.chat_template == CHAT
    tokens = tokenizer.apply_chat_template([{"role": "user", "content": "the"}], tokenize=True)["input_ids"]
    assert TOKENS[tokens[0]] == "<|im_start|>"
    assert TOKENS[tokens[-2]] == "<|im_end|>"
    assert tokenizer.eos_token_id == 2


def test_a_folder_names_its_file_or_has_only_one(file, original):
    folder = file.parent
    by_path, by_name, alone = spec(path=file), spec(path=folder, gguf_file=file.name), spec(path=folder)
    assert by_path.identity() == by_name.identity() == alone.identity()
    assert by_path.name == "tiny-F32"
    assert by_name.tokenizer().get_vocab() == by_path.tokenizer().get_vocab()


def test_another_byte_is_another_model(file, tmp_path):
    copy = tmp_path / file.name
    data = bytearray(file.read_bytes())
    copy.write_bytes(data)
    assert spec(path=copy).identity() == spec(path=file).identity()
    data[-100] ^= 1
    copy.write_bytes(data)
    identity.hash_files.cache_clear()
    assert spec(path=copy).identity() != spec(path=file).identity()


@pytest.mark.parametrize("length", [0, 3, 20, 2000, -1000])
def test_a_file_that_was_cut_off_is_refused(file, tmp_path, length):
    part = tmp_path / "part.gguf"
    part.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UserError, match=r"part\.gguf is no complete GGUF file .*: it is damaged or cut off"):
        spec(path=part).load("cpu")


def test_an_architecture_that_transformers_cannot_read_is_named(original, tmp_path):
    file = write_gguf(original, tmp_path / "new.gguf", architecture="mamba99")
    with pytest.raises(UserError, match=r"architecture 'mamba99', which transformers .* use its original weights"):
        spec(path=file).config()


def test_a_missing_package_is_named_with_the_command(file, monkeypatch, tmp_path):
    monkeypatch.setenv("KVREPLICA_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"is read with the package gguf: pip install gguf accelerate\."):
        gguf_model.described(file)


def test_a_file_is_converted_once_whole_and_for_each_type_apart(file, monkeypatch, tmp_path):
    monkeypatch.setenv("KVREPLICA_CACHE", str(tmp_path))
    spec(path=file).load("cpu")
    spec(path=file, dtype="bfloat16").load("cpu")
    made = sorted(folder.name.rpartition("-")[2] for folder in (tmp_path / "gguf").iterdir())
    assert made == ["bfloat16", "description", "float32"]
    monkeypatch.setattr(gguf_model, "_text_fields", lambda file: pytest.fail("it was read again"))
    assert spec(path=file).load("cpu").dtype == torch.float32


def test_a_conversion_that_fails_leaves_nothing(original, monkeypatch, tmp_path):
    monkeypatch.setenv("KVREPLICA_CACHE", str(tmp_path))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(write_gguf(original, tmp_path / "whole.gguf").read_bytes()[:3000])
    with pytest.raises(UserError):
        spec(path=broken).config()
    assert list((tmp_path / "gguf").iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.config import gguf_model
def write(file, folder):
    (folder / "config.json").write_text("{")
    os.kill(os.getpid(), signal.SIGKILL)
gguf_model._write_description = write
gguf_model.described(Path(sys.argv[1]))
"""


def test_what_a_killed_conversion_left_goes_at_the_next_and_is_never_used(file, monkeypatch, tmp_path):
    monkeypatch.setenv("KVREPLICA_CACHE", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = (tmp_path / "gguf").iterdir()
    assert (left / "config.json").read_text() == "{"
    assert spec(path=file).config().vocab_size == len(TOKENS)
    (whole,) = (tmp_path / "gguf").iterdir()
    assert whole != left
    assert whole.suffix != ".part"


@pytest.fixture(scope="module")
def ended():
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


@pytest.mark.parametrize(
    ("host", "pid", "days", "stays"),
    [
        ("here", "running", 2, True),
        ("here", "ended", 0, False),
        ("elsewhere", "ended", 0, True),  # a process of another machine cannot be asked
        ("elsewhere", "ended", 2, False),
    ],
)
def test_what_another_process_is_converting_now_stays(host, pid, days, stays, ended, file, monkeypatch, tmp_path):
    monkeypatch.setenv("KVREPLICA_CACHE", str(tmp_path))
    where = socket.gethostname().replace(".", "-") if host == "here" else host
    number = os.getppid() if pid == "running" else ended
    other = tmp_path / "gguf" / f".0123456789abcdef-1-bfloat16.{where}.{number}.89abcdef.part"
    other.mkdir(parents=True)
    (other / "config.json").touch()
    changed = time.time() - days * 24 * 3600 - 60
    os.utime(other, (changed, changed))
    spec(path=file).config()
    assert other.exists() == stays


@pytest.fixture
def beside(file, tmp_path):
    """A folder with a model's own files and a GGUF file."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "tiny-F32.gguf").symlink_to(file)
    return tmp_path


def test_a_file_beside_a_config_is_the_model_where_it_is_named(beside, file):
    assert spec(path=beside, gguf_file="tiny-F32.gguf").identity() == spec(path=file).identity()
    assert spec(path=beside).identity() != spec(path=file).identity()


@pytest.mark.parametrize("use", [ModelSpec.identity, ModelSpec.config, ModelSpec.tokenizer])
def test_a_misspelt_file_is_not_the_model_beside_it(use, beside):
    (beside / "other.gguf").touch()
    with pytest.raises(UserError) as refused:
        use(spec(path=beside, gguf_file="tiny-F23.gguf"))
    assert str(refused.value) == (
        f"The folder {beside} has no file tiny-F23.gguf, which model.gguf_file names; its GGUF files are other.gguf, "
        "tiny-F32.gguf: write model.gguf_file=tiny-F32.gguf, or leave model.gguf_file out for the model that its "
        "config.json describes."
    )


def test_a_file_that_is_named_where_there_is_none_is_refused_too(tmp_path):
    with pytest.raises(UserError, match=r"no file x\.gguf, .*its GGUF files are none: correct model\.path\.$"):
        spec(path=tmp_path, gguf_file="x.gguf").identity()


def test_two_files_are_not_named_at_once(file):
    with pytest.raises(UserError, match=r"is a file, and model\.gguf_file=other\.gguf another: leave one of them out"):
        spec(path=file, gguf_file="other.gguf").identity()


@pytest.fixture
def hub_cache(monkeypatch, tmp_path):
    """The files of one hub repository that are in the local cache."""

    def holding(*names):
        def cached(repository, name, revision=None):
            return str(tmp_path / name) if name in names else None

        monkeypatch.setattr("harness.config.model_files.try_to_load_from_cache", cached)

    return holding


def test_a_file_of_the_hub_that_is_not_here_is_not_the_model_that_is(hub_cache):
    wanted = spec(path="owner/name", gguf_file="x.gguf")
    hub_cache("config.json", "x.gguf")
    assert wanted.gguf is not None
    hub_cache("config.json")
    with pytest.raises(MissingInputError, match=r"not its file x\.gguf, .*'hf download owner/name x\.gguf', or leave"):
        wanted.identity()
    hub_cache()
    assert wanted.identity()["hub"] == "owner/name"  # loading it says how to fetch it


def test_a_missing_file_is_named():
    with pytest.raises(UserError, match=r"There is no file /nowhere/model\.gguf: correct model\.path"):
        spec(path="/nowhere/model.gguf").config()
