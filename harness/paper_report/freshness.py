"""Whether a report would come out as it stands: a fingerprint of all that it is made from, kept beside it."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

from harness.origin.fingerprint import of_data
from harness.origin.sources import ROOT
from harness.store import rows_fingerprint
from harness.store.writing import write_atomically

OURS = ("harness", "tasks", "policies", "conf", "results/published")  # folders of the project
LIBRARIES = ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow")
BESIDE_ROWS = ("diagnostics", "efficiency")  # folders of results that reports show too
STAMP = ".made_from"


def made_from(results: Path, scale: str) -> str:
    """16 hex digits over rows, diagnostics, costs, the project's own files and the libraries that write and draw."""
    return of_data(
        {
            "scale": scale,
            "rows": rows_fingerprint(results),
            "beside": {name: _content(results / name) for name in BESIDE_ROWS},
            "project": {name: _content(ROOT / name) for name in OURS},
            "libraries": {name: version(name) for name in LIBRARIES},
        }
    )


def is_fresh(report: Path, stamp: str) -> bool:
    """Whether the report in this folder was made from the same."""
    file = report / STAMP
    return (report / "index.html").is_file() and file.is_file() and file.read_text() == stamp


def mark(report: Path, stamp: str) -> None:
    """Remember what the report in this folder was made from; written last, so that half a report is never fresh."""
    write_atomically(report / STAMP, stamp.encode())


def _content(folder: Path) -> str:
    """Of every file below, under its path, but for what Python caches."""
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
