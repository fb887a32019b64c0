"""`python -m scripts.bench [section …]`: tables on the terminal, the same as JSON with the conditions beside it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from harness.config import provenance
from scripts.bench.conditions import Bench, Line
from scripts.bench.lines_table import show
from scripts.bench.sections import SECTIONS

ASKED_FOR = ("length", "scaling", "peer")  # minutes long, or in need of another environment


def main() -> None:
    """Measure, print, write."""
    options = _options()
    device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device.replace("auto", "cpu")
    bench = Bench(
        options.shape, device, getattr(torch, options.dtype), options.repeats,
        options.tokens, options.budget, options.block, tuple(options.policy), options.peer,
        options.rows,
    )  # fmt: skip
    found: dict[str, list[Line]] = {}
    for section in options.section or [name for name in SECTIONS if name not in ASKED_FOR]:
        found[section] = SECTIONS[section](bench)
        _show(section, found[section], bench)
    conditions = {name: str(value) for name, value in vars(options).items()}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "conditions": conditions,
        **provenance.cell_provenance(device),
        "threads": torch.get_num_threads(),
        "found": found,
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(f"Written to {options.json}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=__doc__)
    parser.add_argument(
        "section", nargs="*", choices=[[], *SECTIONS], help="what to measure; all but length, scaling and peer if none"
    )
    parser.add_argument("--shape", default="25m", help="testbed, 25m, smollm2-135m, 1b, llama3.2-3b, llama3.1-8b")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tokens", type=int, default=8192, help="T, prompt tokens")
    parser.add_argument("--budget", type=int, default=1024, help="N, slots")
    parser.add_argument("--block", type=int, default=128, help="B, tokens")
    parser.add_argument("--rows", type=int, default=1, help="R, read and decoded together: sections blocks and decode")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policy", action="append", default=[], help="a preset; may be given several times")
    parser.add_argument("--peer", default="", help="python of an environment with kvpress, for the section peer")
    parser.add_argument("--json", type=Path, default=Path("results/bench.json"))
    return parser.parse_args()


def _show(section: str, lines: list[Line], bench: Bench) -> None:
    conditions = (
        f"{bench.shape}, {str(bench.dtype)[6:]}, {bench.device}, R={bench.rows}, T={bench.tokens}, N={bench.budget}, "
        f"B={bench.block}"
    )
    show(f"{section}: {conditions}", lines)


if __name__ == "__main__":
    main()
