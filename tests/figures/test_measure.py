"""``python -m harness figures``: diagnostics are measured once, then figures are drawn from what is stored."""

from __future__ import annotations

import re
import sys

import pytest

from harness.cli import main as command_line


@pytest.fixture
def call(monkeypatch, tmp_path, capfd):
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["harness", "figures", *arguments, f"results_dir={tmp_path}"])
        code = 0
        try:
            command_line.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return run


def test_what_is_stored_is_not_measured_again_and_is_drawn(call, tmp_path):
    arguments = ("paper=kvec", "item=figure_3", "scale=mini", "device=cpu")
    code, printed, error = call(*arguments)
    assert code == 0, error
    assert re.search(r"^[1-9]\d* samples diagnosed", printed, re.MULTILINE)
    code, printed, error = call(*arguments, f"draw={tmp_path / 'drawn'}")
    assert code == 0, error
    assert re.search(r"^0 samples diagnosed", printed, re.MULTILINE)
    assert (tmp_path / "drawn" / "figure_3.svg").read_text().startswith("<svg")
    assert (tmp_path / "drawn" / "figure_3.png").stat().st_size > 1000


CASES = {
    "no paper": ([], "Say which paper's figures are meant: paper=keydiff"),
    "paper": (["paper=keydif"], "There is no paper called 'keydif'. Did you mean keydiff?"),
    "item": (["paper=kvec", "item=figure_9"], "kvec has no figure called 'figure_9'."),
    "scale": (["paper=kvec", "scale=huge"], "There is no scale called 'huge'."),
    "no setting": (["keydiff"], "'keydiff' is not a setting"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_ends_in_one_sentence(case, call, tmp_path):
    arguments, sentence = CASES[case]
    code, _, error = call(*arguments)
    assert code == 2
    assert sentence in error
    assert error.count("\n") == 1
