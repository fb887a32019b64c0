"""Small stores for tests, without a model."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from harness.config import identity
from harness.store.store import Store


def row(sample: str, value: float = 1.0, metric: str = "string_match", invalid: str = "", **more: object) -> dict:
    return {"sample_id": sample, "metric": metric, "value": value, "weight": 1.0, "invalid": invalid, **more}


def description(policy: str = "sink", **more: object) -> dict:
    """What ``cell.json`` says of a cell whose identity is ``config``, and its id."""
    config = {"policy": {"class": policy}, "task": {}, "model": {}, **more.pop("config", {})}
    labels = {"model": "m", "task": "niah", "budget": "64", "prompt": "blocked", "block_size": 32, "dtype": "float32"}
    return {**labels, "seed": 0, "policy": policy, "config": config, "cell_id": identity.hash_data(config), **more}


def opened(folder: Path, *described: dict, wanted: int = 0) -> tuple[Store, list[str]]:
    """A store in which these cells are open, and their ids."""
    store = Store(folder / "runs")
    for each in described:
        store.describe(each["cell_id"], each, wanted)
    return store, [each["cell_id"] for each in described]


def files(store: Store, cell_id: str) -> list[Path]:
    return sorted((store.root / cell_id).glob("part-*.parquet"))


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def appended_in_a_process(root: Path, cell_id: str, samples: list[str], started=None) -> None:
    store = Store(root)
    for sample in samples:
        store.append(cell_id, [row(sample)])
        if started is not None:
            started.set()


def in_a_process(*arguments) -> multiprocessing.Process:
    """Appends in another process, started; imports no torch."""
    process = multiprocessing.get_context("spawn").Process(target=appended_in_a_process, args=arguments)
    process.start()
    return process
