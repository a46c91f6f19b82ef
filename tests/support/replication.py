"""A PostgreSQL with a standby that streams from it, and takes its place when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import psycopg
from tests.support.postgres import PostgresServer

PATIENCE = 60.0


class Standby(PostgresServer):
    """A copy of a running server, which follows it."""

    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__()

    def _fill(self) -> None:
        place = f"host={self._primary.directory} user=postgres application_name=standby"
        self._run("pg_basebackup", "-d", place, "-D", str(self._data), "-X", "stream", "-c", "fast", "--no-sync")
        # Its own `-R` would name settings that an older server does not know.
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{place}'\n")
        (self._data / "standby.signal").touch()

    def say(self, text: Any) -> list[Any]:
        return _say(self.url, text)

    def cut_off(self) -> None:
        """It gets nothing any more, as if the network were lost."""
        self.say("ALTER SYSTEM SET primary_conninfo = ''")
        self.say("SELECT pg_reload_conf()")
        _until(lambda: self.say("SELECT count(*) FROM pg_stat_wal_receiver") == [(0,)])

    def promote(self) -> None:
        assert self.say("SELECT pg_promote(true, 60)") == [(True,)]


class Pair:
    """A primary and its standby. `synchronous`: the primary confirms what the standby has written to disk."""

    def __init__(self, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        self.primary = PostgresServer()
        self.standby = Standby(self.primary)
        if synchronous:
            self.say("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            self.say("SELECT pg_reload_conf()")
        wanted = "sync" if synchronous else "async"
        _until(lambda: self.say("SELECT sync_state FROM pg_stat_replication") == [(wanted,)])

    def say(self, text: Any) -> list[Any]:
        """On the primary."""
        return _say(self.primary.url, text)

    def url_of(self, database: str, scheme: str = "postgresql") -> str:
        """Both servers: drivers take the one that can be written to."""
        hosts = ",".join(quote(str(each.directory), safe="") for each in (self.primary, self.standby))
        return f"{scheme}://postgres@/{database}?host={hosts}&target_session_attrs=read-write"

    def cut_off(self) -> None:
        """From now on, nothing that the primary does reaches the standby. What it has sent by now, may."""
        self.standby.cut_off()
        _until(lambda: self.say("SELECT count(*) FROM pg_stat_replication") == [(0,)])

    def kill_primary(self) -> None:
        """All its processes, as if its machine had lost power. Each of them has a group of its own."""
        os.kill(self.primary.pid, signal.SIGSTOP)  # it makes no more of them
        pids = [self.primary.pid, *_children(self.primary.pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        self.standby.remove()
        self.primary.remove()


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=True, text=True)
    return [int(each) for each in listed.stdout.split()]


def _say(url: str, text: Any) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)
