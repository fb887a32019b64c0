"""`doctor` says what works and what to do; a shell can complete groups and settings without waiting for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cli import doctor
from harness.cli.doctor import CheckResult


@pytest.fixture
def quick(monkeypatch):
    """No network, no model."""
    monkeypatch.setattr(doctor, "_unreachable", lambda address: "no network in tests")
    monkeypatch.setattr(doctor, "_shipped_model", lambda: CheckResult("ok", "testbed", "generates"))


def said(capfd, results_dir) -> tuple[int, str]:
    code = doctor.main([f"results_dir={results_dir}"])
    return code, capfd.readouterr().out


def test_it_looks_at_everything_and_names_what_is_missing(quick, tmp_path, capfd):
    code, text = said(capfd, tmp_path)
    assert code == 0
    for what in ("torch", "device", "memory", "testbed", "results", "hub", "models here", "data longbench", "wandb"):
        assert what in text
    assert "hf download meta-llama/" in text
    assert "python -m scripts.fetch_data longbench --from hub" in text
    assert "no   hub " in text
    assert "The quick start will run" in text
    assert not list(tmp_path.iterdir())


def test_the_shipped_model_is_really_asked():
    assert doctor._shipped_model().state == "ok"


def test_without_torch_it_still_speaks_and_fails(quick, monkeypatch, tmp_path, capfd):
    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    code, text = said(capfd, tmp_path)
    assert code == 1
    assert "missing: torch; run 'make setup'" in text
    assert "Nothing can run until this is fixed: packages." in text


def test_a_model_that_fails_is_a_failure_with_its_reason(quick, monkeypatch, tmp_path, capfd):
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "_unreachable", lambda address: "")

    def fails():
        raise OSError("the weights\nare damaged")

    monkeypatch.setattr(doctor, "_generation", fails)
    code, text = said(capfd, tmp_path)
    assert code == 1
    assert "OSError: the weights are damaged" in text


def test_extras_that_are_not_installed_say_how_to_get_them(quick, monkeypatch, tmp_path, capfd):
    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    code, text = said(capfd, tmp_path)
    assert code == 0
    assert "no launcher=ray: pip install -e '.[ray]'" in text


def test_importing_it_loads_nothing_that_may_be_missing():
    heavy = "{'torch', 'transformers', 'hydra'}"
    code = f"import harness.cli.doctor, harness.cli.main, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def completed(line: str) -> list[str]:
    """What the shell is offered for a line, and the modules that were loaded for it."""
    code = (
        "import sys; sys.argv = ['kvreplica', '-sc', 'query=bash']; from harness.cli.main import main; main(); "
        "assert 'torch' not in sys.modules"
    )
    environment = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kvreplica policy=caote_s", {"policy=caote_snapkv", "policy=caote_scissorhands"}),
        ("kvreplica task=book_perplexity policy=keydiff bud", {"budget=", "budget_of=", "budget_slots="}),
        ("kvreplica policy.sch", {"policy.schedule."}),
    ],
)
def test_groups_and_settings_are_completed_without_torch(line, offered):
    assert set(completed(line)) == offered


def test_a_reader_that_stops_reading_is_no_error():
    command = f"{sys.executable} -m harness list exps | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("buzz/all")
    assert done.stderr == ""
