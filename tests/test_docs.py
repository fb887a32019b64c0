"""The documentation builds without a warning, its Python runs, and nothing public is without a docstring."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from harness.cli.main import COMMANDS
from tasks.base import Likelihood

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "policies", "tasks")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
NAMED = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_site_builds_and_any_warning_is_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert 'src="http' not in (tmp_path / "index.html").read_text()
    reference = (tmp_path / "reference.html").read_text()
    assert all(f'id="{name}"' in reference for name in NAMED)


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_public_says_what_it_is(hooks):
    assert hooks.undocumented(ROOT) == []


def test_the_build_warns_of_what_says_nothing(hooks, tmp_path, monkeypatch):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.py").write_text(
        'class Mine:\n    """Said."""\n    def score(self): ...\n    def _own(self): ...\ndef made(): ...\n'
    )
    warned = []
    monkeypatch.setattr(hooks.LOGGER, "warning", lambda message, *values: warned.append(message % values))
    hooks.on_pre_build(types.SimpleNamespace(config_file_path=str(tmp_path / "mkdocs.yml")))
    assert [each.partition(" ")[0] for each in warned] == ["policies/mine.py:Mine.score", "policies/mine.py:made"]


def test_what_a_protocol_describes_need_not_be_said_again(hooks, tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.py").write_text(
        'class Scorer(Protocol):\n    """A."""\n    def score(self):\n        """Said."""\n    def other(self): ...\n'
        'class Mine:\n    """Said."""\n    def score(self): ...\n    def other(self): ...\ndef score(): ...\n'
    )
    found = [name.partition(":")[2] for name in hooks.undocumented(tmp_path)]
    assert found == ["Scorer.other", "Mine.other", "score"]


def test_what_can_be_imported_from_the_package_is_in_the_reference():
    import harness

    assert {each.rpartition(".")[2] for each in NAMED} >= set(harness.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is_for(package):
    silent = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / package).rglob("*.py")
        if file.read_text().strip() and not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert not silent


def test_the_python_page_runs(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python.md", "python"):
        exec(block, names)
    assert names["rows"].groupby("cell_id").size().tolist() == [2] * 5  # two policies at two budgets, and dense
    assert capfd.readouterr().out


def test_the_task_of_the_page_is_a_task(monkeypatch):
    (code,) = blocks("add-a-task.md", "python")
    names: dict[str, object] = {"__name__": "countdown_of_the_docs"}
    monkeypatch.setitem(sys.modules, "countdown_of_the_docs", type(sys)("countdown_of_the_docs"))
    exec(code, names)
    task = names["Countdown"]()
    samples = task.samples(tokenizer=None)
    assert [sample.references for sample in samples] == [("2",), ("4",), ("6",)]
    assert task.score(samples[0], " 2, 1") == {"match": 1.0}
    assert task.score(samples[0], " 3") == {"match": 0.0}
    with pytest.raises(ValueError, match="asks for no likelihoods"):
        task.score_continuations(samples[0], [Likelihood(0.0, 1, True)])


def test_every_paper_has_its_notes_and_each_names_what_runs_it():
    for paper in ("keydiff", "caote", "buzz", "hashevict", "kvec"):
        notes = (ROOT / "docs" / "papers" / f"{paper}.md").read_text()
        assert f"make reproduce-{paper}" in notes
        (item,) = re.findall(r"\+exp=([\w/]+) scale=mini", notes)
        assert (ROOT / "conf" / "exp" / f"{item}.yaml").exists()


NAMING = [ROOT / "README.md", ROOT / "Makefile", *PAGES, *sorted((ROOT / "conf").rglob("*.yaml"))]
NAMING += [ROOT / "results" / "published" / "PROVENANCE.md", ROOT / "results" / "reference" / "README.md"]
ROOMS = "harness|policies|tasks|scripts|tests|conf|docs|hydra_plugins"
PATH = re.compile(rf"(?<![\w/.])((?:{ROOMS})/[\w./-]*\w)(?!/?[-.]?[\w<*{{$])")
DOTTED = re.compile(r"(?<![\w/.-])((?:harness|policies|tasks|scripts)(?:\.[a-z_]\w*)+)(?!\w)")
COMMAND = re.compile(r"(?:python -m harness|`kvreplica(?![.\w]))((?:\.\w+)*)(?: ([a-z_]+)(?=[ `\n|]))?")
MADE_LATER = {"conf/model/my-model.yaml", "conf/task/countdown.yaml", "tests/__pycache__"}


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_and_modules_that_a_page_names_exist(page):
    text = page.read_text()
    for name in set(PATH.findall(text)) - MADE_LATER:
        assert (ROOT / name).exists(), name
    for name in DOTTED.findall(text):
        if name.rpartition(".")[2] not in ("md", "py", "yaml", "json", "jsonl"):
            assert is_importable(name), name


def is_importable(name: str) -> bool:
    """Whether a dotted name is a module, or something that a module has."""
    module, _, attribute = name.rpartition(".")
    try:
        if importlib.util.find_spec(name):
            return True
    except ModuleNotFoundError:
        pass
    return bool(module) and hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_that_a_page_shows_are_known(page):
    for module, word in COMMAND.findall(page.read_text()):
        assert not module, f"python -m harness{module}: write it as a command, python -m harness <command>"
        assert not word or word in COMMANDS, word


PRESETS = re.compile(r"`((?:keydiff|h2o|tova|snapkv|sink|buzz|hashevict|kvec|l2|caote_\w+)/[\w-]+)`")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "papers").glob("*.md")), ids=lambda page: page.stem)
def test_presets_that_the_notes_name_exist(page):
    for name in PRESETS.findall(page.read_text()):
        assert (ROOT / "conf" / "policy" / f"{name}.yaml").exists(), name
