"""Hooks of mkdocs: warn of missing docstrings, and turn links to files outside the site into text."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath
from typing import Any

LOGGER = logging.getLogger("mkdocs.hooks")
PACKAGES = ("harness", "policies", "tasks", "scripts")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """mkdocs' hook: the page's source before it becomes HTML."""
    depth = len(PurePosixPath(page.file.src_uri).parents) - 1

    def as_text_if_outside(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        return f"{words} (`{target.lstrip('./')}`)" if target.count("../") > depth else match[0]

    return LINK.sub(as_text_if_outside, markdown)


def on_pre_build(config: Any) -> None:
    """mkdocs' hook: warn of everything public without a docstring; the build treats warnings as errors."""
    root = Path(config.config_file_path).parent
    for name in undocumented(root):
        LOGGER.warning("%s has no docstring: describe it, with shapes, units and errors", name)


def undocumented(root: Path) -> list[str]:
    """``file:name`` of everything public in the packages that has no docstring.

    Methods of a protocol are described there: classes that implement them need not repeat it.
    """
    trees = {
        file.relative_to(root).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
    }
    described = {name for tree in trees.values() for name in _methods_of_protocols(tree)}
    return [f"{place}:{name}" for place, tree in trees.items() for name in _without_docstring(tree, described)]


def _methods_of_protocols(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases):
            yield from (
                each.name for each in node.body if isinstance(each, ast.FunctionDef) and ast.get_docstring(each)
            )


def _without_docstring(scope: ast.Module | ast.ClassDef, described: Set[str], before: str = "") -> Iterator[str]:
    for node in scope.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            implements = isinstance(scope, ast.ClassDef) and node.name in described
            if not ast.get_docstring(node) and not implements:
                yield before + node.name
            if isinstance(node, ast.ClassDef):
                yield from _without_docstring(node, described, f"{before}{node.name}.")
