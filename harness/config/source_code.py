"""Which source code decides what a class does, as hashes of code without comments and docstrings.

For a class in a module: its file and the files that it imports. For a class typed into a notebook or a script: its text
and what it uses from there. Such code cannot be looked up later, so its names are no paths: a cell made with it is
never called stale, and the latest of the same settings stands for the others.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import io
import linecache
import symtable
import sys
import sysconfig
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from harness.config import identity
from harness.errors import UserError

ROOT = Path(__file__).parents[2]
FOLLOWED = ("policies", "tasks")  # imports into these count wherever they stand; the harness is named file by file
Files = dict[str, str]  # label of a file, and the hash of its code
INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))
AS_WRITTEN = ("typing", "types")  # annotations: their text is their whole content


@cache
def files_behind(thing: Callable[..., object], apart: frozenset[str] = frozenset()) -> tuple[Path, ...]:
    """The file in which a class or function is defined, and the files of what that imports.

    Imports are followed within its own package and `FOLLOWED`, through a package's ``__init__`` to the module that a
    name comes from: importing one class of a package does not add the others. Modules named in ``apart`` are neither
    followed nor included. A class that no file holds has none (`session_code_hashes`).
    """
    return reached_from(thing.__module__, apart)


def reached_from(module: str, apart: frozenset[str] = frozenset()) -> tuple[Path, ...]:
    """The file of a module and those of what it imports, as `files_behind` follows them."""
    files: dict[str, Path] = {}
    packages = {module.partition(".")[0], *FOLLOWED}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = file_of(name) if name not in files and name not in apart else None
        if file is not None and name.partition(".")[0] in packages:
            files[name] = file
            waiting += imported_modules(name)
    return tuple(files.values())


def has_file(module: str) -> bool:
    """Whether a module's code lies in a Python file that can be found by its name."""
    return file_of(module) is not None


def files_of_modules(modules: Iterable[str]) -> list[Path]:
    """The source file of each. Raises ImportError for a module that has none."""
    files = {module: file_of(module) for module in modules}
    if missing := [module for module, file in files.items() if file is None]:
        raise ImportError(f"There is no source of {', '.join(missing)}.")
    return [file for file in files.values() if file is not None]


def hash_sources(files: Iterable[Path]) -> Files:
    """Each file under its name, with the hash of its code."""
    return {source_label(file): hash_code(file) for file in sorted(set(files))}


@cache
def source_label(file: Path) -> str:
    """The path within the repository; for files of other packages the path from the package on."""
    if file.is_relative_to(ROOT):
        return file.relative_to(ROOT).as_posix()
    outermost = file.parent
    while (outermost.parent / "__init__.py").exists():
        outermost = outermost.parent
    return file.relative_to(outermost.parent).as_posix()


@cache
def hash_code(file: Path) -> str:
    """16 hex digits of the code in a file."""
    return hashlib.sha256(without_comments(file.read_text()).encode()).hexdigest()[:16]


def without_comments(source: str) -> str:
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
    """Whether the statement's lines hold nothing else."""
    before = lines[statement.lineno - 1].encode()[: statement.col_offset]
    after = lines[(statement.end_lineno or statement.lineno) - 1].encode()[statement.end_col_offset :]
    return not before.strip() and not after.strip()


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and ast.get_docstring(node):
                yield first


