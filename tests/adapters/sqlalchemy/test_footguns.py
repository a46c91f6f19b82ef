"""What can go wrong with a session, each with an error that says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, StaticPool, create_engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.sqlalchemy.worlds import async_client_for, async_engine_for, client_for, engine_for
from tests.support.jobs import JOBS, After, Greet, Nothing
from tests.support.postgres import Databases, template

from queuert import BlockerNotFound, InvalidArgument, SyncClient, TransactionMisused, TransactionRequired
from queuert.sqlalchemy import connect, connect_sync


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


World = tuple[SyncClient[Any], sessionmaker[Session], Engine]


@pytest.fixture(params=["psycopg", "pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres: Databases) -> Iterator[tuple[str, str]]:
    if request.param == "pysqlite":
        yield f"sqlite:///{tmp_path / 'app.db'}", "pysqlite"
    else:
        with postgres.fresh(template=template()) as found:
            yield found, "psycopg"


@pytest.fixture
def world(url: tuple[str, str]) -> Iterator[World]:
    with engine_for(*url) as engine:
        sessions = sessionmaker(engine)
        with client_for(sessions) as (client, _):
            yield client, sessions, engine


def test_a_session_in_autocommit(world: World, url: tuple[str, str]) -> None:
    client, _, _ = world
    with engine_for(*url, isolation_level="AUTOCOMMIT") as careless, Session(careless) as session:
        session.begin()
        with pytest.raises(TransactionMisused, match="no transaction is open"):
            client.start(session, Greet())
    assert client.list_chains().items == []


async def test_an_async_session_in_autocommit(migrated_url: str) -> None:
    async with async_engine_for(migrated_url, "asyncpg") as engine, async_client_for(engine) as (client, _):
        careless = engine.execution_options(isolation_level="AUTOCOMMIT")
        async with careless.begin() as connection:
            with pytest.raises(TransactionMisused, match="no transaction is open"):
                await client.start(connection, Greet())


def test_a_session_that_is_closed(world: World) -> None:
    client, sessions, _ = world
    with sessions.begin() as session:
        client.start(session, Greet())
    with pytest.raises(TransactionRequired, match="no transaction is open on this session: it was closed"):
        client.start(session, Greet())
    with pytest.raises(TransactionMisused, match="no transaction is open on this session"):
        client.get_chain("x", tx=session)


def test_a_connection_that_is_closed(world: World) -> None:
    client, _, engine = world
    required = pytest.raises(TransactionRequired, match="no transaction is open on this connection")
    with engine.connect() as connection, required:
        client.start(connection, Greet())
    with pytest.raises(TransactionRequired, match="this connection is closed"):
        client.start(connection, Greet())


async def test_an_async_connection_that_is_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    async with async_engine_for(url, "aiosqlite") as engine, async_client_for(engine) as (client, _):
        async with engine.begin() as connection:
            await client.start(connection, Greet())
        with pytest.raises(TransactionRequired, match="this connection is closed"):
            await client.start(connection, Greet())
        with pytest.raises(TransactionMisused, match="never awaited"):
            await client.start(engine.connect(), Greet())


def test_a_connection_of_another_database(
    world: World, url: tuple[str, str], tmp_path: Path, postgres: Databases
) -> None:
    client, _, _ = world
    with postgres.fresh() as elsewhere:
        for other in ((elsewhere, "psycopg"), (f"sqlite:///{tmp_path / 'other.db'}", "pysqlite")):
            refused = pytest.raises(TransactionMisused, match="but the jobs live in")
            with engine_for(*other) as engine, engine.begin() as connection, refused:
                client.start(connection, Greet())
    with engine_for(*url) as same, same.begin() as connection:
        chain = client.start(connection, Greet())
    assert client.get_chain(chain) is not None


def test_a_chain_of_a_block_that_was_rolled_back(world: World) -> None:
    client, sessions, _ = world
    with sessions.begin() as session:
        session.execute(text("CREATE TABLE notes (id INTEGER)"))
        client.start(session, Nothing())
        nested = session.begin_nested()
        chain = client.start(session, Greet())
        nested.rollback()
        with pytest.raises(BlockerNotFound):
            client.start(session, After(greeting=chain))
    assert client.get_chain(chain) is None
    assert len(client.list_chains().items) == 1


def test_a_block_that_has_failed_takes_nothing_more(world: World) -> None:
    client, sessions, engine = world
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
    with sessions() as session:
        session.add(Order(id=1))
        session.commit()
        session.expunge_all()
        session.add(Order(id=1))
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(TransactionRequired, match=r"a flush has failed|no transaction is open"):
            client.start(session, Greet())


def test_use_from_another_thread_at_the_same_time(migrated_url: str) -> None:
    with engine_for(migrated_url) as engine, client_for(engine) as (client, _):
        watcher = Watcher(migrated_url)
        with engine.begin() as first, engine.begin() as second:
            client.start(first, Greet(), dedup="k")
            waiting = threading.Thread(target=lambda: client.start(second, Greet(), dedup="k"))
            waiting.start()  # until the first has ended
            while not watcher.others("wait_event_type = 'Lock'"):
                pass
            with pytest.raises(TransactionMisused, match="another thread or task is using this session"):
                client.start(second, Greet())
            first.rollback()
            waiting.join()
        watcher.close()
        assert len(client.list_chains().items) == 1


def test_a_thread_that_sqlite_does_not_allow(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    with engine_for(url, "pysqlite", connect_args={"check_same_thread": True}) as engine:
        with client_for(engine) as (client, _), engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            caught: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    client.start(connection, Greet())
                except TransactionMisused as error:
                    caught.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        assert "thread" in str(caught[0])


async def test_async_and_sync_do_not_mix(world: World, tmp_path: Path) -> None:
    client, sessions, _ = world
    url = f"sqlite:///{tmp_path / 'other.db'}"
    async with async_engine_for(url, "aiosqlite") as engine:
        async with async_sessionmaker(engine)() as session:
            with pytest.raises(TransactionMisused, match="this is a sync client, and AsyncSession is async"):
                client.start(session, Greet())
        async with async_client_for(engine) as (async_client, _):
            with sessions() as plain, pytest.raises(TransactionMisused, match="an async client, and Session is sync"):
                await async_client.start(plain, Greet())
    with pytest.raises(TransactionMisused, match=r"got builtins\.int"):
        client.start(7, Greet())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: connect_sync(create_async_engine("sqlite+aiosqlite:///x.db"), jobs=JOBS), r"use connect\(\) for it"),  # type: ignore[call-overload]
        (lambda: connect(create_engine("sqlite:///x.db"), jobs=JOBS), r"use connect_sync\(\) for it"),  # type: ignore[call-overload]
        (lambda: connect("sqlite:///x.db", jobs=JOBS), "got str"),  # type: ignore[call-overload]
        (lambda: connect_sync(sessionmaker(), jobs=JOBS), "bound to one, got sessionmaker"),
        (lambda: connect_sync(create_async_engine("sqlite+aiosqlite:///x.db").sync_engine, jobs=JOBS), "AsyncEngine"),
        (lambda: connect_sync(create_engine("sqlite://"), jobs=JOBS), "in memory"),
        (lambda: connect_sync(create_engine("sqlite:///x.db", poolclass=StaticPool), jobs=JOBS), "StaticPool"),
        (lambda: connect_sync(create_engine("sqlite:///x.db"), jobs=JOBS, notify="postgres"), "notify must be"),
        (lambda: connect_sync(create_engine("sqlite:///x.db"), jobs=JOBS, schema="s"), "schema is for PostgreSQL"),
        (
            lambda: connect_sync(create_engine("postgresql+psycopg:///x"), jobs=JOBS, prepare=True),  # type: ignore[call-overload]
            "prepare must be set on the engine",
        ),
        (
            lambda: connect_sync(create_engine("postgresql+psycopg:///x"), jobs=JOBS, pool_size=5),  # type: ignore[call-overload]
            "pool_size must be set on the engine",
        ),
        (lambda: connect_sync(create_engine("postgresql+psycopg:///x"), jobs=JOBS, busy_timeout=1), "is for SQLite"),
    ],
)
def test_sources_and_options_that_do_not_fit(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_a_deferred_transaction_of_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    with engine_for(url, "pysqlite") as engine, client_for(engine) as (client, _):
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with engine.begin() as connection, pytest.raises(TransactionMisused, match="does not hold the write lock"):
            client.start(connection, Greet())
        with client.transaction() as tx:  # our own begin as they must
            client.start(tx, Greet())
    assert not engine.pool.checkedout()  # type: ignore[attr-defined]


def test_sqlite_as_python_leaves_it(tmp_path: Path) -> None:
    """Where Python's driver has not begun yet, we begin, with the write lock."""
    with engine_for(f"sqlite:///{tmp_path / 'app.db'}", "pysqlite") as engine, client_for(engine) as (client, _):
        with engine.begin() as connection:
            client.start(connection, Greet())
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            with client.savepoint(connection):
                client.start(connection, Greet())
            connection.rollback()
        assert len(client.list_chains().items) == 1


