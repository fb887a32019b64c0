"""Content hashes: of model folders and of plain data. Those of source code are made in `harness.origin.sources`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

WHOLE_FILE_LIMIT = 64 * 2**20  # bytes; of larger weight files only samples are read
SAMPLES, SAMPLE_BYTES = 256, 16 * 2**10  # spread evenly from the first byte to the last


def of_data(data: Mapping[str, Any]) -> str:
    """16 hex digits of canonical JSON: key order and spacing do not matter, values do."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def of_files(files: tuple[Path, ...]) -> str:
    """16 hex digits over names and contents, in the order of the names.

    Of a file beyond `WHOLE_FILE_LIMIT` the size and 4 MiB of samples count: training changes weights everywhere, but
    a change of a few bytes in such a file can go unseen.
    """
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode())
        size = file.stat().st_size
        digest.update(file.read_bytes() if size <= WHOLE_FILE_LIMIT else _sampled(file, size))
    return digest.hexdigest()[:16]


def _sampled(file: Path, size: int) -> bytes:
    """The size and evenly spread pieces of a large file, its beginning and its end among them."""
    last = size - SAMPLE_BYTES
    with file.open("rb") as stream:
        pieces = []
        for number in range(SAMPLES):
            stream.seek(last * number // (SAMPLES - 1))
            pieces.append(stream.read(SAMPLE_BYTES))
    return b"".join((str(size).encode(), *pieces))