def imported_modules(module: str) -> list[str]:
    """Modules that this one imports from, inside of functions too; follows ``__init__`` files to where names are."""
    found = []
    for node in _statements(file_of(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        else:
            found += [_defining_module(_absolute(module, node), alias.name) for alias in node.names]
    return found


def _defining_module(module: str, name: str) -> str:
    """The module that ``from module import name`` takes the name from."""
    if file_of(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    if _is_package(module):
        for node in _statements(file_of(module)):
            if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
                return _defining_module(_absolute(module, node), name)
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


# Code of a session: classes that no file holds.


def session_code_hashes(kinds: Iterable[Callable[..., object]], apart: frozenset[str] = frozenset()) -> Files:
    """Names and hashes of the code behind those classes that no module's file holds; nothing for the others.

    Functions, classes and plain data that a class takes from the session count with it, and so do the files of your
    own modules that it uses; installed packages do not. Modules named in ``apart`` are left out. Raises `UserError`
    where a source cannot be read, or a value has no content that could be compared.
    """
    found: Files = {}
    for kind in kinds:
        if not has_file(kind.__module__):
            _gather(kind, found, apart)
    return found


def _gather(thing: Any, found: Files, apart: frozenset[str]) -> None:
    label = _label(thing.__qualname__)
    if label in found:
        return
    text = source_text(thing)
    found[label] = identity.hash_data({"code": without_comments(text)})
    session = vars(sys.modules[thing.__module__])
    for name in sorted(_globals(text) & session.keys()):
        _use(name, session[name], thing, found, apart)


def _use(name: str, value: Any, by: Any, found: Files, apart: frozenset[str]) -> None:
    """Add what a global name stands for: code by its source, data by its content."""
    module = _module_of(value)
    if module == by.__module__:
        _gather(value, found, apart)
    elif module is not None:
        if _is_own(module):
            found |= hash_sources(reached_from(module, apart))
    elif type(value).__module__ in AS_WRITTEN:
        found[_label(name)] = identity.hash_data({"value": str(value)})
    elif not callable(value):
        try:
            found[_label(name)] = identity.hash_data({"value": value})
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{by.__qualname__} uses '{name}', a {type(value).__name__} of this session, whose content cannot be "
                "part of a cell's identity: make it a field of the class, or compute it inside of the class from "
                "numbers and texts."
            ) from error


def _module_of(value: Any) -> str | None:
    """The module of a class or function, or a module's own name; None for data and for functions written in C."""
    if inspect.ismodule(value):
        return value.__name__
    return getattr(value, "__module__", None) if inspect.isclass(value) or inspect.isfunction(value) else None


def _is_own(module: str) -> bool:
    """Whether the code is the user's or this project's, rather than an installed package's."""
    file = file_of(module)
    within = module.partition(".")[0] in FOLLOWED
    return file is not None and (within or not any(file.is_relative_to(place) for place in INSTALLED))


def _label(name: str) -> str:
    return f"session/code/{name}"


def source_text(thing: Any) -> str:
    """The text of a class or function, as it was typed. Raises `UserError` where Python has not kept it."""
    if "<locals>" in thing.__qualname__:
        raise UserError(
            f"{thing.__qualname__} is defined inside of a function, where it can depend on anything: define it at the "
            "top of the notebook, or in a file of its own."
        )
    for code in _codes(thing):
        if text := _statement("".join(linecache.getlines(code.co_filename)), thing.__name__, code.co_firstlineno):
            return text
    raise UserError(
        f"The source of {thing.__qualname__} cannot be read, so the code behind its rows would be unknown: "
        "define it, with a method of its own, in a notebook cell or in a file (my_pkg.py), and import it from there."
    )


def _codes(thing: Any) -> Iterator[Any]:
    """Code objects that know where the text of a function, or of a class with its methods, lies."""
    members = vars(thing).values() if inspect.isclass(thing) else [thing]
    for member in members:
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
        if inspect.isfunction(function):
            yield function.__code__


def _statement(text: str, name: str, line: int) -> str:
    """The class or function of that name around a line, its decorators included; empty where there is none."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if first <= line <= last:
                return textwrap.dedent("\n".join([*text.splitlines()[first - 1 : last], ""]))
    return ""


def _globals(text: str) -> set[str]:
    """Names that a statement takes from around it."""
    names: set[str] = set()
    waiting = [symtable.symtable(text, "session", "exec")]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        outermost = table.get_type() == "module"
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outermost or s.is_global())}
    return names
