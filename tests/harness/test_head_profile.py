"""Head profiles: measured as policies.md 3.9 says, written whole, and used for their own model only (T-26)."""

from __future__ import annotations

import json

import pytest
import torch
from engine.tiny import ARCHITECTURES, prompt, tiny_model
from reference.headkv import reasoning_score, retrieval_score

from harness.analysis.head_measurement import Trial, attended, copied, needle_span, run
from harness.cli.profile import main as make
from harness.config.head_profiles import identity, read, with_profile, write
from harness.config.model import ModelSpec
from harness.errors import CellError, UserError
from tasks.base import Sample

TESTBED = ModelSpec("testbed", "bundled/testbed")
HEADKV = {"allocator": {"name": "headkv", "profile": "bundled/testbed-r"}}


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_one_step_are_those_of_the_reference(seed):
    torch.manual_seed(seed)
    text = torch.randint(0, 4, (30,)).tolist()  # few tokens, so that copies happen
    rows, needle = (3 * torch.randn(6, 30)).softmax(-1), range(8, 20)
    for score, slow in (
        (copied, lambda row: retrieval_score([row], [2], text, needle)),
        (attended, lambda row: reasoning_score([row], needle)),
    ):
        expected = [slow(row.double().numpy()) for row in rows]
        assert score(rows, 2, text, needle).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["r", "r2"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_trial_sees_the_attention_of_one_pass_over_prompt_and_answer(architecture, kind):
    model = tiny_model(architecture)
    given = Trial(tuple(prompt(40)), range(5, 25), 4)
    scores, answer = run(model, given, kind, stops=())
    assert len(answer) == 4
    text = [*given.tokens, *answer]
    with torch.no_grad():
        whole = model(torch.tensor([text]), output_attentions=True).attentions
    for layer, probabilities in enumerate(whole):
        for head in range(4):
            rows = [probabilities[0, head, 39 + step, : 40 + step].double().numpy() for step in range(4)]
            slow = (
                retrieval_score(rows, answer, text, given.needle)
                if kind == "r"
                else reasoning_score(rows, given.needle)
            )
            assert scores[layer, head].item() == pytest.approx(slow, abs=1e-5)


def test_a_stop_token_ends_the_answer_and_is_not_scored():
    model = tiny_model("llama")
    given = Trial(tuple(prompt(40)), range(5, 25), 6)
    whole = run(model, given, "r2", stops=())
    scores, answer = run(model, given, "r2", stops=(whole[1][3],))
    assert answer == whole[1][: whole[1].index(whole[1][3])]
    assert (scores <= whole[0]).all() if answer else not len(scores)


def test_the_needle_is_the_whole_sentence_that_is_asked_for():
    text = "A. The code of the silver falcon is 00011. B. The code of the silver river is 00012. C.\nThe code of the"
    sample = Sample("s", text, ("00012",), axes={"form": "code"})
    start, stop = needle_span(sample)
    assert text[start:stop] == "The code of the silver river is 00012."
    with pytest.raises(UserError, match="task=niah"):
        needle_span(Sample("s", text, ("00013",), axes={"form": "code"}))


def test_a_profile_is_read_by_key_whatever_the_order(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"1-0": [2.0], "0-1": [1.0, 3.0], "1-1": [4.0], "0-0": [0.0, 4.0, 2.0]}))
    assert read(str(file)).importance == ((2.0, 2.0), (2.0, 4.0))


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "new" / "profile.json"
    write(file, [[[0.5, 0.25], [0.0, 0.0]]], {"model": "m", "fingerprint": {"hub": "m"}})
    profile = read(str(file))
    assert profile.scores == (((0.5, 0.25), (0.0, 0.0)),)
    assert (profile.model, profile.fingerprint) == ("m", {"hub": "m"})
    assert [path.name for path in file.parent.iterdir()] == ["profile.json"]


@pytest.mark.parametrize(
    "content",
    ["{}", "[1]", '{"0-0": []}', '{"0-0": [0.0]}', '{"0-0": [1], "1-1": [1]}', '{"0-0": [-1]}', '{"a-b": [1]}', "{"],
)
def test_other_files_are_refused(tmp_path, content):
    file = tmp_path / "profile.json"
    file.write_text(content)
    with pytest.raises(UserError, match=r"profile\.json"):
        read(str(file))


def test_a_missing_file_is_refused():
    with pytest.raises(UserError, match=r"python -m harness profile"):
        read("nowhere.json")


@pytest.mark.parametrize("kind", ["r", "r2"])
def test_the_testbed_brings_its_profiles(kind):
    profile = read(f"bundled/testbed-{kind}")
    assert profile.fingerprint == identity(TESTBED), "the testbed has changed: make its profiles anew"
    assert (len(profile.importance), len(profile.importance[0])) == (6, 8)


def test_the_path_is_replaced_by_what_it_holds():
    table = with_profile(HEADKV, TESTBED)["allocator"]["profile"]
    assert table == read("bundled/testbed-r").importance
    assert HEADKV["allocator"]["profile"] == "bundled/testbed-r"
    assert with_profile({"scorer": "tova"}, TESTBED) == {"scorer": "tova"}


def test_another_models_profile_needs_to_be_called_a_transfer():
    other = ModelSpec("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct")
    with pytest.raises(CellError) as refused:
        with_profile(HEADKV, other)
    assert "was measured on testbed, not on this llama3.1-8b" in str(refused.value)
    assert "model=llama3.1-8b kind=r" in str(refused.value)
    transferred = with_profile({"allocator": {**HEADKV["allocator"], "transfer": True}}, other)
    assert len(transferred["allocator"]["profile"]) == 6


def test_the_command_measures_the_testbed(tmp_path):
    file = tmp_path / "heads.json"
    make(["model=testbed", "kind=r2", f"out={file}", "task.lengths=[256]", "task.depths=[50]", "task.repeats=4"])
    content = json.loads(file.read_text())
    assert (content["kind"], content["layers"], content["heads"], content["trials"]) == ("R2", 6, 8, 4)
    assert content["task"]["seed"] == 1
    assert 1 <= content["recorded"] <= 4
    table = torch.tensor(read(str(file)).importance)
    best = torch.tensor(read("bundled/testbed-r2").importance).flatten().topk(8).indices
    assert len(set(table.flatten().topk(8).indices.tolist()) & set(best.tolist())) >= 6  # the same heads retrieve


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["out=/proc/x.json"], "choose another out="),
        (["kind=r"], "add out="),
        (["kind=r3", "out=x"], "not one of r, r2"),
        (["out=x", "model=hf"], "model.path"),
    ],
)
def test_bad_settings_are_refused(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        make(arguments)
    assert sentence in str(refused.value)
