"""Which source files decide what a class does, and what of them counts: code, not comments and docstrings."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLLOWED = ("policies", "tasks")  # imports into these count wherever they stand; the harness is named file by file
Files = dict[str, str]  # name as people know the file, and the hash of its code


@cache
def behind(thing: Callable[..., object], apart: frozenset[str] = frozenset()) -> tuple[Path, ...]:
    """The file in which a class or function is defined, and the files of what that imports.

    Imports are followed within its own package and `FOLLOWED`, through a package's ``__init__`` to the module that a
    name comes from: who imports one class of a package does not depend on the others. Modules named in ``apart``
    are neither followed nor part of the answer. A class that no file holds has none (`harness.origin.session_code`).
    """
    return reached_from(thing.__module__, apart)


def reached_from(module: str, apart: frozenset[str] = frozenset()) -> tuple[Path, ...]:
    """The file of a module and those of what it imports, as `behind` follows them."""
    files: dict[str, Path] = {}
    packages = {module.partition(".")[0], *FOLLOWED}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = file_of(name) if name not in files and name not in apart else None
        if file is not None and name.partition(".")[0] in packages:
            files[name] = file
            waiting += imports(name)
    return tuple(files.values())


def has_file(module: str) -> bool:
    """Whether a module's code lies in a Python file that can be found by its name."""
    return file_of(module) is not None


def of_modules(modules: Iterable[str]) -> list[Path]:
    """The source file of each. Raises ImportError for a module that has none."""
    files = {module: file_of(module) for module in modules}
    if missing := [module for module, file in files.items() if file is None]:
        raise ImportError(f"There is no source of {', '.join(missing)}.")
    return [file for file in files.values() if file is not None]


def hashed(files: Iterable[Path]) -> Files:
    """Each file under its name, with the hash of its code."""
    return {label(file): of_code(file) for file in sorted(set(files))}


@cache
def label(file: Path) -> str:
    """The path within the repository; for other people's files the package and what follows."""
    if file.is_relative_to(ROOT):
        return file.relative_to(ROOT).as_posix()
    outermost = file.parent
    while (outermost.parent / "__init__.py").exists():
        outermost = outermost.parent
    return file.relative_to(outermost.parent).as_posix()


@cache
def of_code(file: Path) -> str:
    """16 hex digits of the code in a file."""
    return hashlib.sha256(without_remarks(file.read_text()).encode()).hexdigest()[:16]


def without_remarks(source: str) -> str:
    """The source without comments, docstrings and the blank lines between; what strings hold stays as it is."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    kept_blank: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.JoinedStr, ast.Constant)) and node.end_lineno != node.lineno:
            kept_blank |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    for docstring in _docstrings(tree):
        if not _alone(docstring, lines):
            continue
        for row in range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1):
            lines[row - 1] = ""
            kept_blank.discard(row)
    return "".join(line for row, line in enumerate(lines, 1) if line.strip() or row in kept_blank)


def _alone(statement: ast.Expr, lines: list[str]) -> bool:
    """Whether nothing else stands on the statement's lines."""
    before = lines[statement.lineno - 1].encode()[: statement.col_offset]
    after = lines[(statement.end_lineno or statement.lineno) - 1].encode()[statement.end_col_offset :]
    return not before.strip() and not after.strip()


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and ast.get_docstring(node):
                yield first


def imports(module: str) -> list[str]:
    """Modules that this one takes anything from, inside of functions too; the way leads through ``__init__`` files."""
    found = []
    for node in _statements(file_of(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        else:
            found += [_origin(_absolute(module, node), alias.name) for alias in node.names]
    return found


def _origin(module: str, name: str) -> str:
    """The module that ``from module import name`` takes the name from."""
    if file_of(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    if _is_package(module):
        for node in _statements(file_of(module)):
            if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
                return _origin(_absolute(module, node), name)
    return module


def _absolute(module: str, node: ast.ImportFrom) -> str:
    package = module if _is_package(module) else module.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


@cache
def _statements(file: Path | None) -> tuple[ast.Import | ast.ImportFrom, ...]:
    if file is None:
        return ()
    tree = ast.parse(file.read_text())
    return tuple(node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))


def _is_package(module: str) -> bool:
    file = file_of(module)
    return file is not None and file.name == "__init__.py"


def file_of(module: str) -> Path | None:
    """The source file of a module, or None where there is no such module or it is not Python."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)
