"""Migrations: many processes at once, killed half-way, too new, and without the right to create anything."""

from __future__ import annotations

import textwrap
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from typing import Any, cast

import psycopg
import pytest
from msgspec.structs import replace
from tests.adapters.postgres.drivers import Watcher
from tests.support.code import Code
from tests.support.postgres import Databases

from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.installation import FunctionSet, Installation, migrations_for, statements_for
from queuert.adapters.postgres.operations import PostgresOperations, migrating
from queuert.base.statuses import STATUSES
from queuert.errors import SchemaTooNew, StorageError
from queuert.ports.provider import run
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert_conformance.state.build import completed, new_job, queue, request

VERSIONS = [migration.version for migration in migrations_for(Installation("public", "queuert_"))]

PROCESS = textwrap.dedent("""
    import sys
    from queuert.adapters.postgres.adapter import sync_psycopg_state
    from queuert.ports.provider import run

    state = sync_psycopg_state(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    print(run(state.provider, None, state.operations.migrate()), flush=True)
    state.close()
""")


@pytest.fixture
def watch(database_url: str) -> Iterator[Watcher]:
    watcher = Watcher(database_url)
    yield watcher
    watcher.close()


def migrate(url: str) -> list[int]:
    state = sync_psycopg_state(url)
    try:
        return run(state.provider, None, state.operations.migrate())
    finally:
        state.close()


