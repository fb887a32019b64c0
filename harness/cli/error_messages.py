"""User errors end in one sentence on stderr and exit code 2, not in a traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import UserError


@contextmanager
def errors_in_plain_words() -> Iterator[None]:
    """Run a command's body; exit code 2 for user errors, 130 for Ctrl-C. Any other exception is a bug of ours."""
    try:
        yield
    except UserError as error:
        _stop(str(error))
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _stop(
                "The disk is full. What was finished is kept: make room, or choose another results_dir=<folder>, and "
                "run the same command again to go on from there."
            )
        place = error.filename or "A file"
        why = error.strerror or str(error) or type(error).__name__
        _stop(f"{place} cannot be used ({why}): check it, or choose another results_dir.")
    except KeyboardInterrupt:
        _stop("Stopped. What was finished is kept: run the same command again to go on from there.", 130)
    except Exception as error:
        from harness.config.cell import USER_ERRORS  # imports torch, for which commands without it need not wait

        if not isinstance(error, USER_ERRORS):
            raise
        _stop(str(error))


def _stop(sentence: str, code: int = 2) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)
