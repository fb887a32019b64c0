"""Locks on batches: files that exactly one worker can create, in a folder that all workers see.

A lock is the file ``<batch>.<epoch>.json``, created exclusively. The worker with the highest epoch holds the batch. The
lock of a dead worker is never removed: the next worker creates the next epoch, which only one worker can, and a worker
that wakes up again finds that its epoch is no longer the highest. So clocks decide which worker may try, never which
may store.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from harness.atomic_files import is_running, not_written
from harness.runner.process import uninterrupted
from harness.store import cell_folders
from harness.store.cell_folders import Lease

BEATS = 6  # heartbeats within the time that a lease holds


class BatchLocks:
    """The locks of one worker in one folder. ``seconds``: how long it may be silent before others take its batch.

    At the end of its ``with`` block everything that the worker still holds is released, even after a signal.
    """

    def __init__(self, folder: Path, seconds: float, worker: str = "") -> None:
        self.folder, self.seconds = folder, seconds
        self.worker = worker or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._open: list[BatchLock] = []

    def __enter__(self) -> BatchLocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for lock in self._open:
            lock.release()

    def take(self, batch: str, cells: Sequence[Path] = ()) -> BatchLock | None:
        """A lock on the batch, or None where a living worker holds it. ``cells``: folders that show the lease as well.

        Raises `UserError` where the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            epoch = self.highest(batch)
            if epoch and not self._abandoned(self.file(batch, epoch)):
                return None
            lock = BatchLock(self, batch, epoch + 1, cells)
            self._open = [lock]  # one at a time; set before it is created, so that it is known if a signal comes then
            return lock if lock.create() and lock.held() else None
        except OSError as error:
            raise not_written(self.folder, error) from error

    def lease(self) -> Lease:
        """A lease whose heartbeat is now."""
        return Lease(self.worker, socket.gethostname(), os.getpid(), time.time(), self.seconds)

    def file(self, batch: str, epoch: int) -> Path:
        """The file of a lock."""
        return self.folder / f"{batch}.{epoch}.json"

    def epochs(self, batch: str) -> list[int]:
        """All epochs in which a worker has locked the batch, ascending."""
        names = (name.split(".") for name in os.listdir(self.folder))  # noqa: PTH208 (many batches, often)
        return sorted(int(fields[1]) for fields in names if len(fields) == 3 and fields[0] == batch)

    def highest(self, batch: str) -> int:
        """The epoch that counts; 0 where the batch was never locked."""
        return max(self.epochs(batch), default=0)

    def _abandoned(self, file: Path) -> bool:
        """Whether the lock's worker has been silent for too long, or its process has gone from this machine."""
        lease = cell_folders.read_lease(file)
        if lease is None:  # created and not yet written, or cut off by a full disk
            with suppress(FileNotFoundError):
                return time.time() - file.stat().st_mtime > self.seconds
            return False
        gone = lease.host == socket.gethostname() and not is_running(lease.pid)
        return gone or not lease.alive()


class BatchLock:
    """A batch that this worker holds: with a heartbeat while the ``with`` block runs, and released at its end."""

    def __init__(self, locks: BatchLocks, batch: str, epoch: int, cells: Sequence[Path]) -> None:
        self.locks, self.batch, self.epoch = locks, batch, epoch
        self._shown = [cell / f"lease-{locks.folder.name}-{batch}.json" for cell in cells]
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._heart = threading.Thread(target=self._beats, daemon=True)

    def create(self) -> bool:
        """Create the lock's file; False where another worker was faster. On OSError no file is left."""
        content = json.dumps(asdict(self.locks.lease())).encode()
        file = self.locks.file(self.batch, self.epoch)
        with uninterrupted():  # a signal between creating and writing would leave a lock that nobody knows as its own
            try:
                handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            except FileExistsError:
                return False
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content)
            except OSError:  # an empty lock would keep all workers waiting until it expires
                file.unlink(missing_ok=True)
                raise
        return True

    def held(self) -> bool:
        """Whether this worker still holds the batch, by the files in the folder now."""
        lease = cell_folders.read_lease(self.locks.file(self.batch, self.epoch))
        mine = lease is not None and lease.worker == self.locks.worker
        return mine and self.locks.highest(self.batch) == self.epoch

    def renew(self) -> bool:
        """Lock the batch once more, in the next epoch; False where another worker has it.

        A worker that was frozen learns this way, before it stores, that another has taken its batch, whatever its clock
        says. Any other worker holds a fresh lease while it stores. Raises `UserError` where the folder cannot be
        written.
        """
        with self._writing:
            if not self.held():
                return False
            later = BatchLock(self.locks, self.batch, self.epoch + 1, ())
            try:
                if not (later.create() and later.held()):
                    return False
            except OSError as error:
                raise not_written(self.locks.folder, error) from error
            self.epoch = later.epoch
            return True

    def __enter__(self) -> BatchLock:
        self._show()
        self._heart.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Remove the batch's locks, the highest last, so that the batch is not free before all are gone."""
        self._over.set()
        if self._heart.is_alive():
            self._heart.join()
        with suppress(OSError):  # a lock that stays expires by itself
            self._remove()

    def _remove(self) -> None:
        if self.held():
            for file in self._shown:
                file.unlink(missing_ok=True)
            for epoch in self.locks.epochs(self.batch):
                self.locks.file(self.batch, epoch).unlink(missing_ok=True)

    def _beats(self) -> None:
        while not self._over.wait(self.locks.seconds / BEATS):
            with suppress(OSError), self._writing:  # others tolerate one lost heartbeat
                if not self.held():
                    return
                cell_folders.write_lease(self.locks.file(self.batch, self.epoch), self.locks.lease())
                self._show()

    def _show(self) -> None:
        lease = self.locks.lease()
        with suppress(OSError):
            for file in self._shown:
                cell_folders.write_lease(file, lease)
