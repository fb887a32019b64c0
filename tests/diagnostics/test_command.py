"""``python -m harness diagnose``: frames on disk, short tables, and bad input in one sentence."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from harness.analysis.diagnostics import DIAGNOSTICS
from harness.cli import main as command_line

SMALL = ["task.lengths=[192]", "task.repeats=1", "task.depths=[20,80]", "block_size=32", "device=cpu"]


@pytest.fixture
def call(monkeypatch, tmp_path, capfd):
    """Run a command line; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["harness", "diagnose", *arguments, f"results_dir={tmp_path}"])
        code = 0
        try:
            command_line.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return run


def test_every_diagnostic_writes_a_frame_and_shows_a_table(call, tmp_path):
    code, printed, error = call("policy=caote_h2o", f"what=[{','.join(DIAGNOSTICS)}]", *SMALL)
    assert code == 0, error
    (folder,) = (tmp_path / "diagnostics").iterdir()
    for name in DIAGNOSTICS:
        (file,) = folder.glob(f"{name}/*.parquet")
        frame = pd.read_parquet(file)
        assert len(frame)
        assert frame["sample_id"].unique().tolist() == [file.stem]
        assert f"{name}, {len(frame):,} rows" in printed
    assert (folder / "cell.json").exists()


def test_samples_lie_side_by_side(call, tmp_path):
    code, _, error = call("policy=keydiff", "what=[coverage]", "limit=2", *SMALL)
    assert code == 0, error
    (folder,) = (tmp_path / "diagnostics").glob("*/coverage")
    assert len(list(folder.iterdir())) == pd.read_parquet(folder)["sample_id"].nunique() == 2


CASES = {
    "unknown diagnostic": (["what=[coverge]"], "There is no diagnostic called 'coverge'. Did you mean coverage"),
    "nothing": ([], "add what=[kept,survivors]"),
    "no list": (["what=kept"], "give a list of texts in brackets, what=[kept]."),
    "unknown policy": (["what=[kept]", "policy=keydif"], "There is no policy called 'keydif'. Did you mean keydiff"),
    "unknown setting": (["what=[kept]", "blocksize=3"], "There is no setting 'blocksize'. Did you mean block_size?"),
    "no mass": (["what=[score_ranks]"], "choose a policy over h2o, tova or snapkv"),
    "cache positions": (["what=[lsh]", "+policy.rope=cache"], "set policy.rope=absolute"),
    "no samples": (["what=[kept]", "limit=0"], "at least 1"),
    "token filter": (["what=[kept]", "policy=gemfilter", "prompt=one_shot"], "choose another policy"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_ends_in_one_sentence(case, call, tmp_path):
    arguments, sentence = CASES[case]
    code, _, error = call(*arguments)
    assert code == 2
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))
