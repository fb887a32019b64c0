"""``python -m harness lm_eval …``: the command ``lm_eval`` with the model ``kvreplica`` known to it.

    python -m harness lm_eval --model kvreplica --tasks gsm8k \\
        --model_args model=testbed,policy=keydiff,budget=25%,block_size=32,prompt=blocked

lm-eval 0.4 looks for models in its own package only (it reads no entry points), so that the plain ``lm_eval`` cannot
find ours. Every other option is lm-eval's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harness.errors import UserError

NO_TASK = "Tasks not found: "  # how lm-eval's complaint begins


def main(words: Sequence[str]) -> None:
    """lm-eval's command line. Raises `UserError` without the package lm-eval."""
    try:
        from lm_eval.__main__ import cli_evaluate

        import harness.integrations.lm_eval  # noqa: F401  registers the model
    except ImportError as error:
        raise UserError(f"This needs the package lm-eval ({error}): pip install -e '.[lm-eval]'.") from error
    sys.argv[:] = ["lm_eval", *words]  # where lm-eval reads them
    try:
        cli_evaluate()
    except ValueError as error:
        if not str(error).startswith(NO_TASK):
            raise
        missing = str(error).removeprefix(NO_TASK)
        raise UserError(f"lm-eval has no task called {missing}: 'lm-eval ls tasks' lists them.") from error


def entry_point() -> None:
    """The installed command ``kvreplica-lm-eval``."""
    from harness.cli.error_messages import errors_in_plain_words

    with errors_in_plain_words():
        main(sys.argv[1:])
