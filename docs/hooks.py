"""For mkdocs: what has no docstring is named, and links to files that are no pages stay as text on the site."""

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

    def settled(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        return f"{words} (`{target.lstrip('./')}`)" if target.count("../") > depth else match[0]

    return LINK.sub(settled, markdown)


def on_pre_build(config: Any) -> None:
    """mkdocs' hook: a public function, class or method without a docstring is a warning, and warnings are errors."""
    root = Path(config.config_file_path).parent
    for name in undocumented(root):
        LOGGER.warning("%s has no docstring; say what it is, its shapes and units, and what it raises", name)


def undocumented(root: Path) -> list[str]:
    """``file:name`` of everything public in the packages that says nothing of itself."""
    silent = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            place = file.relative_to(root).as_posix()
            silent += [f"{place}:{name}" for name in _silent(ast.parse(file.read_text(encoding="utf-8")))]
    return silent


def _silent(scope: ast.Module | ast.ClassDef, before: str = "") -> Iterator[str]:
    for node in scope.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield before + node.name
            if isinstance(node, ast.ClassDef):
                yield from _silent(node, f"{before}{node.name}.")
