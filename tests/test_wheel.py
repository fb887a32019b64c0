"""A wheel works by itself: installed in another environment and run from another folder, it has all that it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from harness.config.experiments import option_names

ROOT = Path(__file__).parent.parent
BUILT_FROM = ("conf", "harness", "hydra_plugins", "policies", "results/published", "scripts", "tasks")
FILES = ("LICENSE", "README.md", "pyproject.toml")
SMALL = ["task=niah", "task.lengths=[128]", "task.depths=[50]", "task.repeats=1", "device=cpu", "limit=1"]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of an environment that has the wheel; other packages are those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in BUILT_FROM:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, source], check=True, capture_output=True)
    (wheel,) = folder.glob("kvreplica-*.whl")
    venv.create(folder / "env", with_pip=False)
    installed = next((folder / "env").glob("lib*/python*/site-packages"))
    subprocess.run([*pip, "install", "--no-deps", "--no-compile", "--target", installed, wheel], check=True)
    # Paths in a .pth file are searched last, and the .pth files there (this checkout's own) are not read.
    (installed / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.rmtree(source)
    return folder / "env" / "bin" / "python"


@pytest.fixture
def call(python, tmp_path):
    """Run the interpreter in an empty folder; what it printed. Fails where the exit code is not 0."""

    def run(*arguments: str) -> str:
        done = subprocess.run([python, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_it_is_the_wheel_that_runs(call, python):
    where = Path(call("-c", "import harness; print(harness.__file__)").strip())
    assert where.is_relative_to(python.parents[1])


def test_it_has_every_configuration(call):
    listed = call("-m", "harness", "list", "exps").splitlines()
    assert len(listed) == len(option_names("exp"))


def test_it_has_the_papers_and_their_claims(call, tmp_path):
    (tmp_path / "results").mkdir()
    assert "KD-01" in call("-m", "harness", "claims", "paper=keydiff")
    assert "Report:" in call("-m", "harness", "report", "paper=buzz")


def test_it_runs_the_shipped_model(call, tmp_path):
    said = call("-m", "harness", *SMALL, "policy=keydiff", "budget=32", "block_size=32", "references=[]")
    assert "1 samples computed" in said
    assert list((tmp_path / "results" / "runs").rglob("*.parquet"))


def test_the_command_that_fetches_data_is_there(call):
    assert "longbench" in call("-m", "scripts.fetch_data", "--help")
