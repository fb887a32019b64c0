"""``python -m harness claims``: claims with their verdicts, and sentences for bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.cli import claims
from harness.cli import main as command_line
from harness.store.store import Store


@pytest.fixture
def shown(monkeypatch, capsys):
    """Run the command; its exit code and what it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["harness", "claims", *arguments])
        monkeypatch.setattr(claims.console, "width", 200)
        code = 0
        try:
            command_line.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def stored(folder: Path, policy: str, values: np.ndarray) -> None:
    """A cell of the testbed on the needle grid, blocks of 128, budget 25%."""
    store = Store(folder / "runs")
    labels = {
        "cell_id": policy.replace("/", "_"), "model": "testbed", "policy": policy, "budget": "25%", "prompt": "blocked",
        "block_size": 128, "task": "needle/grid", "dtype": "float32", "seed": 0, "config": {}, "created": "2026-11-21",
    }  # fmt: skip
    store.describe(labels["cell_id"], labels)
    common = {"metric": "contains", "weight": 1.0, "document": "", "invalid": "", "slots_requested": 64}
    store.append(
        labels["cell_id"],
        [{"sample_id": f"s{n}", "value": float(value), **common} for n, value in enumerate(values)],
    )
    assert json.loads((folder / "runs" / labels["cell_id"] / "cell.json").read_text())["policy"] == policy


def test_every_claim_says_what_is_missing_where_there_are_no_rows(shown, tmp_path):
    code, text = shown("paper=keydiff", f"results_dir={tmp_path}")
    assert code == 0
    assert "There are no rows" in text
    assert "keydiff: 1 reproduced, 0 not reproduced, 0 inconclusive, 0 no contrast, 24 not comparable" in text
    assert all(f"KD-{number:02}" in text for number in range(1, 26))
    assert "Not measured: there are no rows of keydiff, h2o/keydiff" in text


def test_verdicts_come_from_the_rows_of_the_folder(shown, tmp_path):
    rng = np.random.default_rng(1)
    for policy, level in (("keydiff", 0.9), ("tova/keydiff", 0.2), ("sink", 0.3)):
        stored(tmp_path, policy, rng.random(80) < level)
    code, text = shown("paper=keydiff", f"results_dir={tmp_path}")
    assert code == 0
    assert "keydiff: 2 reproduced, 0 not reproduced, 0 inconclusive, 0 no contrast, 23 not comparable" in text
    assert "testbed (scale=mini) stands in for the papers' models" in text
    assert "Holds here: keydiff at 25% > sink at 25%" in text
    _, at_full_scale = shown("paper=keydiff", f"results_dir={tmp_path}", "scale=full")
    assert "keydiff: 1 reproduced" in at_full_scale  # what is computed holds without rows
    assert "rows are of testbed, the paper's is" in at_full_scale


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["paper=keydif"], "There is no paper called 'keydif'. Did you mean keydiff?"),
        (["papr=keydiff"], "There is no setting 'papr'. Did you mean paper?"),
        (["keydiff"], "'keydiff' is not a setting: write key=value, for example paper="),
        (["scale=big"], "There is no scale called 'big'. Known: full, mini, small."),
        (["results_dir=/does/not/exist"], "There is no folder /does/not/exist"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(shown, arguments, sentence):
    code, text = shown(*arguments)
    assert code == 2
    assert sentence in text
    assert "Traceback" not in text
