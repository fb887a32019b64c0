"""Claims on units of work: files that exactly one worker can create, in a folder that all workers see.

A claim is the file ``<unit>.<epoch>.json``, created exclusively. Whoever has the highest epoch holds the unit. A claim
of a dead worker is never taken away: the next worker creates the next epoch, which only one can, and the one that wakes
up again finds that its epoch is no longer the highest. So no clock decides who may store, only who may try.
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
from harness.store import cell_folders
from harness.store.cell_folders import Lease

BEATS = 6  # heartbeats within the time that a lease holds


class BatchLocks:
    """What one worker claims in one folder. ``seconds``: how long it may be silent before others take its unit.

    At the end of its block everything that the worker still holds is released, wherever a signal has found it.
    """

    def __init__(self, folder: Path, seconds: float, worker: str = "") -> None:
        self.folder, self.seconds = folder, seconds
        self.worker = worker or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._open: list[BatchLock] = []

    def __enter__(self) -> BatchLocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for claim in self._open:
            claim.release()

    def take(self, unit: str, cells: Sequence[Path] = ()) -> BatchLock | None:
        """The unit, or None where a living worker holds it. ``cells``: folders whose readers are to see the lease.

        Raises `UserError` where the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            epoch = self.highest(unit)
            if epoch and not self._abandoned(self.file(unit, epoch)):
                return None
            claim = BatchLock(self, unit, epoch + 1, cells)
            self._open = [claim]  # one at a time; before it is created, so that it is known if a signal comes then
            return claim if claim.create() and claim.held() else None
        except OSError as error:
            raise not_written(self.folder, error) from error

    def lease(self) -> Lease:
        """A heartbeat of now."""
        return Lease(self.worker, socket.gethostname(), os.getpid(), time.time(), self.seconds)

    def file(self, unit: str, epoch: int) -> Path:
        """Where a claim lies."""
        return self.folder / f"{unit}.{epoch}.json"

    def epochs(self, unit: str) -> list[int]:
        """All epochs in which somebody has claimed the unit, ascending."""
        names = (name.split(".") for name in os.listdir(self.folder))  # noqa: PTH208 (many units, often)
        return sorted(int(fields[1]) for fields in names if len(fields) == 3 and fields[0] == unit)

    def highest(self, unit: str) -> int:
        """The epoch that counts; 0 where nobody has claimed the unit."""
        return max(self.epochs(unit), default=0)

    def _abandoned(self, file: Path) -> bool:
        """Whether the claim's worker is silent for too long, or has gone from this machine."""
        lease = cell_folders.read_lease(file)
        if lease is None:  # created and not yet written, or cut off by a full disk
            with suppress(FileNotFoundError):
                return time.time() - file.stat().st_mtime > self.seconds
            return False
        gone = lease.host == socket.gethostname() and not is_running(lease.pid)
        return gone or not lease.alive()


class BatchLock:
    """A unit that this worker holds: a heartbeat as long as the block runs, and released at its end."""

    def __init__(self, claims: BatchLocks, unit: str, epoch: int, cells: Sequence[Path]) -> None:
        self.claims, self.unit, self.epoch = claims, unit, epoch
        self._shown = [cell / f"lease-{claims.folder.name}-{unit}.json" for cell in cells]
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._heart = threading.Thread(target=self._beats, daemon=True)

    def create(self) -> bool:
        """Create the claim's file; False where another worker was faster. Raises OSError, and then there is none."""
        content = json.dumps(asdict(self.claims.lease())).encode()
        file = self.claims.file(self.unit, self.epoch)
        try:
            handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
        except OSError:  # a claim that says nothing would keep everybody waiting until it expires
            file.unlink(missing_ok=True)
            raise
        return True

    def held(self) -> bool:
        """Whether this worker still holds the unit, by what lies in the folder now."""
        lease = cell_folders.read_lease(self.claims.file(self.unit, self.epoch))
        mine = lease is not None and lease.worker == self.claims.worker
        return mine and self.claims.highest(self.unit) == self.epoch

    def renew(self) -> bool:
        """Claim the unit once more, in the next epoch; False where another worker has it.

        A worker that has been frozen learns by this before it stores that it was given up, whatever its clock says,
        and one that has not holds a fresh lease while it stores. Raises `UserError` where the folder cannot be written.
        """
        with self._writing:
            if not self.held():
                return False
            later = BatchLock(self.claims, self.unit, self.epoch + 1, ())
            try:
                if not (later.create() and later.held()):
                    return False
            except OSError as error:
                raise not_written(self.claims.folder, error) from error
            self.epoch = later.epoch
            return True

    def __enter__(self) -> BatchLock:
        self._show()
        self._heart.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Take the unit's claims away, the highest last: until then nobody takes it for free."""
        self._over.set()
        if self._heart.is_alive():
            self._heart.join()
        with suppress(OSError):  # what stays expires by itself
            self._remove()

    def _remove(self) -> None:
        if self.held():
            for file in self._shown:
                file.unlink(missing_ok=True)
            for epoch in self.claims.epochs(self.unit):
                self.claims.file(self.unit, epoch).unlink(missing_ok=True)

    def _beats(self) -> None:
        while not self._over.wait(self.claims.seconds / BEATS):
            with suppress(OSError), self._writing:  # a heartbeat that is lost shows as silence, which others bear
                if not self.held():
                    return
                cell_folders.write_lease(self.claims.file(self.unit, self.epoch), self.claims.lease())
                self._show()

    def _show(self) -> None:
        lease = self.claims.lease()
        with suppress(OSError):
            for file in self._shown:
                cell_folders.write_lease(file, lease)
