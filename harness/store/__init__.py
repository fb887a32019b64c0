"""The results store: one directory per cell, append-only parquet parts, each written atomically under its checksum."""

from harness.store.cells import DamagedCellError
from harness.store.leases import Lease
from harness.store.loading import load_rows, rows_fingerprint
from harness.store.parts import DamagedPartError
from harness.store.runs import Store
from harness.store.writing import write_atomically

__all__ = [
    "DamagedCellError",
    "DamagedPartError",
    "Lease",
    "Store",
    "load_rows",
    "rows_fingerprint",
    "write_atomically",
]
