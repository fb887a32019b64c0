"""``python -m scripts.bench.store_scale``: how long the store takes with a million rows in five thousand cells.

Makes the store once (without flushing each file to the disk), then runs each command by itself and reports its wall
time and the most memory it held. ``cold``: without a manifest.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.config import identity
from harness.store import cell_folders, parts
from harness.store import store as manifest
from harness.store.store import Store

MIB = 2**20


def main() -> None:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/store_scale"))
    parser.add_argument("--cells", type=int, default=5000)
    parser.add_argument("--samples", type=int, default=200, help="per cell, one metric each")
    parser.add_argument("--parts", type=int, default=8, help="per cell")
    options = parser.parse_args()
    store = Store(options.folder / "runs")
    if not store.root.exists():
        started = time.perf_counter()
        # In a process of its own: what a child holds is counted from what its parent held when it was started.
        maker = multiprocessing.get_context("spawn").Process(
            target=_make, args=(store, options.cells, options.samples, options.parts)
        )
        maker.start()
        maker.join()
        print(f"made in {time.perf_counter() - started:.0f} s")
    manifest.forget_manifest(store.root)
    for name, command in {
        "status, cold": ["status"], "status": ["status"], "export, parquet": ["export"],
        "export, csv": ["export", "--format", "csv"], "verify": ["verify"], "rebuild": ["rebuild"],
    }.items():  # fmt: skip
        _measure(name, [sys.executable, "-m", "harness", "store", *command, f"results_dir={options.folder}"])
    asking = (
        f"from harness.store.store import Store; from pathlib import Path; s = Store(Path({str(store.root)!r})); "
        "print(sum(len(s.finished(c)) for c in s.cells()))"
    )
    _measure("finished(), every cell", [sys.executable, "-c", asking])


def _measure(name: str, command: list[str]) -> None:
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(process.pid, 0)
    taken = time.perf_counter() - started
    print(f"{name:24} {taken:6.1f} s  {used.ru_maxrss * 1024 / MIB:6.0f} MiB  exit {os.waitstatus_to_exitcode(code)}")


def _make(store: Store, number: int, samples: int, in_parts: int) -> None:
    """Cells like those of a real sweep: the identity and source files of one that the harness builds."""
    like = _description()
    draw = random.Random(0)
    for cell in range(number):
        description = copy.deepcopy(like)
        description["config"]["budget"]["slots"] = 1 + cell
        description |= {"policy": f"policy{cell % 25}", "budget": str(2 ** (5 + cell % 8))}
        cell_id = description["cell_id"] = identity.hash_data(description["config"])
        folder = store.root / cell_id
        folder.mkdir(parents=True)
        (folder / cell_folders.CELL).write_text(json.dumps(description, indent=1))
        (folder / cell_folders.WANTED).write_text(json.dumps({"samples": samples}))
        for part in range(in_parts):
            rows = [{"cell_id": cell_id, **_row(n, draw)} for n in range(part, samples, in_parts)]
            spent = {"wall_seconds": 1.5, "device_seconds": 1.5, "joules": None, "host": "node17", "device": "cuda"}
            name, content = parts.encode_part(rows, spent | {"git": "0123456789ab", "created": f"2026-01-01 {cell}"})
            (folder / name).write_bytes(content)


def _description() -> dict[str, Any]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from harness.config import provenance
    from harness.config.cell import Cell
    from harness.config.experiments import CONF

    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config: Any = OmegaConf.to_container(compose("config", overrides=["budget=64"]), resolve=True)
    cell = Cell.parse(config)
    return json.loads(json.dumps({**cell.description(), **provenance.cell_provenance("cpu")}))  # type: ignore[no-any-return]


def _row(number: int, draw: random.Random) -> dict[str, Any]:
    words = " ".join(draw.choices(("the", "answer", "is", "seven", "of", "nine", "and", "more"), k=20))
    ledger = {"slots_requested": 64, "slots_kept_max": 64, "slots_kept_mean": 63.5, "slots_peak": 96}
    size = {"kv_bytes": 1 << 20, "state_bytes": 0, "tokens_evicted": 448.0, "coverage": draw.random(), "invalid": ""}
    return {
        "sample_id": f"length-1024-depth-{number % 20}-{number:04d}", "metric": "string_match", "value": draw.random(),
        "weight": 1.0, "prediction": words, "reference": words[:40], "document": f"book {number % 10}",
        "axis_length": 1024, "axis_depth": number % 20, "task_fingerprint": "0123456789abcdef",
        "prompt_tokens": 1024, "new_tokens": 16, **ledger, **size,
    }  # fmt: skip


if __name__ == "__main__":
    main()
