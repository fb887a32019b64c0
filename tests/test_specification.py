"""Every section of policies.md 3 and every item of its test catalogue (7) is held by tests that name it.

A test names what it holds in its docstring: "policies.md 3.8, T-25: …". Tests of the reference do not count: it is the
other side of the comparison.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "docs" / "policies.md").read_text()
LABEL = re.compile(r"policies\.md ((?:3\.\d+|T-\d+)(?:, (?:3\.\d+|T-\d+|A-\d+))*)")

SECTIONS = re.findall(r"^## (3\.\d+) ", TEXT, re.MULTILINE)
CATALOGUE = TEXT[TEXT.index("# 7. Test catalogue") : TEXT.index("# 8. ")]
ITEMS = {
    name: re.sub(r"\([^()]*\)", "", body)
    for name, body in re.findall(r"^\* \*\*(T-\d+)\*\*(.*?)(?=^\* |\n\n|\Z)", CATALOGUE, re.MULTILINE | re.DOTALL)
}


def named(source: str) -> Counter[str]:
    """How many tests of a source name each section or item."""
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    docstrings = (ast.get_docstring(node) or "" for node in functions if node.name.startswith("test"))
    return Counter(label for text in docstrings for group in LABEL.findall(text) for label in group.split(", "))


HELD = sum(
    (named(path.read_text()) for path in TESTS.rglob("test_*.py") if "reference" not in path.relative_to(TESTS).parts),
    Counter(),
)


def test_the_specification_is_read():
    assert [f"3.{number}" for number in range(1, 29)] == SECTIONS
    assert list(ITEMS) == [f"T-{number:02}" for number in (*range(1, 15), *range(20, 37))]
    assert CATALOGUE.count("**T-") == len(ITEMS)


def test_a_docstring_may_name_several():
    source = 'def test_a():\n    """policies.md 3.8, T-25: so."""\ndef help():\n    """policies.md 3.9."""\n'
    assert named(source) == Counter(["3.8", "T-25"])


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_held(section):
    assert HELD[section]


@pytest.mark.parametrize("item", ITEMS)
def test_every_clause_of_the_catalogue_may_have_a_test(item):
    """An item that lists several things, one after each semicolon, needs at least as many tests."""
    assert HELD[item] >= 1 + ITEMS[item].count(";")


def test_nothing_else_is_named():
    known = {*SECTIONS, *ITEMS}
    assert {label for label in HELD if not label.startswith("A-")} <= known
