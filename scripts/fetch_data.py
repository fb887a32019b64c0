"""``python -m scripts.fetch_data <data set or group> --from <folder|file|hub>``: puts data where tasks look for them.

Data is checked before it is written (`scripts.fetching.data_checks`), written under ``data/`` in one piece or not at
all, and recorded with source, revision, rows and sha256 in ``data/PROVENANCE.json``. Exit code 2 = something was
refused or is missing, one sentence each on stderr; data sets without an error are written all the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from harness.cli.error_messages import errors_in_plain_words
from scripts.fetching.data_checks import verified
from scripts.fetching.sources import DataSource, opened
from tasks.base import TaskError, nearest
from tasks.data import CATALOGUE, DataSet
from tasks.data.tables import CARRIED, FETCHED


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what went wrong is said once, below
    parser = argparse.ArgumentParser(prog="python -m scripts.fetch_data", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("wanted", nargs="*", metavar="data set or group", help="longbench, longbench/qasper, xsum, …")
    parser.add_argument(
        "--from", dest="origin", help="a folder that holds them; the file of one; hub; or hub:<owner/name>"
    )
    parser.add_argument("--part", action="store_true", help="take fewer rows than the data set has, too")
    parser.add_argument("--into", type=Path, default=FETCHED, help="where to put them (data)")
    parser.add_argument("--list", action="store_true", help="what there is, who may have it, and what is here already")
    asked = parser.parse_args(arguments)
    if asked.list:
        with errors_in_plain_words():
            print(listing(asked.into), flush=True)
        return
    problems = ["Say what to fetch, and --from where; --list shows what there is."]
    if asked.wanted and asked.origin:
        problems = list(fetch(asked.wanted, asked.origin, asked.into, asked.part))
    for problem in dict.fromkeys(problems):
        print(problem, file=sys.stderr)
    sys.exit(2 if problems else 0)


def fetch(wanted: Sequence[str], origin: str, into: Path, part: bool = False) -> Iterator[str]:
    """Fetch everything that is ``wanted``; yields a sentence for each thing that could not be had.

    ``part``: whether fewer rows than a data set has will do.
    """
    try:
        entries = [entry for name in wanted for entry in chosen(name)]
    except TaskError as error:
        yield str(error)
        return
    if len(entries) > 1 and Path(origin).is_file():
        yield f"--from {origin} is one file, and {len(entries)} data sets are asked for: name the one that it holds."
        return
    for _, group in groupby(entries, key=lambda entry: (entry.group, entry.hub)):
        members = list(group)
        try:
            source = opened(members[0], origin)
        except TaskError as error:
            yield str(error)
            continue
        for entry in members:
            try:
                print(put(entry, source, into, part))
            except TaskError as error:
                yield str(error)
            except OSError as error:
                yield f"{into} cannot be written to ({error.strerror}): make room, or choose another with --into."


def chosen(name: str) -> list[DataSet]:
    """The data set ``name``, or all of the group ``name``."""
    entries = [entry for entry in CATALOGUE.values() if name in (entry.name, entry.group)]
    if not entries:
        known = {*CATALOGUE, *(entry.group for entry in CATALOGUE.values())}
        raise TaskError(f"There is no data set or group '{name}'. {nearest(name, known)}")
    return entries


def put(entry: DataSet, source: DataSource, into: Path, part: bool) -> str:
    """Get, check, write and record one data set; what was done, as a line."""
    got = source.get(entry)
    rows = verified(entry, got.data, got.place, part)
    file = into / f"{entry.name}.jsonl"
    write(file, got.data)
    digest = hashlib.sha256(got.data).hexdigest()
    record(into / "PROVENANCE.json", entry, {**got.origin, "rows": len(rows), "sha256": digest})
    of_all = f" of {entry.rows}" if entry.rows not in (None, len(rows)) else ""
    return f"{file}: {len(rows)} rows{of_all}, sha256 {digest[:16]}"


def write(file: Path, data: bytes) -> None:
    """``data`` as ``file``, which is there whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(file.name + ".part")
    unfinished.write_bytes(data)
    unfinished.replace(file)


def record(file: Path, entry: DataSet, said: dict[str, str | int]) -> None:
    """What is known about a data set, beside what is known about the others."""
    known = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    known[entry.name] = {**said, "licence": entry.licence}
    write(file, (json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n").encode())


def listing(into: Path) -> str:
    """A line for each data set: name, rows, what is here, licence."""
    head = f"{'data set':42}{'complete':>13}  {'here':9}licence"
    return "\n".join(
        [
            head,
            *(
                f"{entry.name:42}{entry.rows or '?':>6} rows  {_state(entry, into):9}{entry.licence}"
                for entry in CATALOGUE.values()
            ),
        ]
    )


def _state(entry: DataSet, into: Path) -> str:
    if (into / f"{entry.name}.jsonl").is_file():
        return "fetched"
    return "carried" if (CARRIED / f"{entry.name}.jsonl.gz").is_file() else "-"


if __name__ == "__main__":
    main()
