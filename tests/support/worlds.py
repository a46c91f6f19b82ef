"""Worlds: a database of one kind, a clock that stands still, a channel that is listened to, and clients on them.

Everything is real; only the time is ours. `world.snapshot()` is all that is stored, so that a test can say "and nothing
was written" and mean it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from tests.support.facade import awaited
from tests.support.jobs import JOBS
from tests.support.sqlite import with_tables

from queuert.adapters.in_process import InProcessHub, InProcessNotify, NoNotify
from queuert.adapters.memory import MemoryConnection, MemoryStore, memory_state, sync_memory_state
from queuert.adapters.sqlite import sqlite_state, sync_sqlite_state
from queuert.base.statuses import Status
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.jobs import Chain, Registry
from queuert.ports.notify import TOPICS
from queuert.ports.program import Program
from queuert.records.model import Claimed, ClaimRequest, JobRow, QueueLimit, Settlement, TypeLimit

T = TypeVar("T")

Database = Literal["memory", "sqlite"]
Flavour = Literal["async", "sync"]
KINDS: list[tuple[Database, Flavour]] = [
    ("memory", "async"),
    ("memory", "sync"),
    ("sqlite", "async"),
    ("sqlite", "sync"),
]

START = datetime(2030, 1, 1, tzinfo=UTC)


class World:
    def __init__(self, database: Database, flavour: Flavour, directory: Path) -> None:
        self.database = database
        self.flavour = flavour
        self.now = START
        self.path = directory / "jobs.db"
        if database == "sqlite":
            with_tables(self.path)
        self.hub = InProcessHub()
        self.store = MemoryStore(lambda: self.now, busy_timeout=5)
        self.heard: list[tuple[str, str]] = []
        """What was announced: (topic, type name, chain id or job id)."""
        for topic in TOPICS:
            self.hub.subscriptions.add(topic, self._listener(topic))

    def _listener(self, topic: str) -> Any:
        return lambda value: self.heard.append((topic, value))

    @property
    def is_async(self) -> bool:
        return self.flavour == "async"

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def client(self, jobs: Iterable[Any] = JOBS, *, notify: Any = "in-process", **options: Any) -> Client[Any]:
        """A client on this world's database, to be entered; also several at a time."""
        registry = Registry(jobs, keep=options.pop("keep", None))
        channel = InProcessNotify(self.hub) if notify == "in-process" else notify or NoNotify()
        if self.flavour == "async":
            return Client(self._state(memory_state, sqlite_state), channel, registry, **options)
        return awaited(SyncClient(self._state(sync_memory_state, sync_sqlite_state), channel, registry, **options))

    def _state(self, memory: Any, sqlite: Any) -> Any:
        if self.database == "memory":
            return memory(self.store)
        return sqlite(self.path, busy_timeout=5.0, clock=lambda: self.now)

    def connection(self) -> Any:
        """A connection of the caller's own, to be joined. `begin` and `commit` are his to call."""
        return OwnMemory(self.store) if self.database == "memory" else OwnSqlite(self.path)

    def snapshot(self, *, statistics: bool = True) -> list[Any]:
        """Everything that is stored and committed; if so asked, without what was counted of jobs."""
        if self.database == "memory":
            assert not self.store.writer.locked, "a transaction is open"
            tables = self.store.committed
            return [tables.jobs, tables.blockers, tables.keys]
        connection = sqlite3.connect(self.path)
        try:
            left_out = () if statistics else ('INSERT INTO "queuert_history"',)
            return [line for line in connection.iterdump() if not line.startswith(left_out)]
        finally:
            connection.close()

    def count(self) -> int:
        """The number of stored jobs."""
        if self.database == "memory":
            return len(self.store.committed.jobs)
        connection = sqlite3.connect(self.path)
        try:
            (number,) = connection.execute("SELECT count(*) FROM queuert_job").fetchone()
            return int(number)
        finally:
            connection.close()


class OwnSqlite:
    """The caller's own sqlite3 connection and what he does with it."""

    def __init__(self, path: Path) -> None:
        self.raw: Any = sqlite3.connect(path, isolation_level=None, timeout=5)
        self.raw.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")

    def begin(self) -> None:
        self.raw.execute("BEGIN IMMEDIATE")

    def write(self, number: int) -> None:
        self.raw.execute("INSERT INTO orders VALUES (?)", (number,))

    def commit(self) -> None:
        self.raw.execute("COMMIT")

    def roll_back(self) -> None:
        self.raw.execute("ROLLBACK")

    def close(self) -> None:
        self.raw.close()

    def orders(self) -> list[int]:
        return [row[0] for row in self.raw.execute("SELECT id FROM orders ORDER BY id")]


class OwnMemory:
    """The same for memory, which has no tables of the caller's own."""

    def __init__(self, store: MemoryStore) -> None:
        self.raw = MemoryConnection(store)
        self._block: Any = None

    def begin(self) -> None:
        self._block = self.raw.transaction()
        self._block.__enter__()

    def write(self, number: int) -> None:
        pass

    def commit(self) -> None:
        self._block.__exit__(None, None, None)

    def roll_back(self) -> None:
        self._block.__exit__(RuntimeError, RuntimeError(), None)

    def close(self) -> None:
        pass


# What a worker would do

WORKER = "worker-1"


async def run(client: Client[Any], program: Program[T]) -> T:
    """Drive a program of the state port, in a transaction of its own."""
    return await client._run((program, None))


async def claim(client: Client[Any], *types: str, limit: int = 1) -> list[Claimed]:
    limits = tuple(TypeLimit(name, limit, 60.0) for name in types or client._engine.jobs.names)
    queue = QueueLimit("all", 0, limits, tuple(each.name for each in limits))
    return (await run(client, client._engine.state.claim(ClaimRequest(WORKER, limit, (queue,))))).jobs


async def end(client: Client[Any], row: JobRow, status: Status, **fields: Any) -> None:
    """Settle a claimed job the way a worker would, in silence: nobody is told."""
    assert await try_to_end(client, row, status, **fields)


async def try_to_end(client: Client[Any], row: JobRow, status: Status, **fields: Any) -> bool:
    """Whether the claim was still valid."""
    settlement = Settlement(job_id=row.id, token=row.token, status=status, worker=WORKER, **fields)
    (held,) = (await run(client, client._engine.state.settle([settlement]))).applied
    return held


async def fail(client: Client[Any], chain: Chain[Any], message: str = "boom") -> JobRow:
    """Let a worker claim the chain's current job (it must be the next in line of its type) and fail it for good."""
    found = await client.get_chain(chain.id)
    assert found is not None
    assert found.current_job_type is not None
    (claimed,) = await claim(client, found.current_job_type)
    assert claimed.job.chain_id == chain.id
    error = msgspec.json.encode({"code": "UNHANDLED_ERROR", "type": "ValueError", "message": message})
    await end(client, claimed.job, "failed", error=error)
    return claimed.job


async def complete(client: Client[Any], chain: Chain[Any], output: Any) -> None:
    """Finish the chain's current job without a worker."""
    async with client.transaction() as tx, client.take_over(tx, chain) as current:
        await current.settle(output)


async def start(client: Client[Any], job: Any, **options: Any) -> Chain[Any]:
    """Start one chain in a transaction of its own."""
    async with client.transaction() as tx:
        return await client.start(tx, job, **options)


async def status_of(client: Client[Any], chain: Chain[Any] | str) -> str | None:
    found = await client.get_chain(chain if isinstance(chain, str) else chain.id)
    return None if found is None else found.status
