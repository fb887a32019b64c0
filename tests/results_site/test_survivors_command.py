"""``python -m harness survivors``: one sample, several policies, and bad input in one sentence."""

from __future__ import annotations

import pandas as pd
import pytest
from results_site.conftest import WATCHED

from harness.cli import survivors
from harness.store import cell_folders


def test_all_policies_are_fed_the_same_tokens_with_their_text(results):
    root = results / "diagnostics"
    found = {cell_folders.read_description(root / name)["policy"]: name for name in cell_folders.cell_names(root)}
    assert set(found) == {"keydiff", "sink", "random"}
    texts = []
    for name in found.values():
        frame = pd.read_parquet(root / name / "survivors")
        once = frame[(frame["layer"] == 0) & (frame["head"] == 0)].sort_values("position")
        assert set(once["phase"]) == {"prompt", "decode"}
        assert (frame.groupby("position")["text"].nunique() == 1).all()
        texts.append(("".join(once["text"]), once["token"].tolist()))
    assert texts[0] == texts[1] == texts[2]
    assert "Question: What is" in texts[0][0]


def test_a_sample_is_chosen_by_its_id(call, tmp_path):
    several = [each if each != "task.depths=[20]" else "task.depths=[20,80]" for each in WATCHED[1:]]
    code, printed = call(survivors, "policy=sink", *several, f"results_dir={tmp_path}", "sample=L192-d80-r0")
    assert code == 0, printed
    assert [file.stem for file in tmp_path.rglob("*.parquet")] == ["L192-d80-r0"]
    assert f"python -m harness site results_dir={tmp_path}" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["policy=sink", "sample=L192-d21-r0"], "has no sample 'L192-d21-r0': try L192-d20-r0."),
        (["policy=sink,keydif"], "There is no policy called 'keydif'. Did you mean keydiff"),
        (["policy=sink", "limit=0"], "at least 1"),
        (["policy=gemfilter", "prompt=one_shot"], "choose another policy"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(call, tmp_path, arguments, sentence):
    code, printed = call(survivors, *WATCHED[1:], *arguments, f"results_dir={tmp_path}")
    assert code == 2
    assert sentence in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))
