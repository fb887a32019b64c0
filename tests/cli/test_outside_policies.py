"""docs/add-a-policy.md, executed: its class, its command lines; and whom we do not run."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.config.identity import part_description
from harness.config.model import ModelSpec
from harness.config.plugins import as_policy
from harness.config.policy_config import policy_from
from harness.store.loading import load_rows

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-policy.md").read_text()
CODE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
COMMANDS = [line for line in re.search(r"```bash\n(.*?)```", PAGE, re.DOTALL)[1].splitlines() if line]
NAMES = dict(zip(COMMANDS, ["sharpkeys", "sharp_2", "sink_sharp"], strict=True))
SMALL = ["task.lengths=[192]", "task.repeats=1", "task.depths=[20]", "block_size=32", "references=[]", "budget=48"]


@pytest.fixture
def my_pkg(tmp_path, monkeypatch):
    (tmp_path / "my_pkg.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_pkg", raising=False)


def run(arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["harness", *arguments])
    main.main()


def test_the_class_is_short():
    assert len([line for line in CODE.splitlines() if line.strip()]) <= 30


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_line_of_the_page_runs(line, my_pkg, monkeypatch, tmp_path):
    arguments = [a for a in shlex.split(line)[3:] if not a.startswith(("budget=", "block_size="))]
    run([*arguments, *SMALL, f"results_dir={tmp_path}"], monkeypatch)
    rows = load_rows(tmp_path)
    assert (rows["invalid"] == "").all()
    assert (rows["slots_kept_max"] == 48).all()
    assert set(rows["policy"]) == {NAMES[line]}


@pytest.mark.parametrize("name", [[], ["policy.name=mine"]])
def test_settings_that_were_typed_under_the_name_of_a_preset_are_told(name, monkeypatch, tmp_path, capsys):
    """Two settings of one policy are two cells with one name, which a table of rows would average."""
    run(["policy=sink", "policy.protect.sinks=2", *name, *SMALL, f"results_dir={tmp_path}"], monkeypatch)
    said = "called sink, whatever policy.protect.sinks is: policy.name=<another>" in " ".join(
        capsys.readouterr().out.split()
    )
    assert said != bool(name)


def test_a_second_name_for_the_same_settings_is_told_to_be_none(monkeypatch, tmp_path, capsys):
    for name in ("first", "second"):
        run(
            ["policy=sink", "policy.protect.sinks=2", f"policy.name={name}", *SMALL, f"results_dir={tmp_path}"],
            monkeypatch,
        )
    assert "called first, not second: these settings ran under that name first" in " ".join(
        capsys.readouterr().out.split()
    )
    assert set(load_rows(tmp_path)["policy"]) == {"first"}


OUTSIDE = ["policy=outside", "policy._target_=my_pkg.SharpKeys", "trusted=[my_pkg]"]
# A function that gives a whole policy.
WHOLE = ["policy._target_=policies.registry.build", "+policy.config={name: theirs, scorer: keydiff}"]


def test_a_whole_policy_can_be_called_otherwise_too(monkeypatch, tmp_path):
    run(["policy=outside", *WHOLE, "policy.name=mine", *SMALL, f"results_dir={tmp_path}"], monkeypatch)
    assert set(load_rows(tmp_path)["policy"]) == {"mine"}


def test_the_other_parts_can_be_set_beside_a_scorer(my_pkg, monkeypatch, tmp_path):
    run([*OUTSIDE, "policy.protect.sinks=4", *SMALL, f"results_dir={tmp_path}"], monkeypatch)
    config = json.loads(load_rows(tmp_path)["config"].iloc[0])["policy"]
    assert (config["protect"]["sinks"], config["scorer"]["class"]) == (4, "SharpKeys")


def test_without_other_parts_it_is_the_cell_that_python_makes_of_the_object(my_pkg, monkeypatch, tmp_path):
    run([*OUTSIDE, *SMALL, f"results_dir={tmp_path}"], monkeypatch)
    module = importlib.import_module("my_pkg")
    known = policy_from(
        {"_target_": "my_pkg.SharpKeys"}, ModelSpec.parse({"name": "testbed", "path": "testbed"}), ["my_pkg"]
    )
    assert known == as_policy(module.SharpKeys())
    config = json.loads(load_rows(tmp_path)["config"].iloc[0])["policy"]
    assert config == {name: part for name, part in part_description(known).items() if name != "name"}


def test_parameters_make_another_cell(my_pkg, monkeypatch, tmp_path):
    for line in COMMANDS[:2]:
        run([*shlex.split(line)[3:], *SMALL[:3], "references=[]", f"results_dir={tmp_path}"], monkeypatch)
    assert load_rows(tmp_path)["cell_id"].nunique() == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["policy._target_=my_pkg.SharpKeys"], "add trusted=[my_pkg] if you trust it"),
        (["policy._target_=my_pkg.SharpKey", "trusted=[my_pkg]"], "Did you mean SharpKeys?"),
        (["policy._target_=their_pkg.Any", "trusted=[their_pkg]"], "Is the package on PYTHONPATH?"),
        (["policy._target_=SharpKeys"], "write the whole name"),
        (
            ["policy._target_=my_pkg.SharpKeys", "trusted=[my_pkg]", "policy.scorer=h2o"],
            "policy.scorer is not read: SharpKeys",
        ),
        (["policy._target_=my_pkg.SharpKeys", "trusted=[my_pkg]", "policy.protect.sinks=-1"], "protect.sinks=-1 and"),
        ([*WHOLE, "policy.protect.sinks=2"], "policy.protect is not read: Policy is a whole policy"),
        (["policy._target_=my_pkg.SharpKeys", "+policy.powr=2", "trusted=[my_pkg]"], "powr"),
        (["policy._target_=my_pkg.dataclass", "trusted=[my_pkg]"], "neither a policy (with keep) nor a scorer"),
        ([], "policy=outside needs to know which class"),
        (["policy.entry_point=none"], "No installed package offers the policy 'none'"),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_sentence(arguments, sentence, my_pkg, monkeypatch, tmp_path, capfd):
    with pytest.raises(SystemExit) as end:
        run(["policy=outside", *arguments, f"results_dir={tmp_path}/out"], monkeypatch)
    assert end.value.code == 2
    error = capfd.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


def test_a_class_beside_another_policy_is_told_how_to_run_there(monkeypatch, tmp_path, capfd):
    with pytest.raises(SystemExit) as end:
        run(
            ["-m", "policy=outside,keydiff", "policy._target_=my_pkg.SharpKeys", f"results_dir={tmp_path}"], monkeypatch
        )
    assert end.value.code == 2
    assert "policy._target_ is a setting of policy=outside alone" in " ".join(capfd.readouterr().err.split())


SCORERS = """
from dataclasses import dataclass
import torch
from policies.scorer import Scorer, Stateless

