"""Shared by all tests: one thread per process gives the same rounding on every machine."""

import gc

import torch

torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """What the libraries have imported stays: looking through it for garbage took a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
