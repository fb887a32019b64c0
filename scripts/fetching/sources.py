"""Where data come from: the user's folder or file, an archive on the hub, or a repository that `datasets` reads."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import huggingface_hub
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of whichever library it is built on

from tasks.base import TaskError
from tasks.data import CATALOGUE, DataSet
from tasks.data.catalogue import Hub
from tasks.data.tables import file_names, in_folder, unpacked

SPLITS = ("validation", "test")
CONVERTED = "refs/convert/parquet"  # the hub's own export of repositories that have a loading script
UNREACHABLE = (OSError, HTTPError)


@dataclass(frozen=True)
class FetchedRows:
    """JSON Lines as they were fetched; ``place`` is their name in errors, ``origin`` what PROVENANCE.json records."""

    data: bytes
    place: str
    origin: dict[str, str]


class DataSource(Protocol):
    """Something that holds the data sets of one group."""

    def get(self, entry: DataSet) -> FetchedRows:
        """The rows of a data set as they lie there; raises `TaskError` where they do not."""


def opened(entry: DataSet, origin: str) -> DataSource:
    """The source that ``--from`` names, for the group of ``entry``: ``hub``, ``hub:<owner/name>``, a folder or a file.

    Raises `TaskError` where there is no such folder or file, no hub repository, or no network.
    """
    if origin.startswith("hub:"):
        return Repository(Hub(origin.removeprefix("hub:"), entry.hub.config if entry.hub else None))
    if origin == "hub":
        return _on_hub(entry)
    if Path(origin).is_file():
        return SingleFile(Path(origin))
    if not Path(origin).is_dir():
        raise TaskError(f"--from {origin} is no folder and no file: give one, or hub, or hub:<owner/name>.")
    archive = Path(origin) / entry.hub.zip_file if entry.hub and entry.hub.zip_file else None
    if entry.hub and archive and archive.is_file():
        return Archive(archive, entry.hub)
    return Folder(Path(origin))


def _split(entry: DataSet) -> str:
    """The hub's split: a data set that is called as one is that one, such as ``xsum/test``."""
    if entry.member in SPLITS:
        return entry.member
    return entry.hub.split if entry.hub else "test"


def _on_hub(entry: DataSet) -> DataSource:
    hub = entry.hub
    if hub is None:
        raise TaskError(
            f"{entry.name} is not fetched from the hub: get it from {entry.source} and say --from <folder>."
        )
    if hub.zip_file is None:
        return Repository(hub)
    try:
        file = huggingface_hub.hf_hub_download(hub.repository, hub.zip_file, repo_type="dataset", revision=hub.revision)
    except UNREACHABLE as error:
        raise TaskError(
            f"{hub.repository} cannot be fetched ({type(error).__name__}): download {hub.zip_file} of revision "
            f"{hub.revision} from {entry.source} where there is a network, and say --from <its folder>."
        ) from None
    return Archive(Path(file), hub)


@dataclass(frozen=True)
class Folder:
    """A folder of the user's with JSON Lines, packed or not."""

    folder: Path

    def get(self, entry: DataSet) -> FetchedRows:
        """From the first of the file names that the data set may have."""
        file = self._file(entry)
        if file is not None:
            return FetchedRows(unpacked(file), str(file), {"file": str(file.resolve())})
        splits = [each for each in CATALOGUE.values() if each.group == entry.group and each.member in SPLITS]
        others = [each.name for each in splits if entry.member in SPLITS and self._file(each)]
        raise TaskError(
            f"{self.folder} does not hold {entry.name} ({file_names(entry)})"
            + (f", but {others[0]}: fetch that by its name." if others else ".")
        )

    def _file(self, entry: DataSet) -> Path | None:
        return next((file for file in in_folder(entry, self.folder) if file.is_file()), None)


@dataclass(frozen=True)
class SingleFile:
    """JSON Lines of one data set under any name, packed or not."""

    file: Path

    def get(self, entry: DataSet) -> FetchedRows:
        """All of it."""
        return FetchedRows(unpacked(self.file), str(self.file), {"file": str(self.file.resolve())})


@dataclass(frozen=True)
class Archive:
    """A zip with one JSON Lines file for each member of a group; an old one is known by size and by what is missing."""

    file: Path
    hub: Hub

    def get(self, entry: DataSet) -> FetchedRows:
        """From the archive; raises `TaskError` where it is truncated or lacks the file."""
        size = self.file.stat().st_size
        try:
            with zipfile.ZipFile(self.file) as archive:
                names = {PurePosixPath(name).name: name for name in archive.namelist()}
                self._refuse_old(size, names)
                if f"{entry.member}.jsonl" not in names:
                    raise TaskError(f"{self.file} holds no {entry.member}.jsonl. Fetch revision {self.hub.revision}.")
                data = archive.read(names[f"{entry.member}.jsonl"])
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise TaskError(f"{self.file} is damaged or cut off: it cannot be read as zip. Fetch it again.") from None
        origin = {"repository": self.hub.repository, "revision": str(self.hub.revision), "file": self.file.name}
        return FetchedRows(data, f"{self.file}/{entry.member}.jsonl", origin)

    def _refuse_old(self, size: int, names: dict[str, str]) -> None:
        missing = [name for name in self.hub.must_hold if name not in names]
        if size < self.hub.least_bytes or missing:
            reason = f"it has no {missing[0]}" if missing else f"it has {size} bytes, less than {self.hub.least_bytes}"
            raise TaskError(
                f"{self.file} is an old version of {self.hub.repository} with other samples ({reason}). Fetch revision "
                f"{self.hub.revision}."
            )


@dataclass(frozen=True)
class Repository:
    """A data set that the package `datasets` loads; what needs a loading script is read from the hub's own export."""

    hub: Hub

    def get(self, entry: DataSet) -> FetchedRows:
        """From the hub, at the pinned revision or with the checks of a mirror."""
        name = self.hub.repository
        try:
            loaded, revision = self._load(entry)
        except TaskError:
            raise
        except ValueError as error:  # also for a config or split that is not there
            raise TaskError(f"{name} cannot be read for {entry.name}: {str(error).splitlines()[0]}") from None
        except UNREACHABLE as error:
            raise TaskError(
                f"{name} cannot be fetched ({type(error).__name__}): get it from {entry.source} where there is a "
                f"network, save it as {entry.member}.jsonl, and say --from <its folder>."
            ) from None
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in loaded).encode()
        return FetchedRows(data, name, {"repository": name, "revision": revision, "split": _split(entry)})

    def _load(self, entry: DataSet) -> tuple[Any, str]:
        try:
            import datasets  # type: ignore[import-untyped,import-not-found]
        except ImportError:
            raise TaskError("The package datasets is not installed: 'pip install datasets'.") from None
        config = self.hub.config or (entry.member if entry.group == "longbench" else None)
        for revision in (self.hub.revision, CONVERTED):
            commit = huggingface_hub.HfApi().dataset_info(self.hub.repository, revision=revision).sha
            try:
                rows = datasets.load_dataset(self.hub.repository, config, split=_split(entry), revision=commit)
            except RuntimeError:  # "Dataset scripts are no longer supported"
                continue
            return rows, str(commit)
        raise TaskError(
            f"{self.hub.repository} has a loading script and no export: load it with 'datasets<4', save the split "
            f"{_split(entry)} as {entry.member}.jsonl, and say --from <its folder>."
        )
