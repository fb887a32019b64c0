"""Files that are whole or not there, even where the process or the machine stops while they are written."""

from __future__ import annotations

import errno
import os
import socket
import time
import uuid
from pathlib import Path

from harness.errors import UserError

ABANDONED = 3600  # seconds after which a temporary file of another machine counts as left behind
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP}  # errors of file systems that cannot flush folders


def write_atomically(file: Path, content: bytes, flushed: bool = True) -> None:
    """Write under a temporary name, flush to the disk, rename, flush the folder: readers see the whole file or none.

    Without ``flushed`` this holds while the machine runs; a power cut can leave an empty file. Raises OSError, and then
    leaves nothing behind.
    """
    temporary = temporary_name(file, "tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            if flushed:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    if flushed:
        flush_folder(file.parent)


def temporary_name(place: Path, suffix: str) -> Path:
    """The name beside ``place`` under which this process writes it; `is_left_behind` reads the process from it."""
    return place.with_name(f".{place.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.{suffix}")


def _host() -> str:
    return socket.gethostname().replace(".", "-")


def flush_folder(folder: Path) -> None:
    """Make the file names in a folder survive a power cut, where the file system can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH:
            raise
    finally:
        os.close(handle)


def is_left_behind(temporary: Path, after: float = ABANDONED) -> bool:
    """Whether this temporary file is no longer being written: its process has ended, or it is of another machine and
    was last changed more than ``after`` seconds ago."""
    fields = temporary.name.split(".")
    host, pid = fields[-4:-2] if len(fields) >= 5 else ("", "")
    if host == _host() and pid.isdigit():
        return not is_running(int(pid))
    try:
        return time.time() - temporary.stat().st_mtime > after
    except FileNotFoundError:
        return False


def is_running(pid: int) -> bool:
    """Whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def not_written(place: Path, error: OSError) -> UserError:
    """The error that ends a run whose results cannot be written."""
    remedy = (
        "Free space there, or choose another folder with results_dir=<folder>"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "Check the folder, or choose another with results_dir=<folder>"
    )
    return UserError(
        f"Results cannot be written to {place} ({error.strerror}). {remedy}; then run the same command again: what "
        "was finished is kept, and it goes on from there."
    )