@dataclass(frozen=True)
class SaysNothingOfState(Scorer):
    def score(self, view):
        return view.keys.norm(dim=-1)

@dataclass(frozen=True)
class OneNumber(Stateless):
    def score(self, view):
        return 1

@dataclass(frozen=True)
class OneForEachRow(Stateless):
    def score(self, view):
        return torch.zeros(len(view.keys))

@dataclass(frozen=True)
class NoScore(Stateless):
    pass
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("SaysNothingOfState", "does not say what it carries from chunk to chunk (state): derive it from policies.sc"),
        (
            "OneNumber",
            "The scores of policy 'onenumber' are int, not floating-point numbers of (rows, KV heads, slots)",
        ),
        ("OneForEachRow", "The scores of policy 'oneforeachrow' are torch.float32 (1,), not floating-point numbers of"),
        ("NoScore", "NoScore is neither a policy (with keep) nor a scorer (with score)."),
        ("Any", "has no 'Any'. Known: NoScore, OneForEachRow, OneNumber, SaysNothingOfState, Scorer, Stateless, dat"),
        ("as_part.NoScore", "NoScore is no scorer: it has no function score"),
        ("as_part.SaysNothingOfState", "does not say what it carries from chunk to chunk"),
    ],
)
def test_a_scorer_that_does_not_fit_is_named(name, sentence, monkeypatch, tmp_path, capfd):
    (tmp_path / "their_scorers.py").write_text(SCORERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_scorers", raising=False)
    name = name.removeprefix("as_part.") if (as_part := name.startswith("as_part.")) else name
    target = f"_target_=their_scorers.{name}"
    words = ["policy=sink", f"+policy.scorer.{target}"] if as_part else ["policy=outside", f"policy.{target}"]
    with pytest.raises(SystemExit) as end:
        run([*words, "trusted=[their_scorers]", *SMALL, "limit=1", f"results_dir={tmp_path}/out"], monkeypatch)
    assert end.value.code == 2
    error = capfd.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


def test_a_module_that_is_not_python_is_named(monkeypatch, tmp_path, capfd):
    (tmp_path / "half_written.py").write_text("def score(view:\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = ["policy=outside", "policy._target_=half_written.Mine", "trusted=[half_written]", *SMALL]
    with pytest.raises(SystemExit) as end:
        run([*words, f"results_dir={tmp_path}/out"], monkeypatch)
    assert end.value.code == 2
    assert "The module half_written is not Python that can be read: " in capfd.readouterr().err


def test_an_installed_package_may_offer_one_by_name(my_pkg, monkeypatch, tmp_path):
    from importlib.metadata import EntryPoint

    point = EntryPoint("sharp", "my_pkg:SharpKeys", "kvreplica.policies")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if "kvreplica" in group else [])
    run(
        ["policy=outside", "policy.entry_point=sharp", *SMALL, f"results_dir={tmp_path}"],
        monkeypatch,
    )
    assert set(load_rows(tmp_path)["policy"]) == {"sharpkeys"}
