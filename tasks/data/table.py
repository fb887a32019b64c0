"""One data set on this machine: found, read, checked and hashed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from tasks.base import TaskError
from tasks.data import rows as reading
from tasks.data.catalogue import DataSet, data_set
from tasks.data.rows import Row

Kind = Literal["carried", "fixture", "folder"]

HERE = Path(__file__).parent
CARRIED = HERE / "carried"
FIXTURES = HERE / "fixtures"
FETCHED = Path("data")  # in the working directory
SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Table:
    """The rows of one data set. ``revision``: 16 hex digits of the sha256 of the unpacked file.

    ``kind`` is "fixture" for synthetic rows and "carried" for the package's copy, which may be another selection than
    the official one (`carried/PROVENANCE.md`): results must say so.
    """

    rows: tuple[Row, ...]
    file: Path
    revision: str
    kind: Kind

    def place(self, index: int) -> str:
        """What an error calls the row at ``index`` (from 0): file and row number (from 1)."""
        return f"{self.file}, row {index + 1}"


def table(dataset: str, where: str = "auto") -> Table:
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
    """A file as it is now: another content makes another stamp, so that nothing stale is remembered."""

    file: Path
    changed: int  # nanoseconds
    size: int  # bytes


def _located(dataset: str, where: str) -> tuple[str, _Stamp, Kind]:
    entry = data_set(dataset)
    where = str(where)  # a folder called 2023 comes from YAML as a number
    if where not in ("auto", "fixture") and not Path(where).is_dir():
        raise TaskError(f"data={where} is no folder: give one that holds {entry.name}.jsonl, or auto, or fixture.")
    kind, file = _found(entry, where)
    return entry.name, _Stamp(file, file.stat().st_mtime_ns, file.stat().st_size), kind


@cache
def _revision(dataset: str, stamp: _Stamp, kind: Kind) -> str:
    return _read(dataset, stamp, kind).revision


@lru_cache(maxsize=8)  # tables are large
def _read(dataset: str, stamp: _Stamp, kind: Kind) -> Table:
    data = reading.content(stamp.file)
    rows = reading.rows(data, str(stamp.file), data_set(dataset).columns)
    return Table(rows, stamp.file, reading.revision(data), kind)


def _found(entry: DataSet, where: str) -> tuple[Kind, Path]:
    for kind, file in _places(entry, where):
        if file.is_file():
            return kind, file
    if where == "auto":
        # One archive brings all of a group, so where none of it is here all tasks that read it say the same.
        whole = entry.from_archive and not (FETCHED / entry.group).is_dir()
        raise TaskError(
            f"The data set {entry.group if whole else entry.name} is not on this machine: fetch it with "
            f"'{entry.fetch_command}', or try the path with a few synthetic rows and task.data=fixture."
        )
    raise TaskError(
        f"The folder {where} does not hold the data set {entry.name} ({file_names(entry)}): give another folder, or "
        f"fetch it with '{entry.fetch_command}'."
    )


def file_names(entry: DataSet) -> str:
    """The names under which a folder may hold a data set, as words."""
    return " or ".join(f"{stem}.jsonl" for stem in stems(entry)) + ", or the same with .gz"


def stems(entry: DataSet) -> list[str]:
    """The names under which a folder may hold a data set, without suffix."""
    return [entry.name, entry.member, *([entry.official] if entry.official else [])]


def in_folder(entry: DataSet, folder: Path) -> Iterator[Path]:
    """Every place in a folder of the user's where the data set may lie, the most particular first."""
    yield from (folder / f"{stem}{suffix}" for stem in stems(entry) for suffix in SUFFIXES)


def _places(entry: DataSet, where: str) -> Iterator[tuple[Kind, Path]]:
    if where == "fixture":
        yield "fixture", FIXTURES / f"{entry.name}.jsonl"
    elif where == "auto":
        for suffix in SUFFIXES:
            yield "folder", FETCHED / f"{entry.name}{suffix}"
        yield "carried", CARRIED / f"{entry.name}.jsonl.gz"
    else:
        for file in in_folder(entry, Path(where)):
            yield "folder", file
