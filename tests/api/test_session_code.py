"""Code that was typed into a notebook or a script is part of a cell's identity, with what it uses from there."""

from __future__ import annotations

import linecache
import sys
import types

import pytest

from harness.config import plugins, source_code
from harness.config.policy_config import policy_from
from harness.errors import UserError
from policies import Policy
from policies.keydiff import KeyDiff

CELL = '''
from dataclasses import dataclass
import math
import torch
from policies import CacheView
from policies.scorer import Stateless
from my_helpers import doubled

SCALE = 2.0

def helper(x):
    return x * SCALE

@dataclass(frozen=True)
class Mine(Stateless):
    """About it."""

    power: float = 1.0

    def score(self, view: CacheView) -> torch.Tensor:
        keys = view.keys  # a remark
        return doubled(helper(keys.pow(self.power)).sum(-1)) + math.pi
'''


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Run a notebook cell: its classes belong to a module that no file holds, and its text is in linecache."""
    (tmp_path / "my_helpers.py").write_text("def doubled(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_helpers", raising=False)

    def run(text: str, kept: bool = True):
        module = types.ModuleType("session_of_a_test")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        name = f"<cell {abs(hash(text))}>"
        if kept:
            monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
        exec(compile(text, name, "exec"), vars(module))
        return module

    return run


def code_of(module) -> dict[str, str]:
    return source_code.session_code_hashes([module.Mine])


def test_the_class_its_helpers_its_numbers_and_its_own_files_are_named(typed):
    names = set(code_of(typed(CELL)))
    assert {"session/code/Mine", "session/code/helper", "session/code/SCALE"} <= names
    assert any(name.endswith("/my_helpers.py") for name in names)
    assert not any("torch" in name or "math" in name for name in names)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [("self.power", "2 * self.power"), ("x * SCALE", "x + SCALE"), ("SCALE = 2.0", "SCALE = 3.0")],
)
def test_what_changes_scores_changes_the_code(typed, was, becomes):
    assert code_of(typed(CELL)) != code_of(typed(CELL.replace(was, becomes)))


@pytest.mark.parametrize(("was", "becomes"), [("# a remark", "# another"), ("About it.", "At length.")])
def test_remarks_do_not(typed, was, becomes):
    assert code_of(typed(CELL)) == code_of(typed(CELL.replace(was, becomes)))


def test_variables_of_the_notebook_that_only_share_a_name_with_the_class_do_not_count(typed):
    assert code_of(typed(CELL)) == code_of(typed(CELL + "\nkeys = object()\nother = object()\n"))


@pytest.mark.parametrize(
    ("text", "kept", "sentence"),
    [
        (CELL.replace("SCALE = 2.0", "SCALE = torch.ones(1)"), True, "uses 'SCALE', a Tensor of this session"),
        (CELL, False, "The source of Mine cannot be read"),
        (CELL + "\nclass Mine(Mine):\n    pass\n", True, "with a method of its own"),
        (
            "def f():\n    class Mine:\n        def score(self): ...\n    return Mine\nMine = f()",
            True,
            "inside of a fun",
        ),
    ],
)
def test_what_cannot_be_named_is_refused_in_a_sentence(typed, text, kept, sentence):
    with pytest.raises(UserError, match=sentence):
        code_of(typed(text, kept))


def test_classes_of_files_are_left_to_their_files():
    assert source_code.session_code_hashes([KeyDiff]) == {}


def test_an_object_is_found_again_by_what_it_is(typed):
    module = typed(CELL)
    one, same, other = (plugins.register_object(module.Mine(power)) for power in (1.0, 1.0, 2.0))
    assert one == same != other
    assert policy_from(one, model=None).scorer == module.Mine(1.0)
    assert plugins.register_object(Policy("whole", scorer=KeyDiff()))["name"] == "whole"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (CELL.replace("@dataclass(frozen=True)\n", ""), "is not a frozen dataclass"),
        (CELL.replace("@dataclass(frozen=True)", "@dataclass"), "is not a frozen dataclass"),
        (CELL.replace("1.0\n\n    def", "torch.ones\n\n    def"), "cannot be part of a cell's identity"),
    ],
)
def test_settings_that_nobody_could_compare_are_refused(typed, text, sentence):
    with pytest.raises(UserError, match=sentence):
        plugins.register_object(typed(text).Mine())


def test_a_class_or_something_else_is_refused(typed):
    with pytest.raises(UserError, match=r"write Mine\(\)"):
        plugins.register_object(typed(CELL).Mine)
    with pytest.raises(UserError, match="neither a policy"):
        plugins.register_object(3)


def test_in_another_process_the_sentence_says_where_to_go():
    with pytest.raises(UserError, match="another Python process"):
        plugins.registered_object({"name": "mine", "given": "object-of-elsewhere"})
