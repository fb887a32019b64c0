"""`python -m scripts.gpu_check`: is the engine right on this machine's GPU, and how fast? Tables, and the same as JSON.

Each step runs in a process of its own, so that one which fails or hangs costs no other step its result; with --tiny all
run in this one, which starts once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.config import provenance
from scripts.bench.conditions import Line
from scripts.bench.lines_table import show
from scripts.gpu_check import steps
from scripts.gpu_check.check import Check, tiny, whole

Step = Callable[[Check], Iterator[Line]]
ONE_STEP = 180.0  # seconds that a step may take
LOG = 4000  # characters kept of the end of what a step prints


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every step, print and write what it found. 1 where a step failed or found something wrong."""
    options = _options(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no GPU here. Try the way without one: python -m scripts.gpu_check --device cpu --tiny")
        return 2
    check = tiny(options.device) if options.tiny else whole(options.device)
    planned = _steps(check)
    if unknown := [name for name in options.step if name not in planned]:
        print(f"There is no step '{unknown[0]}': the steps are {', '.join(planned)}.")
        return 2
    if options.here:
        for line in planned[options.step[0]](check):
            print(json.dumps(line), flush=True)
        return 0
    deadline = time.monotonic() + 60 * options.minutes
    found: dict[str, Any] = {}
    for name in options.step or planned:
        found[name] = (
            _in_this_process(planned[name], check) if options.tiny else _in_a_process(name, options.device, deadline)
        )
        _show(name, found[name])
    record = {"conditions": vars(check), **provenance.cell_provenance(options.device), "found": found}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(f"Written to {options.json}")
    return int(any(step["end"] != "done" or step["wrong"] for step in found.values()))


def _steps(check: Check) -> dict[str, Step]:
    models = {shape: partial(steps.model, shape=shape) for shape in check.shapes}
    return {"tests": steps.tests, "one layer": steps.layer, **models}


def _in_this_process(step: Step, check: Check) -> dict[str, Any]:
    started = time.monotonic()
    lines = list(step(check))
    return _result("done", started, lines, "")


def _in_a_process(name: str, device: str, deadline: float) -> dict[str, Any]:
    """The lines that one step found, its seconds, and how it ended."""
    left = min(ONE_STEP, deadline - time.monotonic())
    if left <= 0:
        return _result("not begun: no time was left (--minutes)", time.monotonic(), [], "")
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        try:
            code = subprocess.run(_command(name, device), stdout=out, stderr=log, timeout=left).returncode
            end = "done" if code == 0 else f"failed with exit code {code}"
        except subprocess.TimeoutExpired:
            end = f"cut off after {left:.0f} s"
        out.seek(0)
        log.seek(0)
        lines = [json.loads(line) for line in out if line.startswith("{")]
        said = log.read()[-LOG:]
    return _result(end, started, lines, said)


def _result(end: str, started: float, lines: list[Line], log: str) -> dict[str, Any]:
    return {
        "end": end, "seconds": round(time.monotonic() - started, 1),
        "wrong": any(line.get("exit code") for line in lines), "lines": lines, "log": log,
    }  # fmt: skip


def _command(name: str, device: str) -> list[str]:
    return [sys.executable, "-m", "scripts.gpu_check", name, "--here", "--device", device]


def _show(name: str, step: dict[str, Any]) -> None:
    show(f"{name} ({step['end']}, {step['seconds']:.0f} s)", step["lines"])
    whole_log = step["end"].startswith("failed") or step["wrong"]
    for line in step["log"].splitlines():
        if whole_log or line.startswith("engine.compile"):  # why passes were computed that should have been replayed
            print(line)


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.gpu_check", description=__doc__)
    parser.add_argument("step", nargs="*", help="tests, one layer, or a shape of a model; all if none")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="seconds on any machine: does it run to its end?")
    parser.add_argument("--minutes", type=float, default=9.0, help="no step begins later, and the last one is cut off")
    parser.add_argument("--json", type=Path, default=Path("results/gpu_check.json"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one step, in this process
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
