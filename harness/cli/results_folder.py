"""``results_dir=<folder>`` for the commands that need no Hydra and no torch: doctor, store, cells."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_results_dir(parser: argparse.ArgumentParser) -> None:
    """The one setting of these commands, written as everywhere: ``results_dir=<folder>``."""
    parser.add_argument(
        "results_dir",
        nargs="?",
        type=_results_dir,
        default=Path("results"),
        metavar="results_dir=<folder>",
        help="where the runs are (default: results)",
    )


def _results_dir(word: str) -> Path:
    name, _, value = word.partition("=")
    if name != "results_dir" or not value:
        raise argparse.ArgumentTypeError(f"'{word}' is not a setting: write results_dir=<folder>")
    return Path(value)
