"""A connection that is given for the transaction open on it, where the provider hears of the transaction's end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.jobs import JOBS, Greet, Nothing

from queuert import InvalidArgument, SyncClient, TransactionMisused, TransactionRequired, connect_sync
from queuert.adapters.in_process import NoNotify
from queuert.adapters.sqlite import SqliteOperations, SqliteProvider
from queuert.adapters.sqlite.connections.database import Database
from queuert.jobs.registry import Registry
from queuert.ports.notify import Topic
from queuert.ports.provider import AfterCommitWork
from queuert.ports.state import SyncStateAdapter

W = TypeVar("W", bound=AfterCommitWork)


class Telling(SqliteProvider):
    """sqlite3 with what a session has: it is told of the end of its transactions, and passes that on."""

    work: Any = None

    def enlist(self, connection: sqlite3.Connection, operation: str, make: Callable[[], W]) -> W:
        if not self.in_transaction(connection):
            raise TransactionRequired(operation, reason="none is open")
        if self.work is None:
            self.work = make()
        work: W = self.work
        return work

    def commit(self, connection: sqlite3.Connection) -> None:
        connection.commit()
        work, self.work = self.work, None
        if work is not None:
            work.flush()


class Recording(NoNotify):
    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self.told = told

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        if topic == "job_scheduled":
            self.told.extend(values)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def provider(tmp_path: Path) -> Telling:
    return Telling(Database(tmp_path / "jobs.db", 1.0))


@pytest.fixture
def client(provider: Telling, told: list[str]) -> Iterator[SyncClient[sqlite3.Connection]]:
    state = SyncStateAdapter(SqliteOperations(), provider)
    with SyncClient(state, Recording(told), Registry(JOBS)) as client:
        yield client


@pytest.fixture
def mine(client: SyncClient[sqlite3.Connection], tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_what_is_done_by_a_connection_is_told_after_its_commit(
    client: SyncClient[sqlite3.Connection], provider: Telling, mine: sqlite3.Connection, told: list[str]
) -> None:
    chain = client.start(mine, Greet())
    client.start_many(mine, [Greet(), Nothing()])
    assert client.get_chain(chain) is None
    assert client.get_chain(chain, tx=mine) is not None
    with client.take_over(mine, chain, Greet) as current:
        current.settle("taken")
    client.cancel(mine, client.start(mine, Nothing()))
    assert told == []
    provider.commit(mine)
    assert sorted(told) == ["greet", "nothing"]
    assert client.get_chain(chain) is not None


def test_a_savepoint_that_is_rolled_back_tells_nothing(
    client: SyncClient[sqlite3.Connection], provider: Telling, mine: sqlite3.Connection, told: list[str]
) -> None:
    client.start(mine, Greet())
    with pytest.raises(ZeroDivisionError), client.savepoint(mine):
        client.start(mine, Nothing())
        raise ZeroDivisionError
    provider.commit(mine)
    assert told == ["greet"]


def test_without_a_transaction(client: SyncClient[sqlite3.Connection], mine: sqlite3.Connection) -> None:
    mine.rollback()
    with pytest.raises(TransactionRequired, match=r"start\(\) needs a transaction: none is open"):
        client.start(mine, Greet())
    with pytest.raises(TransactionMisused):
        client.get_chain("x", tx=mine)


def test_a_provider_that_hears_nothing_takes_no_connection(tmp_path: Path, mine: sqlite3.Connection) -> None:
    with connect_sync(f"sqlite:///{tmp_path / 'jobs.db'}", jobs=JOBS, migrate=False) as client:
        with pytest.raises(TransactionRequired, match="after_commit"):
            client.start(mine, Greet())
        with pytest.raises(InvalidArgument, match="tx= takes a Transaction"):
            client.get_chain("x", tx=mine)
