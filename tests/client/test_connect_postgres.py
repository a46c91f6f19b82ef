"""From a URL to a client on PostgreSQL: drivers, options, and what is said when something is missing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
from tests.support.channels import adapter_of
from tests.support.facade import awaited
from tests.support.jobs import Greet
from tests.support.naming import short
from tests.support.postgres import Databases, database_url, migrated_url, postgres
from tests.support.worlds import start

import queuert
from queuert import InvalidArgument, StorageError
from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.in_process import InProcessNotify, NoNotify
from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider
from queuert.client.client import Client

__all__ = ["database_url", "migrated_url", "postgres"]

Connect = Callable[..., Client[Any]]


@pytest.fixture(params=["async", "sync"])
def connect(request: pytest.FixtureRequest) -> Connect:
    if request.param == "async":
        return queuert.connect
    return lambda *args, **options: awaited(queuert.connect_sync(*args, **options))


def with_scheme(url: str, scheme: str) -> str:
    return f"{scheme}://{url.partition('://')[2]}"


@pytest.mark.parametrize(
    ("scheme", "connection"),
    [
        ("postgresql", psycopg.AsyncConnection),
        ("postgres", psycopg.AsyncConnection),
        ("postgresql+psycopg", psycopg.AsyncConnection),
        ("postgresql+asyncpg", asyncpg.pool.PoolConnectionProxy),
    ],
)
async def test_the_url_chooses_the_driver(scheme: str, connection: type, migrated_url: str) -> None:
    async with queuert.connect(with_scheme(migrated_url, scheme), jobs=[Greet]) as client:
        async with client.transaction() as tx:
            assert isinstance(tx.connection, connection)
            chain = await client.start(tx, Greet())
        assert await client.get_chain(chain) is not None


def test_a_sync_client_has_sync_connections(migrated_url: str) -> None:
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        with (
            queuert.connect_sync(with_scheme(migrated_url, scheme), jobs=[Greet]) as client,
            client.transaction() as tx,
        ):
            assert isinstance(tx.connection, psycopg.Connection)
    with pytest.raises(InvalidArgument, match="asyncpg has no sync connections"):
        queuert.connect_sync(with_scheme(migrated_url, "postgresql+asyncpg"), jobs=[Greet])


async def test_generated_ids_that_postgresql_cannot_store(connect: Connect, migrated_url: str) -> None:
    """Whatever the validator says."""
    async with connect(migrated_url, jobs=[Greet], generate_id=lambda: "order:1", validate_id=lambda _: True) as client:
        with pytest.raises(queuert.InvalidJobId, match=r"'order:1' .* stores only UUIDs"):
            await start(client, Greet())


async def test_an_id_of_the_callers_that_it_cannot_store(connect: Connect, migrated_url: str) -> None:
    async with connect(migrated_url, jobs=[Greet], validate_id=lambda _: None) as client, client.transaction() as tx:
        with pytest.raises(queuert.InvalidJobId, match="stores only UUIDs"):
            await client.start(tx, Greet(), id="order:1")
        chain = await client.start(tx, Greet())
        assert await client.get_chain(chain, tx=tx) is not None


async def test_schema_and_prefix_keep_jobs_apart(connect: Connect, database_url: str) -> None:
    options: list[dict[str, str]] = [{}, {"schema": 'Our "odd" jobs'.replace('"', "")}, {"table_prefix": "other_"}]
    for number, each in enumerate(options):
        async with connect(database_url, jobs=[Greet], **each) as client:
            for _ in range(number + 1):
                await start(client, Greet())
    for number, each in enumerate(options):
        async with connect(database_url, jobs=[Greet], **each) as client:
            assert len((await client.list_jobs()).items) == number + 1


async def test_notify_can_be_chosen(database_url: str) -> None:
    kinds: list[tuple[Any, type]] = [("postgres", BroadcastNotify), ("in-process", InProcessNotify), (None, NoNotify)]
    for notify, kind in kinds:
        async with queuert.connect(database_url, jobs=[Greet], notify=notify) as client:
            assert type(adapter_of(client)) is kind
            await start(client, Greet())
            assert client.hook_failures == 0
    async with (
        queuert.connect(database_url, jobs=[Greet], notify="in-process") as one,
        queuert.connect(database_url, jobs=[Greet], notify="in-process") as two,
        queuert.connect(database_url, jobs=[Greet], notify="in-process", schema="other") as other,
    ):
        assert adapter_of(one).hub is adapter_of(two).hub
        assert adapter_of(one).hub is not adapter_of(other).hub


async def test_without_prepared_statements(connect: Connect, migrated_url: str) -> None:
    async with connect(migrated_url, jobs=[Greet], prepare=False, listen_url=migrated_url) as client:
        chain = await start(client, Greet())
        assert await client.get_chain(chain) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": ""}, "schema"),
        ({"schema": 'a"b'}, "schema"),
        ({"schema": "x" * 64}, "schema"),
        ({"table_prefix": ""}, "table_prefix"),
        ({"table_prefix": "x; DROP TABLE y"}, "table_prefix"),
        ({"notify": "redis"}, "notify"),
        ({"notify": True}, "notify"),
        ({"listen_url": "sqlite:///x"}, "listen_url"),
        ({"listen_url": None}, "listen_url"),
        ({"pool_size": 1}, "pool_size must be a number of 2 or more"),
        ({"pool_size": "20"}, "pool_size must be a number of 2 or more"),
        ({"busy_timeout": 5}, "busy_timeout is for SQLite"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"colour": "red"}, "no option colour"),
    ],
    ids=short,
)
def test_options_are_checked(connect: Connect, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        connect("postgresql://nowhere/x", jobs=[Greet], **options)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_pool_opens_no_more_than_it_may(driver: str, migrated_url: str) -> None:
    """Two transactions are open; the third waits until they have ended."""
    url = migrated_url.replace("postgresql:", f"postgresql+{driver}:")
    begun, end = asyncio.Semaphore(0), asyncio.Event()

    async def hold(client: Client[Any]) -> None:
        async with client.transaction():
            begun.release()
            await end.wait()

    async with queuert.connect(url, jobs=[Greet], pool_size=2, notify=None) as client, asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(hold(client))
            await begun.acquire()
        third = tasks.create_task(start(client, Greet()))
        await asyncio.sleep(0.05)
        assert not third.done()
        end.set()
        assert await client.get_chain(await third) is not None


@pytest.mark.parametrize(
    "option", [{"schema": "x"}, {"listen_url": "postgresql://x"}, {"prepare": False}, {"pool_size": 20}], ids=short
)
def test_options_of_postgresql_are_refused_elsewhere(connect: Connect, option: Any) -> None:
    for url in ("memory://", "sqlite:///never.db"):
        with pytest.raises(InvalidArgument, match="is for PostgreSQL"):
            connect(url, jobs=[Greet], **option)


@pytest.mark.parametrize("url", ["postgresql:x", "postgresql:/x", "postgres://u:secret@host:port/x"], ids=short)
def test_urls_are_checked_and_not_shown(connect: Connect, url: str) -> None:
    with pytest.raises(InvalidArgument, match="must look like postgresql://") as caught:
        connect(url, jobs=[Greet])
    assert "secret" not in str(caught.value)


MISTAKES = {
    "raw percent": ("postgresql://u:secret%@h/x", "a % that is not followed by two"),
    "raw percent in front": ("postgresql://u:%zzsecret@h/x", "a % that is not followed by two"),
    "NUL": ("postgresql://u:secret%00@h/x", "a % that is not followed by two"),
    "at sign": ("postgresql://u:se@secret@h/x", "write @ as %40"),
    "slash": ("postgresql://u:secret/1@h/x", "/ as %2F"),
    "slash among hosts": ("postgresql://u:a,secret/1@h/x", "/ as %2F"),
    "question mark": ("postgresql://u:secret?1@h/x", r"\? as %3F"),
    "hash": ("postgresql://u:12#secret@h/x", "# as %23"),
    "port": ("postgresql://u:secret@h:70000/x", "must look like"),
    "port of one of two hosts": ("postgresql://u:secret@h:1,i:x/x", "must look like"),
    "bracket": ("postgresql://u:secret@[::1/x", "must look like"),
    "sslmode": ("postgresql://u:secret@h/x?sslmode=maybe", "sslmode=maybe, which must be one of disable, allow"),
    "target_session_attrs": ("postgresql://u:secret@h/x?target_session_attrs=writable", "one of any, read-write"),
    "timeout": ("postgresql://u:secret@h/x?connect_timeout=soon", "must be a whole number"),
    "no value": ("postgresql://u:secret@h/x?sslmode", "an option without a value"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql+asyncpg"])
@pytest.mark.parametrize("option", ["url", "listen_url", "notify"])
def test_mistakes_in_urls_are_errors_at_once(mistake: str, scheme: str, option: str) -> None:
    """Before anything connects, and without the password, in the error and in what led to it."""
    url, message = MISTAKES[mistake]
    options: dict[str, Any] = {"url": with_scheme("postgresql://h/x", scheme), option: with_scheme(url, scheme)}
    with pytest.raises(InvalidArgument, match=message) as caught:
        queuert.connect(options.pop("url"), jobs=[Greet], **options)
    assert "secret" not in "".join(traceback.format_exception(caught.value, limit=0))


@pytest.mark.parametrize("option", ["url", "listen_url"])
def test_an_option_that_libpq_does_not_know(connect: Connect, option: str) -> None:
    options: dict[str, Any] = {"url": "postgresql://h/x", option: "postgresql://u:secret@h/x?colour=red&sslmode=allow"}
    with pytest.raises(InvalidArgument, match=r"options that libpq does not know: colour$"):
        connect(options.pop("url"), jobs=[Greet], **options)


@pytest.mark.parametrize("given", ["dbname=x password='secret", "password=secret colour=red"])
def test_a_connection_string_that_libpq_cannot_read(given: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read") as caught:
        PsycopgProvider(given)
    assert "secret" not in "".join(traceback.format_exception(caught.value, limit=0))


@pytest.mark.parametrize(
    "good",
    [
        "postgresql://u:p%25w@h/x",
        "postgresql:///x?host=/tmp",
        "postgresql://h:1,[::1]:2,i/x?target_session_attrs=primary",
        "postgresql://u@h/x?sslmode=verify-full&connect_timeout=5",
        "postgresql://",
    ],
)
def test_urls_without_a_mistake(connect: Connect, good: str) -> None:
    connect(good, jobs=[Greet], listen_url=good)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql+asyncpg"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "nobody_at_all"}, 'role "nobody_at_all" does not exist'),
        ({"options": "-c colour=red"}, 'unrecognized configuration parameter "colour"'),
    ],
    ids=["database", "role", "setting"],
)
async def test_what_the_server_rejects_is_not_tried_again(
    scheme: str, wrong: dict[str, str], message: str, postgres: Databases
) -> None:
    """It is an error when the client is entered, not a server that may come back."""
    parameters = dict(wrong)
    url = postgres.url_of(parameters.pop("database", "postgres"), **parameters)
    if "user" in wrong:
        url = url.replace("postgres@", "", 1)
    if scheme == "postgresql+asyncpg":
        url = url.replace("options=-c%20colour%3Dred", "colour=red")
    client = queuert.connect(with_scheme(url, scheme), jobs=[Greet])
    with pytest.raises(StorageError, match=f"PostgreSQL rejected the connection: .*{message}") as caught:
        async with client:
            raise AssertionError("it was entered")
    assert type(caught.value) is StorageError


async def test_a_server_that_is_not_there(connect: Connect) -> None:
    for scheme in ("postgresql+psycopg", "postgresql"):
        async with connect(f"{scheme}://u:secret@127.0.0.1:1/x", jobs=[Greet]) as client:
            with pytest.raises(StorageError, match="cannot be reached") as caught:
                await client.stats()
        assert "secret" not in str(caught.value)


# Without drivers


def run_without(missing: list[str], code: str) -> str:
    script = f"""
        import sys
        for name in {missing!r}:
            sys.modules[name] = None  # importing it raises ImportError
        import queuert
        from queuert import DriverMissing, EntryJob

        class Greet(EntryJob[str], name="greet"):
            who: str = ""

        def refused(connect, url):
            try:
                connect(url, jobs=[Greet])
            except DriverMissing as error:
                assert isinstance(error, ImportError)
                return str(error)
            raise SystemExit(f"{{url}} was accepted")
    """
    source = textwrap.dedent(script) + textwrap.dedent(code)
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_without_any_driver_the_rest_works() -> None:
    said = run_without(
        ["psycopg", "psycopg_pool", "asyncpg"],
        """
        with queuert.connect_sync("memory://", jobs=[Greet]) as client, client.transaction() as tx:
            client.start(tx, Greet())
        print(refused(queuert.connect, "postgresql://host/x"))
        print(refused(queuert.connect, "postgresql+asyncpg://host/x"))
        print(refused(queuert.connect_sync, "postgresql://host/x"))
        """,
    )
    both, only_asyncpg, sync = said.splitlines()
    assert "queuert[psycopg]" in both
    assert "queuert[asyncpg]" in both
    assert "queuert[asyncpg]" in only_asyncpg
    assert "queuert[psycopg]" in sync


def test_importing_imports_no_driver() -> None:
    assert run_without(["psycopg", "asyncpg"], "print(sorted(m for m in sys.modules if 'psycopg_pool' in m))") == "[]\n"


def test_asyncpg_stands_in_for_a_missing_psycopg() -> None:
    said = run_without(
        ["psycopg"],
        """
        print(type(queuert.connect("postgresql://host/x", jobs=[Greet]).sessions.storage.provider).__name__)
        print(refused(queuert.connect, "postgresql+psycopg://host/x"))
        """,
    )
    provider, message = said.splitlines()
    assert provider == "AsyncpgProvider"
    assert "queuert[psycopg]" in message
