"""``python -m harness.workers <order>``: one worker of a sweep. Exit code 0 = everything is finished."""

from __future__ import annotations

import sys

from harness.launchers.order import work
from harness.plain_words import errors_in_plain_words


def main(arguments: list[str]) -> None:
    """Work until the sweep is finished, and say how many samples were this worker's."""
    with errors_in_plain_words():
        print(f"{work(arguments[0])} samples stored by this worker.")


if __name__ == "__main__":
    main(sys.argv[1:])
