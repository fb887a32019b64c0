"""Fingerprints of code: what runs counts, what is said about it does not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from harness.config import source_code
from policies.keydiff import KeyDiff
from policies.kvec import KVec

CODE = '''"""About the module."""

import os  # why


class A:
    """About the class.

    At length.
    """

    # a remark
    x = 1

    def f(self):
        """About the method."""
        text = """kept

        # kept too
        """
        return text + "# not a remark", {"k": os}
'''


def test_comments_docstrings_and_blank_lines_do_not_count():
    bare = '''import os
class A:
    x = 1
    def f(self):
        text = """kept

        # kept too
        """
        return text + "# not a remark", {"k": os}
'''
    assert source_code.without_comments(CODE) == bare
    assert source_code.without_comments(bare) == bare


@pytest.mark.parametrize(
    ("was", "becomes"),
    [("x = 1", "x = 2"), ("# not a remark", "# not the remark"), ("# kept too", "# kept"), ("kept\n\n", "kept\n")],
)
def test_everything_that_runs_counts(was, becomes):
    assert source_code.without_comments(CODE.replace(was, becomes, 1)) != source_code.without_comments(CODE)


@pytest.mark.parametrize("code", ['def f(): "doc"; return 1\n', 'class A: "doc"; x = 1\n', '"doc"; x = 1\n'])
def test_code_beside_a_docstring_is_kept(code):
    assert source_code.without_comments(code) == code


def names(thing) -> set[str]:
    return {source_code.source_label(file) for file in source_code.files_behind(thing)}


def test_imports_are_followed_to_the_modules_that_they_come_from():
    assert names(KeyDiff) == {f"policies/{name}.py" for name in ("keydiff", "scorer", "view")}
    assert "policies/snapkv.py" in names(KVec)
    assert "policies/h2o.py" not in names(KVec)


def test_other_peoples_code_is_followed_within_its_package_and_into_ours(tmp_path, monkeypatch):
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("from theirs.policy import Mine\n")
    (package / "policy.py").write_text(
        "import json\nfrom policies import Policy\nfrom theirs.deep import helper\nclass Mine: ...\n"
    )
    (package / "deep.py").write_text("def helper(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("theirs").Mine
    found = names(mine)
    assert {"theirs/policy.py", "theirs/deep.py", "policies/policy.py"} <= found
    assert not any("json" in name for name in found)
    for module in ("theirs", "theirs.policy", "theirs.deep"):
        sys.modules.pop(module, None)


def test_the_hash_is_the_same_wherever_the_repository_lies():
    assert source_code.source_label(Path(source_code.__file__)) == "harness/config/source_code.py"
