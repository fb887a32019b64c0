"""The result of `make reproduce` copied to results/reference, which is in git (`make reference` renders its reports).

python -m scripts.keep_reference [--results results] [--to results/reference]

Rows replace those of the same model, task and prompt regime there, diagnostics and costs those of the same model.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness import load_rows
from harness.console import say
from harness.papers.efficiency_rows import FOLDER as COSTS
from harness.store.cell_folders import read_description
from harness.store.loading import PACKED_FILE, pack

DIAGNOSTICS = "diagnostics"
OF_A_PLACE = ["model", "task", "prompt"]


def keep_rows(results: Path, to: Path) -> set[str]:
    """Pack the rows of ``results`` with those of ``to`` that they do not replace; returns the models of ``results``."""
    rows = load_rows(results)
    if (to / PACKED_FILE).exists():
        kept = load_rows(to)
        replaced = pd.MultiIndex.from_frame(kept[OF_A_PLACE]).isin(pd.MultiIndex.from_frame(rows[OF_A_PLACE]))
        pack(pd.concat([rows, kept[~replaced]], ignore_index=True), to)
    else:
        pack(rows, to)
    return set(rows["model"])


def keep_diagnostics(results: Path, to: Path, models: set[str]) -> None:
    """Copy the folders of diagnosed cells, in place of all that these models have there."""
    for cell in sorted((to / DIAGNOSTICS).glob("*")):
        if read_description(cell)["model"] in models:
            shutil.rmtree(cell)
    for cell in sorted((results / DIAGNOSTICS).glob("*")):
        shutil.copytree(cell, to / DIAGNOSTICS / cell.name)
        for file in (to / DIAGNOSTICS / cell.name).rglob("*.parquet"):
            shrink(file)


def shrink(file: Path) -> None:
    """Write a parquet file again with its numbers rounded to fp32, seven digits of them: half of the bytes or less."""
    table = pq.read_table(file)
    doubles = [field.name for field in table.schema if field.type == pa.float64()]
    others = [name for name in table.column_names if name not in doubles]
    rounded = [field.with_type(pa.float32()) if field.name in doubles else field for field in table.schema]
    pq.write_table(
        table.cast(pa.schema(rounded, table.schema.metadata)),
        file,
        compression="zstd",
        use_byte_stream_split=doubles,
        use_dictionary=others,
    )


def keep_costs(results: Path, to: Path, models: set[str]) -> None:
    """Copy the files of runs of costs, in place of all that these models have there."""
    for file in sorted((to / COSTS).glob("*.parquet")):
        if set(pd.read_parquet(file, columns=["model"])["model"]) <= models:
            file.unlink()
    (to / COSTS).mkdir(parents=True, exist_ok=True)
    for file in sorted((results / COSTS).glob("*.parquet")):
        shutil.copy(file, to / COSTS / file.name)


def main() -> None:
    """Copy, and say of which models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--to", type=Path, default=Path("results/reference"))
    given = parser.parse_args()
    models = keep_rows(given.results, given.to)
    keep_diagnostics(given.results, given.to, models)
    keep_costs(given.results, given.to, models)
    say(f"{given.to}: rows, diagnostics and costs of {', '.join(sorted(models))}; those of other models and tasks stay")


if __name__ == "__main__":
    main()
