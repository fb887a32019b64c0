"""A real Ray cluster on this machine: nodes one after the other, each with a folder and a log of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

RAY = Path(sys.executable).parent / "ray"
ENVIRONMENT = {
    **os.environ,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_server_port_wait_time_s": "120",
    "PYTHONPATH": str(Path(__file__).parents[2]),
}
STARTED = "Ray runtime started"
PATIENCE = 300.0  # seconds for all nodes together
ATTEMPTS = 2  # Ray gives a node 30 seconds to register, which a busy machine may exceed


class Node:
    """``ray start`` and everything that it started. ``limit``: by `time.monotonic`, when it has to be there."""

    def __init__(self, name: str, words: list[str], folder: Path, limit: float) -> None:
        self.name, self.words, self.folder = name, words, folder
        self.log = folder / f"{name}.log"
        for _ in range(ATTEMPTS):
            self._start()
            if self._is_there(limit):
                return
            self.lose()
        raise AssertionError(f"The {name} of the Ray cluster did not start; its log ends:\n{self.said()[-4000:]}")

    def lose(self) -> None:
        """Kill every process of the node, as if its machine were lost."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def runs(self, pid: int) -> bool:
        """Whether a process belongs to this node."""
        with suppress(ProcessLookupError):
            return os.getsid(pid) == self.process.pid
        return False

    def said(self) -> str:
        """All that ``ray start`` has said, in all attempts."""
        return self.log.read_text(errors="replace")

    def _start(self) -> None:
        """Nothing is shared with other nodes of this machine: Ray numbers the sockets in a common folder by what is
        there, so that two nodes may take the same; and ``/dev/shm`` may be too small for three object stores.
        """
        own = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=self.folder))
        places = [f"--temp-dir={own}", f"--plasma-directory={own}", "--object-store-memory=80000000"]
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                [str(RAY), "start", *self.words, *places, "--include-log-monitor=false", "--block"],
                env=ENVIRONMENT, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip

    def _is_there(self, limit: float) -> bool:
        while STARTED not in self.said():
            if self.process.poll() is not None or time.monotonic() > limit:
                return False
            time.sleep(0.2)
        return True


class Cluster:
    """A head without a place for workers, and nodes with one place each. ``address``: of the head."""

    def __init__(self, nodes: int) -> None:
        limit = time.monotonic() + PATIENCE
        # Not pytest's folder: the name of a socket may have 107 characters, of which Ray needs 65.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))
        self.running: list[Node] = []
        port = _free_port()
        self.address = f"127.0.0.1:{port}"
        head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
        if importlib.util.find_spec("grpc"):  # without it Ray has no client server, and refuses a port for it
            head.append(f"--ray-client-server-port={_free_port()}")
        try:
            self.running.append(Node("head", head, self.folder, limit))
            for number in range(nodes):
                self.running.append(
                    Node(f"n{number}", [f"--address={self.address}", "--num-cpus=1"], self.folder, limit)
                )
        except BaseException:
            self.end()
            raise

    @property
    def nodes(self) -> list[Node]:
        """Those that workers run on."""
        return self.running[1:]

    def end(self) -> None:
        """Nothing of it is left."""
        for node in self.running:
            node.lose()
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
