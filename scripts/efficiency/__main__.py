"""`python -m scripts.efficiency`: what the papers' methods cost here, as rows that the papers' reports read.

Writes one parquet file into ``<results>/efficiency/``. A report takes the newest run that has what it needs, never two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch

from harness.config import provenance
from harness.engine.model_runner import ModelRunner
from harness.papers.efficiency_rows import save_rows
from scripts.bench.contenders import as_runs_have_it
from scripts.bench.shapes import SHAPES, build
from scripts.efficiency.cases import SCALES, board_cases, timed_cases
from scripts.efficiency.measure import counted_lines, timed_lines


def main() -> None:
    """Measure and store."""
    options = _options()
    device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device.replace("auto", "cpu")
    if options.threads:
        torch.set_num_threads(options.threads)
    model = build(options.model, getattr(torch, options.dtype), device)
    # Operations are counted in torch's own products, and timed beside the count; a method's cost is that of a run.
    counting, timing, scale = ModelRunner(model), ModelRunner(as_runs_have_it(model)), SCALES[options.scale]
    # The preset kvec raises three heads a layer, and these models have two or three.
    kvec = "kvec/testbed" if options.model in ("testbed", "smollm2-135m") else "kvec"
    is_board = options.of == "leaderboard"
    cases = board_cases(scale, options.scale, options.model) if is_board else timed_cases(scale, kvec)
    counts_too = not (is_board or scale.tests_only)
    also = ", and counts" if counts_too else ""
    print(f"{len(cases)} cases in {options.repeats} rounds{also}: {options.model} on {device}", flush=True)
    counts = counted_lines(counting, scale, options.repeats) if counts_too else []
    lines = [*timed_lines(timing, cases, options.repeats), *counts]
    conditions = {
        "model": options.model, "scale": options.scale, "dtype": options.dtype,
        "threads": torch.get_num_threads(), **provenance.cell_provenance(device),
    }  # fmt: skip
    print(f"Written to {save_rows(pd.DataFrame(lines).assign(**conditions), options.results)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.efficiency", description=__doc__)
    parser.add_argument(
        "--of",
        default="papers",
        choices=["papers", "leaderboard"],
        help="whose policies: those of the papers' tables, or those of +exp=leaderboard, whose boards show the times",
    )
    parser.add_argument(
        "--model",
        default="",
        choices=["testbed", *SHAPES],
        help="the testbed, or a shape with random weights, which matter for R-KV's time alone (default: the scale's)",
    )
    parser.add_argument("--scale", default="mini", choices=list(SCALES), help="full: the papers' lengths")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="of the processor; 0 = as torch chooses")
    parser.add_argument("--repeats", type=int, default=5, help="rounds in which every case runs once")
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    options.model = options.model or ("smollm2-135m" if options.scale == "small" else "testbed")
    return options


if __name__ == "__main__":
    main()
