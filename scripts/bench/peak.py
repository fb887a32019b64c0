"""The peak of one run, measured in a process of its own beside what `harness.runner.memory` plans for it.

On a processor it is the growth of the resident set, which holds the allocator's gaps too; on a GPU it is what torch
allocated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from harness.engine.fast_layers import pack_layers
from harness.engine.requests import Prompting, Request
from harness.runner.memory import Footprint, MemoryLoad
from scripts.bench.contenders import engine_as_runs_have_it, preset, prompt
from scripts.bench.shapes import build

# Freed memory goes back to the system at once, which `harness/__init__.py` keeps otherwise: what loading the model has
# freed would hide what the run takes.
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": str(2**17), "MALLOC_TRIM_THRESHOLD_": str(2**17)}


@dataclass(frozen=True)
class PeakCase:
    """Rows of ``samples`` random prompts under every policy and budget, in one engine call."""

    shape: str
    dtype: str
    device: str
    regime: str
    tokens: int
    block: int
    policies: tuple[str, ...]
    budgets: tuple[int, ...]
    samples: int
    new_tokens: int = 8

    def rows(self, vocabulary: int) -> list[Request]:
        """The requests that a sweep would make."""
        texts = [prompt(self.tokens, vocabulary, seed) for seed in range(self.samples)]
        return [
            Request(text, preset(name), budget, self.new_tokens)
            for text in texts
            for name in self.policies
            for budget in self.budgets
        ]


def measured(case: PeakCase) -> dict[str, float]:
    """Bytes: ``planned`` and ``peak`` beside the weights, in a fresh process."""
    command = [sys.executable, "-m", "scripts.bench.peak", json.dumps(asdict(case))]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **GIVEN_BACK})
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def planned_and_peak(case: PeakCase, model: PreTrainedModel) -> dict[str, float]:
    """The same in this process."""
    prompting = Prompting(case.regime, case.block)  # type: ignore[arg-type]
    engine = engine_as_runs_have_it(model)
    rows = case.rows(model.config.vocab_size)
    load = MemoryLoad(Footprint.of(model.config, case.dtype))
    for row in rows:
        load = load.with_row(row, prompting)
    engine.generate(
        [Request(prompt(64, model.config.vocab_size), preset("keydiff"), 48, 2)], prompting
    )  # threads, caches
    before = _resident(case.device)
    engine.generate(rows, prompting)
    return {"rows": len(rows), "planned": load.bytes, "peak": _highest(case.device) - before}


def _resident(device: str) -> int:
    """Bytes now; `_highest` counts from here on."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten (man proc_pid_clear_refs)
    return _status("VmRSS")


def _highest(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    """Bytes, of Linux's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    lists = {name: tuple(given[name]) for name in ("policies", "budgets")}
    case = PeakCase(**{**given, **lists})
    model = build(case.shape, getattr(torch, case.dtype), case.device)
    pack_layers(model)
    print(json.dumps(planned_and_peak(case, model)))