def test_a_table_that_is_in_use_holds_up_only_the_migration(
    database_url: str, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler has a transaction open. Everybody else works on while the migration tries to get the table."""
    up_to(2, database_url, monkeypatch)
    watch("INSERT INTO queuert_running VALUES (gen_random_uuid(), 1, 'a', 'w', now(), now())")
    with psycopg.connect(database_url) as handler, ThreadPoolExecutor() as threads:
        handler.execute("SELECT FROM queuert_running FOR UPDATE")
        migrating_now = threads.submit(migrate, database_url)
        for number in range(5):
            while not watch.others("wait_event_type = 'Lock' AND query LIKE 'DO %'"):
                assert not migrating_now.done()
            watch(f"UPDATE queuert_running SET token = {number} WHERE false")
        assert not migrating_now.done()
        handler.rollback()
        assert migrating_now.result(60) == VERSIONS[2:]
    assert watch("SELECT ordinal FROM queuert_running") == [None]
    assert watch("SELECT current_setting('lock_timeout')") == ["0"]


def up_to(number: int, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate with the first of our migrations, as an older version has them. Its functions are left out."""
    with monkeypatch.context() as before:
        before.setattr(migrating, "migrations_for", lambda here: migrations_for(here)[:number])
        before.setattr(migrating, "functions_for", lambda _: FunctionSet("before", [], []))
        assert migrate(url) == VERSIONS[:number]


def test_a_worker_that_has_one_table_gets_the_next_one(
    database_url: str, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a worker that has `running`, and then wants the other tables, while the migration waits for `running`: it
    gets them at once. (If the migration had one of them, one would have to give way, each time anew.)"""
    up_to(VERSIONS.index(17), database_url, monkeypatch)
    watch("INSERT INTO queuert_running VALUES (gen_random_uuid(), 1, 'a', 'w', now(), now())")
    with psycopg.connect(database_url) as worker, ThreadPoolExecutor() as threads:
        worker.execute("SELECT FROM queuert_running FOR UPDATE")
        migrating_now = threads.submit(migrate, database_url)
        while not watch.others("wait_event_type = 'Lock' AND query LIKE 'DO %'"):
            assert not migrating_now.done()
        for table in ("job", "later", "ready", "blocker", "key"):
            worker.execute(f"LOCK TABLE queuert_{table} IN ROW EXCLUSIVE MODE NOWAIT".encode())
        worker.rollback()
        assert migrating_now.result(60) == VERSIONS[VERSIONS.index(17) :]


def test_no_transaction_locks_two_tables_that_others_use(database_url: str, watch: Watcher) -> None:
    """However the rows of old workers are locked: a migration that has one table never waits for another one."""
    strong = "('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock')"
    locked = PgStatement(
        "SELECT relation::regclass::text FROM pg_locks WHERE pid = pg_backend_pid() AND relation IS NOT NULL "
        f"AND mode IN {strong} AND relation = ANY ($1::bigint[]::oid[])"
    )
    state = sync_psycopg_state(database_url)
    found: list[list[str]] = []

    class Provider:
        savepoint = state.provider.savepoint

        @contextmanager
        def transaction(self, first: Any = None) -> Generator[Any]:
            tables = watch("SELECT oid::bigint FROM pg_class WHERE relkind IN ('r', 'p') AND relname LIKE 'queuert%'")
            with state.provider.transaction(first) as connection:
                yield connection
                rows: Any = state.provider.execute(connection, replace(locked, values=(tables,)))
                found.append(sorted({name for (name,) in rows}))

        def execute(self, connection: Any, command: Any) -> Any:
            return state.provider.execute(connection, command)

    assert run(cast("Any", Provider()), None, state.operations.migrate()) == VERSIONS
    state.close()
    assert [each for each in found if len(each) > 1] == []
    assert ["queuert_running"] in found, "it is seen"


def test_several_processes_at_once(database_url: str, watch: Watcher) -> None:
    processes = [Code(PROCESS, database_url) for _ in range(4)]
    for process in processes:
        assert process.readline() == "ready\n"
    answers = []
    for process in processes:
        process.write("go")
    for process in processes:
        code, answer = process.end()
        assert code == 0
        answers.append(answer.strip())
    applied = sorted(int(each) for answer in answers for each in answer.strip("[]").split(",") if each.strip())
    assert applied == VERSIONS, "each by one of them"
    assert watch("SELECT version FROM queuert_version ORDER BY version") == VERSIONS


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(each, marks=() if each % 4 == 0 or each == len(VERSIONS) - 1 else pytest.mark.soak)
        for each in range(len(VERSIONS))
    ],
)
def test_one_that_was_killed_half_way_is_taken_up(database_url: str, watch: Watcher, after: int) -> None:
    """In the middle of one of the scripts, the connection is cut: what came before stays, and the rest follows."""
    state = sync_psycopg_state(database_url)
    migrations = migrations_for(Installation("public", "queuert_"))
    victim = migrations[after].statements[len(migrations[after].statements) // 2]

    class Killed(Exception):
        pass

    class Provider:
        def __init__(self) -> None:
            self.transaction = state.provider.transaction
            self.savepoint = state.provider.savepoint

        def execute(self, connection: Any, command: Any) -> Any:
            result = state.provider.execute(connection, command)
            if command.text == victim:
                watch("SELECT pg_terminate_backend(%s, 5000)", connection.info.backend_pid)
                raise Killed
            return result

    with pytest.raises(Killed):
        run(cast("Any", Provider()), None, state.operations.migrate())
    state.close()
    there = watch("SELECT count(*) FROM pg_class WHERE relname = 'queuert_version'")[0]
    assert (watch("SELECT version FROM queuert_version ORDER BY version") if there else []) == VERSIONS[:after]
    assert migrate(database_url) == VERSIONS[after:]


def test_what_another_process_commits_before_the_lock_is_ours_is_seen(database_url: str, watch: Watcher) -> None:
    """Given a transaction that has begun, and a session that remembers that nothing is there."""
    state: Any = sync_psycopg_state(database_url, pool_size=1)
    look, lock = (state.operations.statement(f"migrate.{name}") for name in ("exists", "try_lock"))
    for _ in range(10):  # then both are prepared: nothing of them is looked up again
        with state.provider.transaction() as connection:
            state.provider.execute(connection, lock)
            state.provider.execute(connection, look)

    class Provider:
        def __init__(self) -> None:
            self.transaction = state.provider.transaction
            self.savepoint = state.provider.savepoint
            self.others: list[list[int]] = []

        def execute(self, connection: Any, command: Any) -> Any:
            if "pg_try_advisory_xact_lock" in command.text and not self.others:
                assert state.provider.execute(connection, look) == [(False, False)]
                self.others.append(migrate(database_url))
            return state.provider.execute(connection, command)

    provider = Provider()
    assert run(cast("Any", provider), None, state.operations.migrate()) == []
    assert provider.others == [VERSIONS]
    state.close()


def test_a_lock_that_another_process_holds_is_waited_for(database_url: str, watch: Watcher) -> None:
    """Waiting without a transaction and without waiting for the lock itself: nothing of ours is in anybody's way."""
    name = Installation("public", "queuert_").words()["lock_name"]
    space = Installation("public", "queuert_").words()["lock_space"]
    watch(f"SELECT pg_advisory_lock({space}, hashtext('{name}migrate'))")
    with Code(PROCESS, database_url) as process:
        assert process.readline() == "ready\n"
        process.write("go")
        seen = 0
        while seen < 5:  # it asks, and asks again
            seen += len(watch.others("query LIKE '%pg_try_advisory_xact_lock%'"))
            assert watch("SELECT 1 FROM pg_locks WHERE NOT granted") == []
        watch(f"SELECT pg_advisory_unlock({space}, hashtext('{name}migrate'))")
        assert process.readline().strip() == str(VERSIONS)


def test_a_newer_schema_is_refused_only_if_it_says_so(database_url: str, watch: Watcher) -> None:
    """Each version says which is the oldest library that it works with."""
    migrate(database_url)
    watch("INSERT INTO queuert_version (version, oldest) VALUES (98, %s)", VERSIONS[-1])
    assert migrate(database_url) == []
    watch("INSERT INTO queuert_version (version, oldest) VALUES (99, %s)", VERSIONS[-1] + 1)
    with pytest.raises(SchemaTooNew, match="upgrade queuert") as caught:
        migrate(database_url)
    error = caught.value
    assert (error.found, error.known, error.oldest) == (99, VERSIONS[-1], VERSIONS[-1] + 1)
    watch("INSERT INTO queuert_version (version, oldest) VALUES (100, 1)")  # a later one does not take that back
    with pytest.raises(SchemaTooNew):
        migrate(database_url)


def test_with_nothing_to_do_nothing_is_written(database_url: str, watch: Watcher) -> None:
    migrate(database_url)
    objects = (
        "SELECT array_agg((c.oid, c.xmin)::text ORDER BY c.oid) FROM pg_class AS c WHERE relname LIKE 'queuert%' "
        "UNION ALL SELECT array_agg((p.oid, p.xmin)::text ORDER BY p.oid) FROM pg_proc AS p "
        "WHERE proname LIKE 'queuert%' "
        "UNION ALL SELECT array_agg((v.xmin, v.*)::text ORDER BY v.version) FROM queuert_version AS v "
        "UNION ALL SELECT array_agg((s.xmin, s.*)::text ORDER BY s.digest) FROM queuert_function_set AS s"
    )
    before = watch(objects)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = on")
        state = sync_psycopg_state(connection)
        assert run(state.provider, None, state.operations.migrate()) == []
    assert watch(objects) == before


@pytest.fixture
def plain_role(postgres: Databases, database_url: str, watch: Watcher) -> Iterator[str]:
    """The URL for a role that may use what is there, and create nothing."""
    role = f"plain_{watch('SELECT pg_backend_pid()')[0]}"
    watch(f"CREATE ROLE {role} LOGIN")
    watch("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    yield database_url.replace("postgres@", f"{role}@", 1)
    watch(f"DROP OWNED BY {role}")
    watch(f"DROP ROLE {role}")


@pytest.mark.skipif(
    "'QUEUERT_TEST_POSTGRES_URL' in __import__('os').environ", reason="needs a server without passwords"
)
def test_a_role_that_may_create_nothing_works_once_migrated(database_url: str, watch: Watcher, plain_role: str) -> None:
    role = plain_role.partition("//")[2].partition("@")[0]
    with pytest.raises(StorageError):
        migrate(plain_role)
    migrate(database_url)
    with pytest.raises(StorageError, match="grant this one USAGE on the schema, SELECT, INSERT"):
        migrate(plain_role)
    watch(f"GRANT USAGE ON SCHEMA public TO {role}")
    watch(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    watch(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    assert migrate(plain_role) == []
    state = sync_psycopg_state(plain_role)
    run(state.provider, None, state.operations.create_jobs([new_job("a")]))
    (claim,) = run(state.provider, None, state.operations.claim(request(queue("a")))).jobs
    assert run(state.provider, None, state.operations.settle([completed(claim)])).applied == [True]
    assert len(run(state.provider, None, state.operations.delete_chains([claim.job.id], cascade=True)).chains) == 1
    state.close()


@pytest.mark.skipif(
    "'QUEUERT_TEST_POSTGRES_URL' in __import__('os').environ", reason="needs a server without passwords"
)
def test_a_role_that_may_not_call_our_functions(database_url: str, watch: Watcher, plain_role: str) -> None:
    """The grants of docs/postgres.md, where EXECUTE does not belong to PUBLIC. Functions have the caller's rights."""
    role = plain_role.partition("//")[2].partition("@")[0]
    migrate(database_url)
    watch("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
    watch(f"GRANT USAGE ON SCHEMA public TO {role}")
    watch(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    watch(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    state = sync_psycopg_state(plain_role)
    with pytest.raises(StorageError, match=r"permission denied for function queuert_.* EXECUTE on its functions"):
        run(state.provider, None, state.operations.create_jobs([new_job("a")]))
    watch(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}")
    run(state.provider, None, state.operations.create_jobs([new_job("a")]))
    state.close()
    assert watch("SELECT DISTINCT prosecdef FROM pg_proc WHERE proname LIKE 'queuert%%'") == [False]


def test_every_statement_can_be_prepared(database_url: str) -> None:
    """All names and types are right, also in those that no other test comes to."""
    migrate(database_url)
    operations = PostgresOperations()
    utilities = ("migrate.create", "migrate.drop")
    texts = [text.text for name, text in statements_for(operations.installation).items() if name not in utilities]
    page = PageRequest(10, after="00000000-0000-7000-8000-000000000000", order="desc")
    sets = (None, *((status,) for status in STATUSES), STATUSES[:3], STATUSES)
    for statuses, types, chain_types in product(sets, (None, ("a",)), (None, ("a", "b"))):
        for more in (
            {},
            {"errors": ("E",), "ended_from": datetime(2030, 1, 1, tzinfo=UTC)},
            {"job_ids": (page.after,)},
        ):
            common: Any = {"statuses": statuses, "types": types, "chain_types": chain_types, **more}
            found = [
                next(operations.list_jobs(JobFilter(**common), page), None),
                next(operations.list_chains(ChainFilter(**common), page), None),
                next(operations.list_chains(ChainFilter(root_only=True, **common), page), None),
            ]
            # Of a filter that nothing can match, there is no statement.
            texts += [statement.text for statement in found if statement is not None]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE queuert_schema_version (version integer)")  # as version 6 left it
        for number, text in enumerate(texts):
            connection.execute(f"PREPARE s{number} AS {text}".encode())
    assert len(texts) > 50


def test_every_function_that_is_called_from_outside_keeps_its_plans_steady(database_url: str, watch: Watcher) -> None:
    """A plan made while the tables are empty is kept by the session: it must not be a scan."""
    migrate(database_url)
    called = {
        name
        for text in statements_for(Installation("public", "queuert_")).values()
        for name in watch(
            "SELECT proname FROM pg_proc WHERE proname LIKE 'queuert%%' AND position(proname || '\"(' in %s) > 0",
            text.text,
        )
    }
    unsteady = watch(
        "SELECT proname FROM pg_proc WHERE proname LIKE 'queuert%' AND proconfig IS NULL"
        " AND prorettype <> 'trigger'::regtype"
    )
    assert len(called) > 10
    exempt = {PostgresOperations().words[each].split('"')[-2] for each in ("blockers_of", "expand", "begin_one")}
    assert called & set(unsteady) == exempt, "one select along a primary key, and two that read no table"
