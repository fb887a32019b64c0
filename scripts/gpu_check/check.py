"""What a GPU check measures on: models by shape, lengths in tokens, and how often."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Check:
    """The conditions of one check."""

    device: str
    shapes: tuple[str, ...]
    rows: tuple[int, ...]  # R, of the prompts
    decoded_rows: tuple[int, ...]  # R, of the decode steps
    tokens: int  # T
    budget: int  # N, slots
    block: int  # B
    steps: int  # decode steps timed at once
    repeats: int
    product: int  # side of the square matrices whose product is the roof
    statistics: tuple[tuple[int, int, int, int, int, int], ...]  # R, H, G, queries, N, D
    tests: tuple[str, ...]
    marked: str  # which of them

    @property
    def target(self) -> torch.device:
        """The device it runs on."""
        return torch.device(self.device)

    @property
    def dtype(self) -> torch.dtype:
        """Half precision on a GPU."""
        return torch.bfloat16 if self.target.type == "cuda" else torch.float32


def whole(device: str) -> Check:
    """What `docs/performance.md` shows."""
    return Check(
        device,
        shapes=("smollm2-135m", "1b", "llama3.1-8b"),
        rows=(1, 8),
        decoded_rows=(1, 8),
        tokens=4096,
        budget=1024,
        block=128,
        steps=32,
        repeats=2,
        product=8192,
        statistics=((1, 8, 4, 128, 1152, 128), (8, 8, 4, 128, 1152, 128), (1, 8, 4, 8192, 8192, 128)),
        tests=(
            "test_on_gpu.py",
            "test_column_kernels.py",
            "test_cuda_graphs.py",
        ),
        marked="gpu",
    )


def tiny(device: str) -> Check:
    """The same way in seconds, to see that it runs to its end."""
    return Check(
        device,
        shapes=("tiny",),
        rows=(1, 2),
        decoded_rows=(1,),
        tokens=160,
        budget=64,
        block=32,
        steps=3,
        repeats=1,
        product=64,
        statistics=((1, 2, 2, 16, 48, 16),),
        tests=("test_cuda_graphs.py::test_a_tape_really_freezes_what_a_graph_freezes",),
        marked="not gpu",
    )
