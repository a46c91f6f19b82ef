"""What the servers that tests start have in common."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A loopback port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
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
