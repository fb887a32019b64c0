"""One data set on this machine: found, read, checked and hashed.

Errors name the file and the row.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from tasks.base import MissingDataError, TaskError
from tasks.data.catalogue import DataSet, data_set

Row = Mapping[str, Any]
TableKind = Literal["carried", "fixture", "folder"]

HERE = Path(__file__).parent
CARRIED = HERE / "carried"
FIXTURES = HERE / "fixtures"
FETCHED = Path("data")  # in the working directory
SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class DataTable:
    """The rows of one data set. ``revision``: 16 hex digits of the sha256 of the unpacked file.

    ``kind`` is "fixture" for synthetic rows and "carried" for the package's copy, which may be another selection than
    the official one (`carried/PROVENANCE.md`): results must say so.
    """

    rows: tuple[Row, ...]
    file: Path
    revision: str
    kind: TableKind

    def place(self, index: int) -> str:
        """The name of the row at ``index`` (from 0) in errors: file and row number (from 1)."""
        return f"{self.file}, row {index + 1}"


def table(dataset: str, where: str = "auto") -> DataTable:
    """The data set ``dataset`` (``longbench/qasper``; `catalogue.yaml` lists them).

    ``where``: "auto" = ``data/<dataset>.jsonl[.gz]`` in the working directory, else the copy carried in the package;
    "fixture" = a few synthetic rows of the true schema; anything else = a folder of the user's, which holds
    ``<dataset>.jsonl[.gz]``, its last part, or the file as its authors name it.

    Raises `TaskError` for an unknown data set, for one that is not there (with the command that fetches it), and for
    damaged files, by file and row.
    """
    return _read(*_located(dataset, where))


def revision_of(dataset: str, where: str = "auto") -> str:
    """``table(dataset, where).revision``, remembered for as long as the file is unchanged; raises the same errors.

    Every cell asks for it, and a sweep over more data sets than `table` keeps would read each file once per cell.
    """
    return _revision(*_located(dataset, where))


@dataclass(frozen=True)
class _Stamp:
    """A file as it is now. A changed file has another stamp, so that no stale content is remembered."""

    file: Path
    changed: int  # nanoseconds
    size: int  # bytes


def _located(dataset: str, where: str) -> tuple[str, _Stamp, TableKind]:
    entry = data_set(dataset)
    where = str(where)  # a folder called 2023 comes from YAML as a number
    if where not in ("auto", "fixture") and not Path(where).is_dir():
        raise TaskError(f"data={where} is no folder: give one that holds {entry.name}.jsonl, or auto, or fixture.")
    kind, file = _found(entry, where)
    return entry.name, _Stamp(file, file.stat().st_mtime_ns, file.stat().st_size), kind


@cache
def _revision(dataset: str, stamp: _Stamp, kind: TableKind) -> str:
    return _read(dataset, stamp, kind).revision


@lru_cache(maxsize=8)  # tables are large
def _read(dataset: str, stamp: _Stamp, kind: TableKind) -> DataTable:
    data = unpacked(stamp.file)
    rows = parsed_rows(data, str(stamp.file), data_set(dataset).columns)
    return DataTable(rows, stamp.file, content_hash(data), kind)


def _found(entry: DataSet, where: str) -> tuple[TableKind, Path]:
    for kind, file in _places(entry, where):
        if file.is_file():
            return kind, file
    if where == "auto":
        # One archive has the whole group, so where none of it is here, all tasks of the group say the same.
        whole = entry.from_archive and not (FETCHED / entry.group).is_dir()
        raise MissingDataError(
            f"The data set {entry.group if whole else entry.name} is not on this machine: fetch it with "
            f"'{entry.fetch_command}', or try the path on a few synthetic rows with data=fixture.",
            "" if whole else entry.name,
        )
    raise MissingDataError(
        f"The folder {where} does not hold the data set {entry.name} ({file_names(entry)}): give another folder, or "
        f"fetch it with '{entry.fetch_command}'.",
        entry.name,
    )


def file_names(entry: DataSet) -> str:
    """The names under which a folder may hold a data set, as words."""
    return " or ".join(f"{stem}.jsonl" for stem in stems(entry)) + ", or the same with .gz"


def stems(entry: DataSet) -> list[str]:
    """The names under which a folder may hold a data set, without suffix."""
    return [entry.name, entry.member, *([entry.official] if entry.official else [])]


def in_folder(entry: DataSet, folder: Path) -> Iterator[Path]:
    """Every path in a folder of the user's where the data set may be, the most specific first."""
    yield from (folder / f"{stem}{suffix}" for stem in stems(entry) for suffix in SUFFIXES)


