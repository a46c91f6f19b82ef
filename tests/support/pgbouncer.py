"""PgBouncer in transaction mode before a PostgreSQL of the tests, where it is installed."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.support.postgres import server
from tests.support.servers import die_with_us

PORT = "6432"
"""A name for a socket in a directory of our own: nobody else can have it."""


def binary() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


needs_pgbouncer = pytest.mark.skipif(binary() is None, reason="PgBouncer is missing: apt-get install pgbouncer")


class PgBouncer:
    """A process that speaks for the server, with a connection for each transaction."""

    def __init__(self, program: str, url: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="queuert-bouncer-"))
        self._config = self._directory / "pgbouncer.ini"
        self._write(url)
        options: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to run as root
            user = pwd.getpwnam("nobody")
            os.chown(self._directory, user.pw_uid, user.pw_gid)
            options = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process = subprocess.Popen(
            [program, "-q", str(self._config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_us,
            **options,
        )
        atexit.register(self.stop)
        self._wait_until_ready(url)

    def _write(self, url: str) -> None:
        behind = conninfo_to_dict(url)
        target = " ".join(
            f"{name}={behind[name]}" for name in ("host", "port", "user", "password") if behind.get(name) is not None
        )
        settings = {
            "unix_socket_dir": str(self._directory),
            "listen_port": PORT,
            "auth_type": "any",
            "pool_mode": "transaction",
            "max_client_conn": "500",
            "default_pool_size": "30",
            "server_login_retry": "0.1",
            "pidfile": "",
        }
        lines = [
            "[databases]",
            f"* = {target}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        self._config.write_text("\n".join(lines) + "\n")

    def point_to(self, url: str) -> None:
        """Another server takes the place of the one behind it: a new configuration, and RELOAD."""
        self._write(url)
        self._process.send_signal(signal.SIGHUP)

    def through(self, url: str) -> str:
        """The same database, reached through it."""
        parts = urlsplit(url)
        query = f"host={quote(str(self._directory), safe='')}&port={PORT}"
        return urlunsplit((parts.scheme, "postgres@", parts.path, query, ""))

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._process.terminate()
        self._process.wait(45)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_until_ready(self, url: str) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.through(url)).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("PgBouncer does not start") from None
                time.sleep(0.02)
            else:
                return


@cache
def pgbouncer() -> PgBouncer:
    """The one of this process."""
    program = binary()
    assert program is not None
    return PgBouncer(program, server().url)
