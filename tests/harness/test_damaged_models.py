"""A folder whose files are no model, or not of one model, is refused in one sentence: never rows of random weights."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest

from harness.config.model import ModelSpec, eos_token_ids
from harness.config.model_files import BUNDLED
from harness.errors import UserError


def configured(**changes):
    def change(folder):
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def truncated(name):
    def change(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return change


def replaced(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def with_a_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": print}))


OF_ANOTHER_MODEL = {
    "more layers than weights": (configured(num_hidden_layers=20), "126 are missing, such as model.layers.10"),
    "fewer layers than weights": (configured(num_hidden_layers=2), "36 are unexpected, such as model.layers.2"),
    "another width": (configured(intermediate_size=64), "18 are mismatched, such as model.layers.0.mlp.down_proj"),
    "another vocabulary": (configured(vocab_size=64), "1 are mismatched, such as model.embed_tokens"),
    "another architecture": (configured(model_type="bert"), "108 are missing, such as bert.embeddings"),
}
DAMAGED = {
    "half of the weights": truncated("model.safetensors"),
    "empty weights": replaced("model.safetensors", b""),
    "half of the tokenizer": truncated("tokenizer.json"),
    "an empty tokenizer": replaced("tokenizer.json", b"{}"),
    "half of the configuration": truncated("config.json"),
    "a configuration that is a list": replaced("config.json", b"[]"),
    "no heads": configured(num_attention_heads=0),
    "a pickle": with_a_pickle,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "code of its own": configured(model_type="own", auto_map={"AutoConfig": "own.Config"}),
}


def damaged(tmp_path, change):
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED / "testbed", folder)
    change(folder)
    return ModelSpec.parse({"path": str(folder)})


@pytest.mark.parametrize("case", OF_ANOTHER_MODEL)
def test_weights_of_another_model_are_never_filled_up_with_random_ones(case, tmp_path, capfd):
    change, sentence = OF_ANOTHER_MODEL[case]
    with pytest.raises(UserError, match=f"not those that its config.json describes: {sentence}"):
        damaged(tmp_path, change).load("cpu")
    assert "LOAD REPORT" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_no_model_is_one_sentence(case, tmp_path):
    spec = damaged(tmp_path, DAMAGED[case])
    with pytest.raises(UserError, match=r"^The folder \S+ holds no model that transformers can load: [^\n]+$"):
        (spec.tokenizer(), spec.load("cpu"))


def test_code_in_a_folder_is_never_run_nor_asked_about(tmp_path, monkeypatch):
    """With a terminal transformers would ask whether to run it, and 'y' runs it."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))

    def change(folder):
        (folder / "own.py").write_text("raise SystemExit('the code was run')")
        configured(auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})(folder)

    assert type(damaged(tmp_path, change).load("cpu")).__name__ == "LlamaForCausalLM"


@pytest.mark.parametrize("stops", [[[1]], "x", True, {"a": 1}, 0.5], ids=str)
def test_stop_tokens_that_are_no_tokens_are_named(stops, tmp_path):
    model = damaged(tmp_path, lambda folder: None).load("cpu")
    model.generation_config.eos_token_id = stops
    with pytest.raises(UserError, match=r"^The stop tokens of the model are .*: mend eos_token_id in its "):
        eos_token_ids(model)
