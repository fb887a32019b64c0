"""Bad input: one sentence with the remedy on stderr, exit code 2, no traceback, no half-written result."""

from __future__ import annotations

import sys

import pytest

from harness import __main__ as command

CASES = {
    "unknown policy": (["policy=keydif"], "There is no policy called 'keydif'. Did you mean keydiff"),
    "unknown policy in a sweep": (["-m", "policy=h2o,keydif"], "no policy called 'keydif'. Did you mean keydiff"),
    "unknown task": (["task=nia"], "There is no task called 'nia'. Did you mean niah?"),
    "unknown model": (["model=llama3.2-3"], "There is no model called 'llama3.2-3'. Did you mean llama3.2-3b"),
    "unknown experiment": (["+exp=niahh"], "There is no exp called 'niahh'. Did you mean niah?"),
    "unknown setting": (["blocksize=3"], "There is no setting 'blocksize'. Did you mean block_size?"),
    "unknown task setting": (["+task.lenghts=[3]"], "no parameter 'lenghts'. Did you mean lengths?"),
    "unknown part": (["policy.scorer=keydif"], "no scorer called 'keydif'. Did you mean keydiff?"),
    "unknown regime": (["prompt=streamed"], "Known: blocked, one_shot, token_fed"),
    "budget below the protected": (["policy=snapkv", "budget=20"], "raise the budget to at least 32"),
    "share below the protected": (["policy=snapkv", "budget=2%"], "raise the budget to at least 32"),
    "no budget": (["budget=lots"], "budget=lots is not a budget"),
    "negative budget": (["budget=-3"], "budget=-3 is not a budget"),
    "unknown denominator": (["budget_of=all"], "budget_of='all' is not one of"),
    "empty blocks": (["block_size=0"], "give at least 1 token per block"),
    "missing hub model": (["model=qwen2.5-3b"], "fetch it with 'hf download Qwen/Qwen2.5-3B-Instruct'"),
    "gated hub model": (["model=llama3.2-3b"], "accept its licence at https://huggingface.co/meta-llama/"),
    "no model path": (["model=hf"], "add model.path=<folder or hub id>"),
    "missing folder": (["model=hf", "model.path=./nowhere"], "There is no folder ./nowhere"),
    "folder without a model": (["model=hf", "model.path=tests"], "holds no model that transformers can load"),
    "unknown dtype": (["model.dtype=float"], "Did you mean float32 or float16"),
    "too long a prompt": (["task.lengths=[5000]"], "needs 5010 positions, but the model was made for 4096"),
    "too short a prompt": (["task.lengths=[40]"], "Use"),
    "no samples": (["limit=0"], "at least 1"),
    "no such device": (["device=cuda"], "use device=cpu"),
    "grammar": (["policy=[h2o"], "The command line could not be read"),
    "unknown list": (["list", "polices"], "There is no list of 'polices'. Did you mean policies?"),
}


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The command line in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["harness", *arguments])
    try:
        command.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("case", CASES)
def test_it_ends_in_one_sentence(case, monkeypatch, tmp_path, capfd):
    arguments, sentence = CASES[case]
    where = [] if arguments[0] == "list" else [f"results_dir={tmp_path}/out"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run([*arguments, *where], monkeypatch) == 2
    captured = capfd.readouterr()
    assert sentence in captured.err
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("cell.json"))


def test_an_unwritable_results_folder_is_named_before_anything_is_computed(monkeypatch, tmp_path, capfd):
    (tmp_path / "file").touch()
    assert run([f"results_dir={tmp_path}/file/out", "limit=1"], monkeypatch) == 2
    error = capfd.readouterr().err
    assert "Results cannot be written to" in error
    assert "results_dir=<folder>" in error


def test_the_same_in_a_sweep(monkeypatch, tmp_path, capfd):
    (tmp_path / "file").touch()
    assert run(["-m", "policy=h2o,tova", f"results_dir={tmp_path}/file/out", "limit=1"], monkeypatch) == 2
    assert "choose another results_dir" in capfd.readouterr().err