def _places(entry: DataSet, where: str) -> Iterator[tuple[TableKind, Path]]:
    if where == "fixture":
        yield "fixture", FIXTURES / f"{entry.name}.jsonl"
    elif where == "auto":
        for suffix in SUFFIXES:
            yield "folder", FETCHED / f"{entry.name}{suffix}"
        yield "carried", CARRIED / f"{entry.name}.jsonl.gz"
    else:
        for file in in_folder(entry, Path(where)):
            yield "folder", file


# From JSON Lines to checked rows.


def is_text(value: object) -> bool:
    """A string that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_texts(value: object) -> bool:
    """A list of strings, not empty."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def is_passages(value: object) -> bool:
    """A list of passages with a text each, not empty."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and is_text(item.get("text")) for item in value)
    )


def is_pairs(value: object) -> bool:
    """A list of pairs of strings, not empty."""
    return isinstance(value, list) and bool(value) and all(is_texts(item) and len(item) == 2 for item in value)


def is_answers(value: object) -> bool:
    """SQuAD's answers: a list of texts under ``text``, empty where the question has none."""
    return isinstance(value, dict) and isinstance(value.get("text"), list) and all(map(is_text, value["text"]))


def is_paragraphs(value: object) -> bool:
    """HotpotQA's context: titles under ``title`` and for each a list of sentences under ``sentences``."""
    if not isinstance(value, dict):
        return False
    titles, sentences = value.get("title"), value.get("sentences")
    if not isinstance(titles, list) or not isinstance(sentences, list):
        return False
    return is_texts(titles) and len(sentences) == len(titles) and all(map(is_texts, sentences))


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a text", lambda value: isinstance(value, str)),
    "text": ("a text that is not empty", is_text),
    "texts": ("a list of texts, at least one", is_texts),
    "integer": ("a whole number", lambda value: isinstance(value, int)),
    "classes": ("null or a list of class names", lambda value: value is None or is_texts(value)),
    "passages": ("a list of passages, each with a text", is_passages),
    "pairs": ("a list of pairs", is_pairs),
    "answers": ("answers under 'text'", is_answers),
    "paragraphs": ("paragraphs under 'title' and 'sentences'", is_paragraphs),
}


def unpacked(file: Path) -> bytes:
    """The bytes of ``file``, unpacked where its name ends in ``.gz``."""
    try:
        return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TaskError(f"{file} is damaged or cut off: it cannot be unpacked as gzip. Fetch it again.") from None
    except OSError as error:
        raise TaskError(f"{file} cannot be read ({error.strerror}).") from None


def content_hash(data: bytes) -> str:
    """16 hex digits of the sha256 of what a file holds, packed or not."""
    return hashlib.sha256(data).hexdigest()[:16]


def parsed_rows(data: bytes, where: str, columns: Mapping[str, str]) -> tuple[Row, ...]:
    """Every line of ``data`` as a row that holds ``columns`` in their kinds; other columns stay.

    ``where`` is what errors call the file. Raises `TaskError` for bytes that are no UTF-8, lines that are no JSON
    objects, missing or empty columns, and for no rows at all.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise TaskError(f"{where} is empty: it holds no rows. Fetch it again.")
    return tuple(_row(line, f"{where}, row {number}", columns) for number, line in enumerate(lines, start=1))


def _row(line: bytes, place: str, columns: Mapping[str, str]) -> Row:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TaskError(f"{place} is not UTF-8 (byte {error.start}). Convert the file or fetch it again.") from None
    except (ValueError, RecursionError):
        raise TaskError(f"{place} is not JSON; the file may be cut off. Fetch it again.") from None
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise TaskError(f"{place} holds half of a surrogate pair, which is no text. Fetch the file again.") from None
    if not isinstance(row, dict):
        raise TaskError(f"{place} is no JSON object with columns, but {line[:40].decode('utf-8', 'replace')!r}.")
    check_row(row, place, columns)
    return row


def check_row(row: Row, place: str, columns: Mapping[str, str]) -> None:
    """`TaskError` where ``row`` lacks one of ``columns`` or holds something else than its kind."""
    if missing := [name for name in columns if name not in row]:
        raise TaskError(f"{place} has no column '{missing[0]}'. Every row needs {', '.join(columns)}.")
    for name, kind in columns.items():
        meaning, holds = KINDS[kind]
        if not holds(row[name]):
            found = "it is empty" if row[name] in ("", [], None) else f"it is {str(row[name])[:40]!r}"
            raise TaskError(f"{place}: column '{name}' must be {meaning}; {found}.")
