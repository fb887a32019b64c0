"""Code that no module's file holds: classes typed into a notebook or a script, and what they use from there.

The part of a cell's identity that `harness.origin.sources` cannot find. Nobody can look such code up later, so its
names are no paths: a cell made with it is never called stale, and the latest of the same settings stands for the
others.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.origin import fingerprint, sources
from harness.origin.sources import FOLLOWED, Files
from harness.user_error import UserError

INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))
AS_WRITTEN = ("typing", "types")  # annotations: their text says all that they are


def of_session(kinds: Iterable[Callable[..., object]], apart: frozenset[str] = frozenset()) -> Files:
    """Names and hashes of the code behind those classes that no module's file holds; nothing for the others.

    Functions, classes and plain data that a class takes from the session count with it, and so do the files of your
    own modules that it uses; installed packages do not. Modules named in ``apart`` are left out. Raises `UserError`
    where a source cannot be read, or a value has no content that could be compared.
    """
    found: Files = {}
    for kind in kinds:
        if not sources.has_file(kind.__module__):
            _gather(kind, found, apart)
    return found


def _gather(thing: Any, found: Files, apart: frozenset[str]) -> None:
    label = _label(thing.__qualname__)
    if label in found:
        return
    text = source(thing)
    found[label] = fingerprint.of_data({"code": sources.without_remarks(text)})
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
            found |= sources.hashed(sources.reached_from(module, apart))
    elif type(value).__module__ in AS_WRITTEN:
        found[_label(name)] = fingerprint.of_data({"value": str(value)})
    elif not callable(value):
        try:
            found[_label(name)] = fingerprint.of_data({"value": value})
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
    file = sources.file_of(module)
    within = module.partition(".")[0] in FOLLOWED
    return file is not None and (within or not any(file.is_relative_to(place) for place in INSTALLED))


def _label(name: str) -> str:
    return f"session/code/{name}"


def source(thing: Any) -> str:
    """The text of a class or function, as it was typed. Raises `UserError` where nobody has kept it."""
    if "<locals>" in thing.__qualname__:
        raise UserError(
            f"{thing.__qualname__} is defined inside of a function, where it can depend on anything: define it at the "
            "top of the notebook, or in a file of its own."
        )
    for code in _codes(thing):
        if text := _statement("".join(linecache.getlines(code.co_filename)), thing.__name__, code.co_firstlineno):
            return text
    raise UserError(
        f"The source of {thing.__qualname__} cannot be read, and without it nobody could tell later which code its "
        "rows were made with: define it, with a method of its own, in a notebook cell or in a file (my_pkg.py), and "
        "import it from there."
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
