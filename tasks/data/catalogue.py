"""What is known of each data set before it is read; the entries are in ``catalogue.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tasks.base import TaskError, nearest

SETTINGS = Path(__file__).with_name("catalogue.yaml")


@dataclass(frozen=True)
class Hub:
    """Where a data set is on the hub (hub.md sections 2 and 3): files of a repository, or what `datasets` loads.

    ``zip_file`` is set where one archive of the repository holds a JSON Lines file for each member.
    """

    repository: str
    config: str | None = None
    split: str = "test"
    revision: str | None = None
    zip_file: str | None = None
    least_bytes: int = 0  # of the archive; a smaller one is an older version
    must_hold: tuple[str, ...] = ()  # members of the archive; one without them is an older version


@dataclass(frozen=True)
class DataSet:
    """One table: ``longbench/qasper``. ``columns`` says what each row must hold (`tasks.data.tables.KINDS`)."""

    name: str
    columns: Mapping[str, str]
    licence: str
    rows: int | None = None  # of the complete table
    official: str | None = None  # the file's name without suffix where its authors publish it
    hub: Hub | None = None
    source: str = ""  # where a person can get it
    lengths_are_words: bool = False  # whether `length` is LongBench's count of words, which can be checked

    @property
    def group(self) -> str:
        """``longbench`` of ``longbench/qasper``: what can be fetched with one command."""
        return self.name.partition("/")[0]

    @property
    def member(self) -> str:
        """The name within its group: ``hotpotqa`` of ``longbench/hotpotqa``."""
        return self.name.partition("/")[2]

    @property
    def from_archive(self) -> bool:
        """Whether the hub has the whole group in one file, so that it is fetched at once."""
        return bool(self.hub and self.hub.zip_file)

    @property
    def fetch_command(self) -> str:
        """The command that puts the data set where tasks look for it."""
        wanted = self.group if self.from_archive else self.name
        return f"python -m scripts.fetch_data {wanted} --from {'hub' if self.hub else '<folder>'}"


def _entries(group: str, entry: Mapping[str, Any]) -> Iterator[DataSet]:
    shared = {key: value for key, value in entry.items() if key != "members"}
    for member, own in entry["members"].items():
        settings = {**shared, **(own or {})}
        hub = settings.pop("hub", None)
        yield DataSet(name=f"{group}/{member}", hub=_hub(hub) if hub else None, **settings)


def _hub(entry: Mapping[str, Any]) -> Hub:
    return Hub(**{**entry, "must_hold": tuple(entry.get("must_hold", ()))})


CATALOGUE: dict[str, DataSet] = {
    each.name: each
    for group, entry in yaml.safe_load(SETTINGS.read_text("utf-8")).items()
    for each in _entries(group, entry)
}


def data_set(name: str) -> DataSet:
    """The entry of ``name``; `TaskError` with the nearest names where there is none."""
    if name not in CATALOGUE:
        raise TaskError(f"There is no data set '{name}'. {nearest(name, CATALOGUE)}")
    return CATALOGUE[name]
