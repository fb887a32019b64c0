"""Hooks of mkdocs: warn of missing docstrings, and turn links to files outside the site into text."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
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
    """``file:name`` of everything public in the packages that has no docstring."""
    missing = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            place = file.relative_to(root).as_posix()
            missing += [f"{place}:{name}" for name in _without_docstring(ast.parse(file.read_text(encoding="utf-8")))]
    return missing


def _without_docstring(scope: ast.Module | ast.ClassDef, before: str = "") -> Iterator[str]:
    for node in scope.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield before + node.name
            if isinstance(node, ast.ClassDef):
                yield from _without_docstring(node, f"{before}{node.name}.")