def test_a_scoped_session(world: World) -> None:
    client, sessions, _ = world
    scoped = scoped_session(sessions)
    with scoped.begin():
        client.start(scoped, Greet())
    scoped.remove()
    assert len(client.list_chains().items) == 1


def test_two_phases_are_refused(migrated_url: str) -> None:
    with (
        engine_for(migrated_url) as engine,
        client_for(sessionmaker(engine)) as (client, _),
        Session(engine, twophase=True) as session,
    ):
        session.begin()
        with pytest.raises(TransactionMisused, match="two phases"):
            client.start(session, Greet())


def test_a_conflict_is_for_the_owner_of_the_transaction(migrated_url: str) -> None:
    with (
        engine_for(migrated_url, isolation_level="REPEATABLE READ") as engine,
        client_for(engine) as (client, _),
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT 1"))
        with client.transaction() as tx:
            client.start(tx, Greet(), dedup="k")
        with pytest.raises(OperationalError) as caught:
            client.start(connection, Greet(), dedup="k")
        assert isinstance(caught.value.orig, psycopg.errors.SerializationFailure)


def test_a_savepoint_that_is_no_part_of_a_transaction(tmp_path: Path) -> None:
    """On SQLite as Python sets it up, SAVEPOINT begins the transaction, and its release would commit job and order."""
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with connect_sync(sessionmaker(engine), jobs=JOBS) as client:
        Base.metadata.create_all(engine)
        with (
            pytest.raises(TransactionMisused, match="this savepoint may be the whole transaction"),
            Session(engine) as session,
            session.begin(),
            session.begin_nested(),
        ):
            session.add(Order(id=1))
            client.start(session, Greet())
        with Session(engine) as session, session.begin():
            assert session.get(Order, 1) is None
            client.start(session, Greet())  # from here on, the transaction has begun
            with session.begin_nested():
                client.start(session, Greet())
        assert len(client.list_chains().items) == 2
    engine.dispose()
