"""What the servers that tests start have in common."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORTS = range(12_000, 22_000)
"""Systems give higher ones to whoever asks for any port. The tests of a cluster use the one 10,000 above, too."""


def free_port() -> int:
    """A loopback port that nobody uses, and that is ours until this process ends, also while no server listens."""
    folder = Path(tempfile.gettempdir(), f"queuert-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    while True:
        port = random.choice(PORTS)
        # Other processes of tests find it locked. It stays open: the lock ends with it.
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
        else:
            return port


def die_with_us() -> None:
    """In the child: if the tests are killed, the server is told to stop."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)


def wait_until(answers: Callable[[], bool], process: subprocess.Popen[Any], log: Path) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + 60
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server does not start:\n{log.read_text()}")
        time.sleep(0.01)
