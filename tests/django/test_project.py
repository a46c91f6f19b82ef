"""Migrations, system checks and the worker, as a Django project meets them."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from tests.adapters.postgres.libraries import install_version_6
from tests.django.conftest import database
from tests.django.shop import jobs as shop_jobs
from tests.django.shop.jobs import Audit, ReserveStock
from tests.django.shop.models import Order
from tests.support.django import added, postgres_settings, sqlite_settings
from tests.support.postgres import server

import queuert_django.checks
from queuert import Chain, EntryJob, Handlers, Schedules, SchemaMissing, StorageError, Worker
from queuert.adapters.postgres.installation import migrations_for as postgres_migrations
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.sqlite.operations.base import migrations_for as sqlite_migrations
from queuert.errors import InvalidArgument
from queuert.operate.exits import CommandError as RefusedByCommand
from queuert_django import clients, get_client, options
from queuert_django.clients import conninfo, worker_client
from queuert_django.discovery import find_handlers
from queuert_django.operations import QueuertSchema
from queuert_django.worker import make_worker


def tables(alias: str) -> set[str]:
    with connections[alias].cursor() as cursor:
        names: list[str] = connections[alias].introspection.table_names(cursor)
    return {name for name in names if name.startswith("queuert_")}


def output_of(*command: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


@contextmanager
def setting(name: str, value: Any) -> Generator[None]:
    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)


# Migrations


def test_forwards_backwards_and_forwards_again(alias: str) -> None:
    made = tables(alias)
    assert "queuert_job" in made
    with transaction.atomic(using=alias):
        get_client(alias).start(connections[alias], Audit())
    call_command("migrate", "queuert", "zero", database=alias, verbosity=0)
    assert tables(alias) == set()
    if connections[alias].vendor == "postgresql":
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_proc WHERE proname LIKE 'queuert%%'")
            assert cursor.fetchone() == (0,)
    with pytest.raises(StorageError, match="migrate"):
        get_client(alias).list_chains()
    call_command("migrate", "queuert", database=alias, verbosity=0)
    assert tables(alias) == made
    assert get_client(alias).list_chains().items == []


def test_what_is_planned_and_written_down(alias: str) -> None:
    call_command("migrate", "queuert", "zero", database=alias, verbosity=0)
    assert "Create or update queuert's tables" in output_of("migrate", "queuert", database=alias, plan=True)
    script = output_of("sqlmigrate", "queuert", "0001", database=alias)
    assert "CREATE TABLE" in script
    assert "queuert_job" in script
    assert "DROP TABLE" in output_of("sqlmigrate", "queuert", "0001", database=alias, backwards=True)
    assert tables(alias) == set()  # nothing was done


def test_nothing_is_left_to_be_made() -> None:
    call_command("makemigrations", "queuert", check=True, dry_run=True, verbosity=0)


def test_the_last_migration_names_the_versions_of_the_library() -> None:
    """A new version of our schema needs a migration file here, or projects would not hear of it."""
    from django.db.migrations.loader import MigrationLoader

    found: Any = MigrationLoader(None).disk_migrations
    ours = [each for (app, _), each in sorted(found.items()) if app == "queuert"]
    versions = [step.versions for each in ours for step in each.operations if isinstance(step, QueuertSchema)][-1]
    assert versions["sqlite"] == sqlite_migrations("queuert_")[-1].version
    assert versions["postgresql"] == postgres_migrations(PostgresOperations().installation)[-1].version


def functions(alias: str) -> set[str]:
    with connections[alias].cursor() as cursor:
        # Those of triggers belong to the tables, and do not change.
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE proname LIKE 'queuert%%' AND prorettype <> 'trigger'::regtype"
        )
        return {name for (name,) in cursor.fetchall()}


def drop_functions(alias: str) -> None:
    """As if our functions had changed since the last `migrate`."""
    with connections[alias].cursor() as cursor:
        for name in functions(alias):
            cursor.execute(f"DROP FUNCTION {name}")
        cursor.execute("DELETE FROM queuert_function_set")


def test_functions_that_have_changed_are_installed_after_migrate(tmp_path: Path) -> None:
    """There is no new migration for them; whatever is migrated, `--plan` excepted."""
    with database("postgres", tmp_path) as alias:
        made = functions(alias)
        assert len(made) > 30
        for arguments in ((), ("contenttypes",)):
            drop_functions(alias)
            output_of("migrate", *arguments, database=alias, plan=True)
            with pytest.raises(SchemaMissing, match=r"manage\.py migrate"):
                get_client(alias).get_chain("00000000-0000-7000-8000-000000000000")
            call_command("migrate", *arguments, database=alias, verbosity=0)
            assert functions(alias) == made
        drop_functions(alias)
        del settings.QUEUERT[alias]
        call_command("migrate", database=alias, verbosity=0)
        settings.QUEUERT[alias] = {}
        assert functions(alias) == set(), "this database is not there for jobs"


def test_functions_wait_for_their_tables(tmp_path: Path) -> None:
    """When another app is migrated, and our tables are not there, or not up to date."""
    with database("postgres", tmp_path) as alias:
        call_command("migrate", "queuert", "zero", database=alias, verbosity=0)
        call_command("migrate", "contenttypes", database=alias, verbosity=0)
        assert tables(alias) == functions(alias) == set()
        call_command("migrate", "queuert", "0001", database=alias, verbosity=0)
        drop_functions(alias)
        with connections[alias].cursor() as cursor:
            cursor.execute("DELETE FROM queuert_version WHERE version > 1")
        call_command("migrate", "contenttypes", database=alias, verbosity=0)
        assert functions(alias) == set()


def test_a_project_comes_from_version_6(tmp_path: Path) -> None:
    with server().fresh() as url, added(postgres_settings(url)) as alias:
        install_version_6(url)
        call_command("migrate", "queuert", "0001", database=alias, fake=True, verbosity=0)
        before = functions(alias)
        assert "queuert.0002_function_sets" in output_of("migrate", database=alias, plan=True)
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
        assert before < functions(alias)
        with transaction.atomic(using=alias):
            chain = get_client(alias).start(connections[alias], Audit())
        assert get_client(alias).get_chain(chain) is not None
        call_command("migrate", "queuert", "zero", database=alias, verbosity=0)
        assert tables(alias) == functions(alias) == set()


def test_a_database_that_is_not_there_for_jobs(tmp_path: Path) -> None:
    with added(sqlite_settings(tmp_path / "plain.db")) as alias:
        del settings.QUEUERT[alias]
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
        assert tables(alias) == set()
        settings.QUEUERT[alias] = {}


def test_a_test_database_has_our_tables(kind: str, tmp_path: Path) -> None:
    with database(kind, tmp_path) as alias:
        connection = connections[alias]
        name = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True)
        try:
            assert connection.settings_dict["NAME"] != name
            with transaction.atomic(using=alias):
                chain = get_client(alias).start(connection, Audit())
            assert get_client(alias).get_chain(chain) is not None
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)
            if connection.connection is not None:  # it was in memory, and Django does not close such a one
                connection.connection.close()
                connection.connection = None
        assert get_client(alias).get_chain(chain) is None


# Checks


def found() -> list[str]:
    return [message.id or "" for message in run_checks() if (message.id or "").startswith("queuert.")]


def test_a_good_project_passes(alias: str) -> None:
    assert found() == []


def test_settings_that_do_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with added(sqlite_settings(tmp_path / "x.db", transaction_mode=None)) as alias:
        assert found() == ["queuert.E003"]
        connections[alias].vendor = "oracle"
        assert found() == ["queuert.E004"]
    wrong: list[Any] = [["default"], {"nowhere": {}}, {"default": {"colour": "red"}}]
    for bad in wrong:
        with setting("QUEUERT", bad):
            assert found() == ["queuert.E001"]
            with pytest.raises(InvalidArgument):
                options.databases()
    monkeypatch.setattr(queuert_django.checks, "postgres_problem", lambda: "Django must use psycopg 3")
    with added(postgres_settings("postgresql://nobody@nowhere/x")):
        assert found() == ["queuert.E002"]


def test_jobs_that_do_not_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stray(EntryJob[None], name="stray"):
        pass

    handlers = Handlers[Any]()

    @handlers.handles(Stray)
    def stray(attempt: Any) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr(shop_jobs, "more_handlers", handlers, raising=False)
        assert found() == ["queuert.E005"]


def test_schedules_that_do_not_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("schedules", "more_schedules"):
        schedules = Schedules()
        schedules.every(timedelta(hours=1), Audit(), name="audit")
        monkeypatch.setattr(shop_jobs, name, schedules, raising=False)
    assert found() == ["queuert.E005"]


# The worker


def work(alias: str, *chains: Chain[Any]) -> None:
    """Until nothing is runnable; with chains, until they have ended: a retry is due a moment later."""
    client = worker_client(alias)

    async def drain() -> None:
        async with client:
            worker = Worker(client, find_handlers(), concurrency=4)
            await worker.drain()
            async with worker:
                for chain in chains:
                    await client.wait(chain, timeout=60)

    asyncio.run(drain())


def test_plain_handlers_write_with_the_orm_in_the_jobs_transaction(alias: str) -> None:
    client = get_client(alias)
    shop_jobs.threads.clear()
    with transaction.atomic(using=alias):
        for number in (1, 2, 3):
            Order(number=number).save(using=alias)
        chains = client.start_many(connections[alias], [ReserveStock(number=number) for number in (1, 2, 3)])
    work(alias, *chains)
    outputs = [found.output for chain in chains if (found := client.get_chain(chain))]
    assert outputs == ["paid 1", "paid 2", "paid 3"]
    orders = Order.objects.using(alias)
    assert orders.filter(paid=True).count() == 6  # the first attempt of each has left nothing
    assert len(client.list_chains("remind").items) == 3  # nor has what it started
    assert len(shop_jobs.threads) == 6
    assert not any(thread.is_alive() for thread in shop_jobs.threads)
    assert threading.current_thread() not in shop_jobs.threads


def test_no_connection_outlives_its_handler(tmp_path: Path) -> None:
    """Not even those that Django would keep for ever."""
    with database("postgres", tmp_path, CONN_MAX_AGE=None) as alias:
        with transaction.atomic(using=alias):
            Order(number=1).save(using=alias)
            get_client(alias).start(connections[alias], ReserveStock(number=1))
        work(alias)
        with psycopg.connect(conninfo(connections[alias]), autocommit=True) as beside:
            deadline = time.monotonic() + 45  # the server notices a hang-up when it comes to it
            while (others := sessions_beside(beside)) != 1 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert others == 1  # this thread's


def sessions_beside(connection: psycopg.Connection[Any]) -> int:
    ((count,),) = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    ).fetchall()
    return int(count)


def test_async_handlers_use_the_async_orm(monkeypatch: pytest.MonkeyPatch, kind: str, tmp_path: Path) -> None:
    from asgiref.sync import sync_to_async
    from django.db import close_old_connections

    with database(kind, tmp_path, CONN_MAX_AGE=0) as alias:

        class Router:
            def db_for_read(self, model: Any, **hints: Any) -> str:
                return alias

        from django.db import router

        monkeypatch.setattr(router, "routers", [Router()])
        with transaction.atomic(using=alias):
            Order(number=1).save(using=alias)
            chain = get_client(alias).start(connections[alias], Audit())
        work(alias)
        ended = get_client(alias).get_chain(chain)
        assert ended is not None
        assert ended.output == 1
        asyncio.run(sync_to_async(close_old_connections)())


def test_what_a_worker_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(alias: str, **more: Any) -> Worker:
        monkeypatch.setenv("QUEUERT_DJANGO_WORKER", json.dumps({"database": alias, **more}))
        return make_worker()

    with pytest.raises(CommandError, match="no database 'nowhere'"):
        call_command("queuert", "--database", "nowhere", "worker")
    with added(sqlite_settings(":memory:")) as alias, pytest.raises(CommandError, match="is not a file"):
        call_command("queuert", "worker", "--database", alias)
    deferred = sqlite_settings(tmp_path / "y.db", transaction_mode=None)
    with added(deferred) as alias, pytest.raises(RefusedByCommand, match="transaction_mode"):
        make(alias)
    with added(sqlite_settings(tmp_path / "x.db")) as alias:
        with pytest.raises(RefusedByCommand, match="concurrency"):
            make(alias, concurrency=0)
        with pytest.raises(RefusedByCommand, match="queue"):
            make(alias, queues=["nowhere"])
        connections[alias].vendor = "oracle"
        with pytest.raises(RefusedByCommand, match="PostgreSQL or SQLite"):
            make(alias)


def test_connection_parameters_of_the_settings() -> None:
    given = postgres_settings("postgresql://ada:pass%20word@db/shop", sslmode="require", assume_role="clerk")
    with added(given, listen_url="postgresql://direct/shop") as alias:
        text = conninfo(connections[alias])
        for part in ("host=db", "user=ada", "password='pass word'", "sslmode=require", "options='-c role=clerk'"):
            assert part in text
        assert clients._listen_url(alias) == "postgresql://direct/shop"
