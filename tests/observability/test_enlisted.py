"""Transactions that a client learns of by itself (SQLAlchemy): observers hear of what they commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from tests.observability.recorder import Recorder
from tests.support.jobs import JOBS, Greet

from queuert import SyncClient
from queuert.sqlalchemy import connect_sync

CREATED = ["chain_created", "job_created"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'jobs.db'}")

    @event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    yield engine
    engine.dispose()


@pytest.fixture
def client(engine: Engine, recorder: Recorder) -> Iterator[SyncClient[Any]]:
    with connect_sync(engine, jobs=JOBS, observers=[recorder]) as client:
        yield client


def test_a_commit_and_a_rollback(client: SyncClient[Any], engine: Engine, recorder: Recorder) -> None:
    with engine.begin() as connection:
        chain = client.start(connection, Greet())
        assert recorder.told == []
    assert recorder.names() == CREATED
    assert recorder.one("chain_created")["chain_id"] == chain.id
    with engine.connect() as connection:
        transaction = connection.begin()
        client.start(connection, Greet())
        transaction.rollback()
    assert recorder.names() == CREATED


def test_a_savepoint(client: SyncClient[Any], engine: Engine, recorder: Recorder) -> None:
    with engine.begin() as connection:
        kept = client.start(connection, Greet())
        savepoint = connection.begin_nested()
        client.start(connection, Greet())
        savepoint.rollback()
    assert [facts["chain_id"] for facts in recorder.of("chain_created")] == [kept.id]
