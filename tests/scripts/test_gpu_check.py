"""`python -m scripts.gpu_check` runs to its end on any machine, and one failing step costs no other its result."""

from __future__ import annotations

import json
import sys
import time

import torch

from scripts.gpu_check.__main__ import _in_a_process, main

TINY = ["--device", "cpu", "--tiny"]


def test_the_tiny_check_runs_to_its_end_and_writes_what_it_found(tmp_path, capsys):
    file = tmp_path / "check.json"
    assert main([*TINY, "--json", str(file)]) == 0
    found = json.loads(file.read_text())["found"]
    assert {name: step["end"] for name, step in found.items()} == dict.fromkeys(("tests", "one layer", "tiny"), "done")
    assert found["tests"]["lines"][0]["passed"] == 1
    lines = {line["what"]: line for line in found["tiny"]["lines"]}
    assert lines["prompt: h2o, graphs"]["tokens/s"] > 0
    assert lines["decode: caote_snapkv, graphs"]["ms/step"] > 0
    assert "decode: caote_snapkv, graphs" in capsys.readouterr().out


def test_what_it_cannot_do_is_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 2
    assert "torch sees no GPU here" in capsys.readouterr().out
    assert main([*TINY, "8b"]) == 2
    assert "There is no step '8b': the steps are tests, one layer, tiny." in capsys.readouterr().out


def test_a_step_that_is_cut_off_keeps_the_lines_that_it_had(monkeypatch):
    program = 'import time; print(\'{"what": "first"}\', flush=True); time.sleep(60)'
    monkeypatch.setattr("scripts.gpu_check.__main__._command", lambda name, device: [sys.executable, "-c", program])
    step = _in_a_process("tests", "cpu", time.monotonic() + 2)
    assert step["end"].startswith("cut off")
    assert step["lines"] == [{"what": "first"}]
    assert _in_a_process("tests", "cpu", time.monotonic() - 1)["end"].startswith("not begun")
