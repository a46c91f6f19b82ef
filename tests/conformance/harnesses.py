"""Harnesses for the adapters of this package."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.sqlite import with_tables

from queuert.adapters.in_process import InProcessHub, InProcessNotify, NoNotify
from queuert.adapters.memory import MemoryStore, memory_state, sync_memory_state
from queuert.adapters.sqlite import SqliteHub, aiosqlite_state, sqlite_state, sync_sqlite_state
from queuert.ports.notify import NotifyAdapter
from queuert_conformance import NotifyHarness, StateHarness
from queuert_conformance.state.driver import AnyStateAdapter


class MemoryHarness(StateHarness):
    """Memory, with a clock that can be moved. It has no statements that could fail, so nothing to poison."""

    single_writer = True

    def __init__(self, make: Callable[[MemoryStore], AnyStateAdapter]) -> None:
        self.ahead = timedelta()
        self.store = MemoryStore(lambda: datetime.now(UTC) + self.ahead)
        self.make = make
        super().__init__(make(self.store))

    async def second(self) -> AnyStateAdapter:
        return self.make(self.store)

    async def advance(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


class SqliteHarness(StateHarness):
    """A file of its own, by the real clock."""

    single_writer = True

    def __init__(self, make: Callable[[Path], AnyStateAdapter]) -> None:
        self.directory = TemporaryDirectory()
        self.path = with_tables(Path(self.directory.name) / "jobs.db")
        self.make = make
        super().__init__(make(self.path))

    async def dispose(self) -> None:
        self.directory.cleanup()

    async def second(self) -> AnyStateAdapter:
        return self.make(self.path)

    def poison(self, connection: Any) -> Any:
        try:
            connection.execute("INSERT INTO there_is_no_such_table VALUES (1)")
        except sqlite3.OperationalError:
            return


def async_memory() -> StateHarness:
    return MemoryHarness(memory_state)


def sync_memory() -> StateHarness:
    return MemoryHarness(sync_memory_state)


def async_sqlite() -> StateHarness:
    return SqliteHarness(sqlite_state)


def sync_sqlite() -> StateHarness:
    return SqliteHarness(sync_sqlite_state)


class AiosqliteHarness(SqliteHarness):
    async def poison(self, connection: Any) -> Any:
        try:
            await connection.execute("INSERT INTO there_is_no_such_table VALUES (1)")
        except sqlite3.OperationalError:
            return


def aiosqlite_harness() -> StateHarness:
    return AiosqliteHarness(aiosqlite_state)


class InProcessHarness(NotifyHarness):
    def __init__(self) -> None:
        self.hub = InProcessHub()
        super().__init__(InProcessNotify(self.hub))

    async def second(self) -> NotifyAdapter:
        return InProcessNotify(self.hub)


class SqliteHubHarness(NotifyHarness):
    """The hub of a process that watches a file."""

    def __init__(self) -> None:
        self.directory = TemporaryDirectory()
        path = Path(self.directory.name) / "jobs.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        self.hub = SqliteHub(path)
        super().__init__(InProcessNotify(self.hub))

    async def dispose(self) -> None:
        self.directory.cleanup()

    async def second(self) -> NotifyAdapter:
        return InProcessNotify(self.hub)


class NoNotifyHarness(NotifyHarness):
    delivers = False
    hints = False

    def __init__(self) -> None:
        super().__init__(NoNotify())

    async def second(self) -> NotifyAdapter:
        return NoNotify()
