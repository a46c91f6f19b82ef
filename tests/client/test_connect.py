"""From a URL to a client: what connect takes, and databases that cannot be used."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from tests.support import jobs as jobs_module
from tests.support.channels import adapter_of
from tests.support.facade import awaited
from tests.support.jobs import Greet
from tests.support.naming import short
from tests.support.worlds import start

import queuert
import queuert.sqlalchemy
from queuert import (
    InvalidArgument,
    QueuertError,
    SchemaTooNew,
    StorageBusy,
    StorageError,
    StorageNotADatabase,
    StorageReadOnly,
)
from queuert.adapters.in_process import NoNotify
from queuert.adapters.postgres.adapter import asyncpg_notify, psycopg_notify
from queuert.client.client import Client
from queuert.jobs import JobTypes

Connect = Callable[..., Client[Any]]


@pytest.fixture(params=["async", "sync"])
def connect(request: pytest.FixtureRequest) -> Connect:
    if request.param == "async":
        return queuert.connect
    return lambda *args, **options: awaited(queuert.connect_sync(*args, **options))


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def test_a_file_with_an_absolute_path(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with connect(url_of(path), jobs=[Greet]) as client:
        chain = await start(client, Greet())
    async with connect(url_of(path), jobs=[Greet]) as client:
        assert await client.get_chain(chain) is not None
    assert path.exists()


async def test_a_file_in_the_current_directory(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    async with connect("sqlite:///my%20jobs.db", jobs=[Greet]) as client:
        chain = await start(client, Greet())
        # The file is the one that was meant when the client was made.
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await client.get_chain(chain) is not None
        await start(client, Greet())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["my jobs.db"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_jobs_can_be_classes_slices_and_modules(connect: Connect) -> None:
    for jobs in ([Greet], [JobTypes([Greet])], [jobs_module]):
        async with connect("memory://", jobs=jobs) as client:
            assert (await start(client, Greet())).status == "pending"


async def test_memory_without_a_name_is_ones_own_with_a_name_shared(connect: Connect) -> None:
    async with connect("memory://", jobs=[Greet]) as one, connect("memory://", jobs=[Greet]) as two:
        chain = await start(one, Greet())
        assert await two.get_chain(chain.id) is None
    async with connect("memory://shared", jobs=[Greet]) as one, connect("memory://shared", jobs=[Greet]) as two:
        chain = await start(one, Greet())
        assert await two.get_chain(chain.id) is not None
    del one, two
    gc.collect()
    async with connect("memory://shared", jobs=[Greet]) as later:
        assert await later.get_chain(chain.id) is None, "nobody used it any more"


def test_threads_that_connect_at_once_share_one_store() -> None:
    barrier = threading.Barrier(8)
    clients: list[Any] = []

    def work() -> None:
        barrier.wait()
        clients.append(queuert.connect_sync("memory://together", jobs=[Greet]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(client.sessions.storage.provider.store) for client in clients}) == 1
    for client in clients:
        client.close()


async def test_clients_of_one_file_wake_each_other(connect: Connect, tmp_path: Path) -> None:
    url = url_of(tmp_path / "jobs.db")
    options: Any = {"jobs": [Greet], "poll_interval": 3600}
    async with connect(url, **options) as one, connect(url, **options) as two:
        assert adapter_of(one).hub is adapter_of(two).hub
        other = connect(url, table_prefix="other_", **options)
        assert adapter_of(other).hub is not adapter_of(one).hub
        await other.close()


async def test_table_prefixes_keep_jobs_apart(connect: Connect, tmp_path: Path) -> None:
    url = url_of(tmp_path / "jobs.db")
    async with (
        connect(url, jobs=[Greet]) as one,
        connect(url, jobs=[Greet], table_prefix="other_") as two,
    ):
        chain = await start(one, Greet())
        assert await two.get_chain(chain.id) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jobs.db",
        "/var/jobs.db",
        "mysql://x",
        "sqlite://",
        "sqlite:///",
        "sqlite:jobs.db",
        "sqlite://jobs.db",
        "sqlite:///:memory:",
        "sqlite:///jobs.db?mode=ro",
        "sqlite:///jobs.db#x",
        " sqlite:///jobs.db",
        None,
        7,
        Path("/tmp/jobs.db"),
        b"sqlite:///jobs.db",
    ],
    ids=short,
)
def test_urls_are_checked(connect: Connect, url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=r"sqlite:///|keywords of connect"):
        connect(url, jobs=[Greet])
    assert list(tmp_path.iterdir()) == []


def test_the_error_about_an_unknown_url_does_not_show_the_password(connect: Connect) -> None:
    with pytest.raises(InvalidArgument, match="'postgresq:…' is not a supported database URL") as refused:
        connect("postgresq://app:secret@host/shop", jobs=[Greet])

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("settings", ["host=db password=secret", "host=db password=se:cret", "password='a secret'"])
def test_settings_instead_of_a_url_are_not_shown(connect: Connect, settings: str) -> None:
    with pytest.raises(InvalidArgument, match="are not a URL: write postgresql://user@host/database") as refused:
        connect(settings, jobs=[Greet])

    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"poll_interval": 0}, "poll_interval"),
        ({"poll_interval": -1}, "poll_interval"),
        ({"poll_interval": "1"}, "poll_interval"),
        ({"busy_timeout": -1}, "busy_timeout"),
        ({"busy_timeout": float("inf")}, "busy_timeout"),
        ({"table_prefix": "x; DROP TABLE y"}, "table_prefix"),
        ({"table_prefix": ""}, "table_prefix"),
        ({"table_prefix": "1x"}, "table_prefix"),
        ({"table_prefix": 'a"b'}, "table_prefix"),
        ({"table_prefix": "sqlite_x"}, "table_prefix"),
        ({"table_prefix": None}, "table_prefix"),
        ({"notify": "redis"}, "notify"),
        ({"notify": True}, "notify"),
        ({"colour": "red"}, "no option colour"),
        ({"codecs": [int]}, "codecs"),
    ],
    ids=short,
)
def test_options_are_checked(connect: Connect, options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=message):
        connect(url_of(tmp_path / "jobs.db"), jobs=[Greet], **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("jobs", [None, Greet, "greet", [int], ["greet"], [None], [Greet()]], ids=short)
def test_jobs_are_checked(connect: Connect, jobs: Any) -> None:
    with pytest.raises(InvalidArgument, match="jobs"):
        connect("memory://", jobs=jobs)


async def test_without_notifications_clients_only_poll(connect: Connect) -> None:
    async with connect("memory://", jobs=[Greet], notify=None, poll_interval=0.01) as client:
        chain = await start(client, Greet())
        assert type(adapter_of(client)) is NoNotify
        assert await client.get_chain(chain) is not None


async def test_ids_can_be_made_by_the_caller(connect: Connect) -> None:
    def refuse(job_id: str) -> None:
        if job_id != "mine":
            raise queuert.InvalidJobId(job_id, "no ids of your own here")

    async with connect("memory://", jobs=[Greet], generate_id=lambda: "mine", validate_id=refuse) as client:
        assert (await start(client, Greet())).id == "mine"
        with pytest.raises(queuert.InvalidJobId, match="of your own"):
            await start(client, Greet(), id="x")


@pytest.mark.parametrize("made", ["not a uuid", "0197A0B0-0000-7000-8000-00000000ABCD", 7])
async def test_generated_ids_that_the_validator_refuses(connect: Connect, made: Any) -> None:
    async with connect("memory://", jobs=[Greet], generate_id=lambda: made) as client:
        with pytest.raises(queuert.InvalidJobId, match="valid job id"):
            await start(client, Greet())


# Databases that cannot be used


async def test_without_migration_the_tables_are_missed(connect: Connect, tmp_path: Path) -> None:
    async with connect(url_of(tmp_path / "jobs.db"), jobs=[Greet], migrate=False) as client:
        with pytest.raises(StorageError, match="migrate"):
            await client.list_jobs()
        with pytest.raises(StorageError, match="migrate"):
            await start(client, Greet())
        assert await client.migrate() != []
        assert (await start(client, Greet())).status == "pending"


async def refused(connect: Connect, path: Path, expected: type[QueuertError], match: str) -> QueuertError:
    """Entering the client fails; whatever was in the file is in it still, and the client is closed."""
    before = path.read_bytes() if path.is_file() else None
    client = connect(url_of(path), jobs=[Greet], busy_timeout=0.05)
    with pytest.raises(expected, match=match) as caught:
        async with client:
            raise AssertionError("the client was opened")
    assert (path.read_bytes() if path.is_file() else None) == before
    with pytest.raises(queuert.ClientClosed):
        await client.stats()
    return caught.value


async def test_a_file_that_is_no_database(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("Dear diary, " * 1000)
    error = await refused(connect, path, StorageNotADatabase, "jobs.db")
    assert isinstance(error.__cause__, sqlite3.Error)


async def test_a_directory(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.mkdir()
    await refused(connect, path, StorageError, "is a directory, not a database file")


async def test_a_directory_that_is_not_there(connect: Connect, tmp_path: Path) -> None:
    await refused(connect, tmp_path / "nowhere" / "jobs.db", StorageError, "folder .*nowhere does not exist")
    assert not (tmp_path / "nowhere").exists()


async def test_a_schema_from_the_future(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with connect(url_of(path), jobs=[Greet]) as client:
        known = [int(version) for version in await _versions(client)]
        await start(client, Greet())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO queuert_version (version, oldest, applied_at) VALUES (99, 98, 0)")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    error = await refused(connect, path, SchemaTooNew, "upgrade queuert")
    assert isinstance(error, SchemaTooNew)
    assert (error.found, error.known, error.oldest) == (99, max(known), 98)


async def _versions(client: Client[Any]) -> list[int]:
    from queuert.adapters.sqlite.operations.base import migrations_for

    return [migration.version for migration in migrations_for("queuert_")]


@contextmanager
def locked(path: Path) -> Generator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def test_a_database_that_somebody_else_writes(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with connect(url_of(path), jobs=[Greet], busy_timeout=0.05) as client:
        chain = await start(client, Greet())
        with locked(path):
            with pytest.raises(StorageBusy, match="write lock"):
                await start(client, Greet())
            # Readers do not mind.
            assert await client.get_chain(chain) is not None
        await start(client, Greet())
        assert len((await client.list_jobs()).items) == 2


async def test_a_new_database_that_somebody_else_writes(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
        connection.commit()
    async with AsyncExitStack() as stack:
        with locked(path):
            client = await stack.enter_async_context(connect(url_of(path), jobs=[Greet], busy_timeout=0.05))
            with pytest.raises(StorageBusy, match=r"jobs\.db"):
                await start(client, Greet())
        assert (await start(client, Greet())).status == "pending"


def read_only_is_a_wish() -> bool:
    """Root may write everything, so permissions alone stop nobody."""
    return os.geteuid() == 0


@pytest.mark.skipif(read_only_is_a_wish(), reason="root ignores file permissions")
async def test_a_file_that_cannot_be_written(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with connect(url_of(path), jobs=[Greet]) as client:
        await start(client, Greet())
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        async with connect(url_of(path), jobs=[Greet]) as client:
            with pytest.raises(StorageReadOnly):
                await start(client, Greet())
    finally:
        tmp_path.chmod(0o755)


async def test_a_connection_that_may_only_read(connect: Connect, tmp_path: Path) -> None:
    """What a read-only file does, also for root."""
    path = tmp_path / "jobs.db"
    async with connect(url_of(path), jobs=[Greet]) as client:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as own:
            own.execute("BEGIN")
            async with client.after_commit(own) as tx:
                with pytest.raises(QueuertError, match=r"write lock|cannot be written"):
                    await client.start(tx, Greet())
                own.execute("ROLLBACK")
        async with client.transaction() as tx:
            tx.connection.execute("PRAGMA query_only = ON")
            try:
                with pytest.raises(StorageReadOnly, match="cannot be written"):
                    await client.start(tx, Greet())
            finally:
                tx.connection.execute("PRAGMA query_only = OFF")
        assert (await client.list_jobs()).items == []


async def test_a_damaged_database_is_under_the_same_root(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with connect(url_of(path), jobs=[Greet]) as client, client.transaction() as tx:
        await client.start_many(tx, [Greet(who="x" * 500) for _ in range(200)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 200_000)
    with pytest.raises(QueuertError):
        async with connect(url_of(path), jobs=[Greet]) as client:
            await client.list_jobs(limit=1000)
            await start(client, Greet())


@pytest.mark.parametrize(
    "door",
    [
        lambda **options: queuert.connect("memory://", jobs=[Greet], **options),
        lambda **options: queuert.connect_sync("memory://", jobs=[Greet], **options),
        lambda **options: queuert.sqlalchemy.connect(create_async_engine("sqlite+aiosqlite:///x"), jobs=[], **options),
        lambda **options: queuert.sqlalchemy.connect_sync(create_engine("sqlite:///x"), jobs=[], **options),
        lambda **options: psycopg_notify("postgresql://host/db", **options),
        lambda **options: asyncpg_notify("postgresql://host/db", **options),
    ],
)
def test_an_unknown_keyword_is_refused_at_every_door(door: Any) -> None:
    with pytest.raises(queuert.InvalidArgument, match="no option tabel_prefix"):
        door(tabel_prefix="x_")
