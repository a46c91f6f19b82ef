"""Sets of functions: several in one database, each complete or not there at all, with the rights of the one before."""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.libraries import (
    KNOWN,
    OTHER_CLOCK,
    SINCE_6,
    Library,
    at_version,
    needs_roles,
    recorded,
    work,
)
from tests.adapters.postgres.scenes import violations
from tests.support.code import Code

import queuert
from queuert import EntryJob, SchemaMissing
from queuert.adapters.postgres.installation import DATABASE_CLOCK, Installation, functions_for
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.sql.statement import sql_files
from queuert.records.model import Lease
from queuert.wiring.schema import statements_to_drop
from queuert_conformance.state.build import (
    completed,
    continued,
    failed,
    key,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    waiting_for,
)

HERE = Installation("public", "queuert_")


@pytest.fixture
def watch(database_url: str) -> Iterator[Watcher]:
    watcher = Watcher(database_url)
    yield watcher
    watcher.close()


@pytest.fixture
def library(database_url: str) -> Iterator[Callable[..., Library]]:
    """Makes libraries with functions of their own, by the clock that is in them."""
    made: list[Library] = []

    def make(clock: str = DATABASE_CLOCK, url: str = database_url) -> Library:
        made.append(Library(url, PostgresOperations(clock=clock)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def sets(watch: Watcher) -> dict[str, int]:
    """The recorded sets, and for each the number of its functions that are there."""
    return dict(
        watch(
            "SELECT s.digest, (SELECT count(*) FROM pg_proc AS p WHERE p.proname = ANY (s.functions)) "
            "FROM queuert_function_set AS s UNION ALL SELECT 'all', count(*) FROM pg_proc "
            "WHERE proname LIKE 'queuert%' AND prorettype <> 'trigger'::regtype"
        )
    )


# The set


def test_migrations_have_tables_and_functions_are_elsewhere() -> None:
    for _, text in sql_files("queuert.adapters.postgres.migrations"):
        assert "CREATE FUNCTION" not in text
        assert "CREATE OR REPLACE FUNCTION" not in text
    assert len(functions_for(HERE).statements) == len(functions_for(HERE).names) > 30


def test_one_digest_for_the_whole_set_by_its_content() -> None:
    here = functions_for(HERE)
    assert re.fullmatch("[0-9a-f]{8}", here.digest)
    assert all(name.endswith(f"_{here.digest}") for name in here.names)
    others = [
        Installation("public", "queuert_", OTHER_CLOCK),
        Installation("public", "other_"),
        Installation("other", "queuert_"),
    ]
    assert len({here.digest, *(functions_for(each).digest for each in others)}) == 4


def test_comments_are_not_content(monkeypatch: pytest.MonkeyPatch) -> None:
    from queuert.adapters.postgres import installation

    def commented(package: str) -> Iterator[tuple[str, str]]:
        for stem, text in sql_files(package):
            yield stem, "-- One more comment.\n\n" + text.replace("\nBEGIN\n", "\nBEGIN\n    -- And another.\n")

    before = functions_for(HERE)
    monkeypatch.setattr(installation, "sql_files", commented)
    assert functions_for.__wrapped__(HERE) == before


def test_a_set_calls_its_own_functions_only(library: Callable[..., Library], watch: Watcher) -> None:
    for clock in (DATABASE_CLOCK, OTHER_CLOCK):
        one = library(clock)
        one.migrate()
        bodies = watch("SELECT prosrc FROM pg_proc WHERE proname = ANY (%s)", one.functions.names)
        called = {name for body in bodies for name in re.findall(r'"(queuert_\w+)"\(', body)}
        assert len(bodies) == len(one.functions.names)
        assert called <= set(one.functions.names)
        assert f"queuert_claim_{one.functions.digest}" in called, "it calls itself"


def test_names_fit_with_the_longest_prefix(library: Callable[..., Library], database_url: str, watch: Watcher) -> None:
    long = Library(database_url, PostgresOperations(table_prefix="p" * 40))
    long.migrate()
    assert max(map(len, long.functions.names)) == 63
    found = watch("SELECT proname FROM pg_proc WHERE proname LIKE 'ppp%' AND prorettype <> 'trigger'::regtype")
    assert sorted(found) == sorted(long.functions.names), "PostgreSQL has cut off nothing"
    long(long.operations.create_jobs([new_job("a")]))
    assert len(long(long.operations.claim(request(queue("a")))).jobs) == 1
    long.close()


def test_functions_keep_their_settings(library: Callable[..., Library], watch: Watcher) -> None:
    for clock in (DATABASE_CLOCK, OTHER_CLOCK):
        one = library(clock)
        one.migrate()
        (settings,) = watch("SELECT proconfig FROM pg_proc WHERE proname = %s", f"queuert_claim_{one.functions.digest}")
        assert "enable_seqscan=off" in settings
        assert "plan_cache_mode=force_generic_plan" in settings


# Installing


def test_a_set_is_installed_whenever_it_is_not_there(library: Callable[..., Library], watch: Watcher) -> None:
    old, new = library(), library(OTHER_CLOCK)
    number = len(old.functions.names)
    assert old.migrate() == [1, *SINCE_6]
    assert sets(watch) == {old.functions.digest: number, "all": number}
    assert new.migrate() == [], "the tables have not changed"
    both = {old.functions.digest: number, new.functions.digest: number, "all": 2 * number}
    assert sets(watch) == both
    for one in (old, new, old):
        assert one.migrate() == []
        assert sets(watch) == both


def test_a_damaged_set_is_completed(library: Callable[..., Library], watch: Watcher) -> None:
    one = library()
    one.migrate()
    whole = sets(watch)
    watch(f"DROP FUNCTION queuert_claim_{one.functions.digest}, queuert_renew_{one.functions.digest}")
    with pytest.raises(SchemaMissing):
        one(one.operations.claim(request()))
    assert one.migrate() == []
    assert sets(watch) == whole
    one(one.operations.create_jobs([new_job()]))
    assert len(one(one.operations.claim(request())).jobs) == 1


PROCESS = textwrap.dedent("""
    import os, signal, sys
    from queuert.adapters.postgres.adapter import sync_psycopg_state
    from queuert.adapters.postgres.operations import PostgresOperations
    from queuert.ports.provider import run

    state, left = sync_psycopg_state(sys.argv[1]), int(sys.argv[3])

    class Provider:
        transaction = state.provider.transaction
        savepoint = state.provider.savepoint

        def execute(self, connection, command):
            global left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return state.provider.execute(connection, command)

    program = PostgresOperations(clock=sys.argv[2]).migrate()
    print("ready", flush=True)
    sys.stdin.readline()
    print(run(Provider(), None, program), flush=True)
""")


def start(url: str, clock: str, statements: int = 0) -> Code:
    """A process that installs its set, and kills itself before its n-th statement."""
    process = Code(PROCESS, url, clock, str(statements))
    assert process.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    "statements", [6, 38, *(pytest.param(each, marks=pytest.mark.soak) for each in (20, 37, 39, 41))]
)
def test_kill_9_in_the_middle_of_installing(
    library: Callable[..., Library], database_url: str, watch: Watcher, statements: int
) -> None:
    """Given a set at work, when the installation of another one is killed, then nothing of it is there, and the first
    goes on; the next process installs it, and both work at once."""
    old, new = library(), library(OTHER_CLOCK)
    old.migrate()
    before = sets(watch)
    stop, problems = threading.Event(), list[BaseException]()
    worker = threading.Thread(target=work, args=(old, stop, problems))
    worker.start()
    try:
        process = start(database_url, OTHER_CLOCK, statements)
        process.write("go")
        assert process.end()[0] == -9
        assert sets(watch) == before
        assert new.migrate() == []
        assert sets(watch) == {**before, new.functions.digest: before["all"], "all": 2 * before["all"]}
        stop_new = threading.Event()
        beside = threading.Thread(target=work, args=(new, stop_new, problems))
        beside.start()
        stop_new.wait(0.3)
        stop_new.set()
        beside.join(60)
    finally:
        stop.set()
        worker.join(60)
    assert problems == []
    assert violations(watch) == {}


def test_many_processes_with_different_sets_at_once(database_url: str, watch: Watcher) -> None:
    """Both sets end up complete, and the tables are made once."""
    processes = [start(database_url, clock) for _ in range(3) for clock in (DATABASE_CLOCK, OTHER_CLOCK)]
    for process in processes:
        process.write("go")
    ends = [process.end() for process in processes]
    assert [code for code, _ in ends] == [0] * 6
    applied = [int(each) for _, answer in ends for each in answer.strip("[]\n").split(",") if each.strip()]
    assert sorted(applied) == [1, *SINCE_6]
    number = len(functions_for(HERE).names)
    other = functions_for(Installation("public", "queuert_", OTHER_CLOCK)).digest
    assert sets(watch) == {functions_for(HERE).digest: number, other: number, "all": 2 * number}


def test_the_lock_of_another_process_is_polled(
    library: Callable[..., Library], database_url: str, watch: Watcher
) -> None:
    library().migrate()
    words = HERE.words()
    watch(f"SELECT pg_advisory_lock({words['lock_space']}, hashtext('{words['lock_name']}migrate'))")
    process = start(database_url, OTHER_CLOCK)
    process.write("go")
    seen = 0
    while seen < 5:
        seen += len(watch.others("query LIKE '%pg_try_advisory_xact_lock%'"))
        assert watch("SELECT 1 FROM pg_locks WHERE NOT granted") == []
    watch("SELECT pg_advisory_unlock_all()")
    assert process.end()[0] == 0
    assert len(sets(watch)) == 3


# Two sets at work


def test_two_sets_do_the_same_jobs_in_turn(library: Callable[..., Library], watch: Watcher) -> None:
    """Each step of a job's life by the other library."""
    old, new = library(), library(OTHER_CLOCK)
    old.migrate()
    new.migrate()
    for one, two in ((old, new), (new, old)):
        first = new_job("a", dedup=key("k"))
        dependent = new_job("b", blockers=waiting_for(first.id, chain_type="a"))
        one(one.operations.create_jobs([first]))
        (again,) = two(two.operations.create_jobs([new_job("a", dedup=key("k"))]))
        assert again.existing is not None
        two(two.operations.create_jobs([dependent]))
        (claim,) = one(one.operations.claim(request(queue("a", "b")))).jobs
        assert two(two.operations.hold(claim.job.id, claim.job.token or 0))
        assert two(two.operations.renew([Lease(claim.job.id, claim.job.token or 0, 60.0)])) == []
        assert two(two.operations.settle([continued(claim, next_job(claim.job))])).applied == [True]
        (claim,) = one(one.operations.claim(request(queue("a", "b")))).jobs
        assert two(two.operations.settle([put_back(claim)])).applied == [True]
        (claim,) = one(one.operations.claim(request(queue("a", "b")))).jobs
        settled = two(two.operations.settle([completed(claim, b"7")]))
        assert [each.job_id for each in settled.unblocked] == [dependent.id]
        (claim,) = one(one.operations.claim(request(queue("a", "b")))).jobs
        assert [each.output for each in claim.blockers] == [b"7"]
        assert two(two.operations.settle([failed(claim)])).applied == [True]
        assert one(one.operations.retry([dependent.id])) != [None]
        assert len(two(two.operations.delete_chains([dependent.id], cascade=True)).chains) == 2
    assert violations(watch) == {}


# Dropping


def test_a_set_is_dropped_two_versions_later(
    library: Callable[..., Library], watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (library(clock) for clock in (DATABASE_CLOCK, OTHER_CLOCK, f"({OTHER_CLOCK})"))
    first, second, third = (each.functions.digest for each in (one, two, three))
    one.migrate()
    at_version(monkeypatch, KNOWN + 1)
    assert two.migrate() == [KNOWN + 1]
    assert recorded(watch) == {first: KNOWN, second: KNOWN + 1}
    one(one.operations.create_jobs([new_job()]))
    at_version(monkeypatch, KNOWN + 2)
    assert three.migrate() == [KNOWN + 2]
    assert recorded(watch) == {second: KNOWN + 1, third: KNOWN + 2}
    assert sets(watch)["all"] == 2 * len(one.functions.names)
    with pytest.raises(SchemaMissing):
        one(one.operations.create_jobs([new_job()]))
    for each in (two, three):
        each(each.operations.create_jobs([new_job()]))


def test_a_deploy_that_skips_versions_keeps_the_set_before(
    library: Callable[..., Library], watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes still run, however many versions lie between."""
    old, new, newer = (library(clock) for clock in (DATABASE_CLOCK, OTHER_CLOCK, f"({OTHER_CLOCK})"))
    old.migrate()
    at_version(monkeypatch, KNOWN + 5)
    new.migrate()
    assert recorded(watch) == {old.functions.digest: KNOWN, new.functions.digest: KNOWN + 5}
    old(old.operations.create_jobs([new_job()]))
    at_version(monkeypatch, KNOWN + 6)
    newer.migrate()
    assert recorded(watch) == {new.functions.digest: KNOWN + 5, newer.functions.digest: KNOWN + 6}


def test_a_set_in_use_by_a_newer_version_stays(
    library: Callable[..., Library], watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables change, the functions do not: the same set counts as that of the newer version."""
    one, other = library(), library(OTHER_CLOCK)
    one.migrate()
    at_version(monkeypatch, KNOWN + 1)
    one.migrate()
    assert recorded(watch) == {one.functions.digest: KNOWN + 1}
    at_version(monkeypatch, KNOWN + 2)
    other.migrate()
    assert recorded(watch) == {one.functions.digest: KNOWN + 1, other.functions.digest: KNOWN + 2}


def test_an_older_library_finds_its_set_or_installs_it(
    library: Callable[..., Library], watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the version before that restarts in the middle of a deploy, or long after it."""
    old, new = library(), library(OTHER_CLOCK)
    old.migrate()
    with monkeypatch.context() as newer:
        at_version(newer, KNOWN + 1)
        new.migrate()
    before = recorded(watch)
    assert old.migrate() == []
    assert recorded(watch) == before, "found, and nothing written"
    old(old.operations.create_jobs([new_job()]))
    with monkeypatch.context() as newer:
        at_version(newer, KNOWN + 3)
        new.migrate()
    assert old.functions.digest not in recorded(watch)
    assert old.migrate() == []
    assert recorded(watch)[old.functions.digest] == KNOWN + 3
    assert len(old(old.operations.claim(request())).jobs) == 1


# Other names


@pytest.mark.parametrize(
    ("schema", "prefix"),
    [
        ("two words", "Q_"),
        ("$1 :name %s", "q_"),
        *(pytest.param(schema, "q_", marks=pytest.mark.soak) for schema in ("o'brien", "{job}", "a.b")),
    ],
)
def test_sets_come_and_go_under_every_name(
    database_url: str, watch: Watcher, monkeypatch: pytest.MonkeyPatch, schema: str, prefix: str
) -> None:
    """Rights are copied, sets dropped, and all of it removed, where names need quotes and others begin like ours."""
    neighbour = Library(database_url, PostgresOperations(schema, f"{prefix}x_"))
    libraries = [
        Library(database_url, PostgresOperations(schema, prefix, clock))
        for clock in (DATABASE_CLOCK, OTHER_CLOCK, f"({OTHER_CLOCK})")
    ]
    for version, each in enumerate((neighbour, *libraries), KNOWN - 1):
        at_version(monkeypatch, max(version, KNOWN))
        each.migrate()
        name = each.operations.words["hold"]
        public = "SELECT has_function_privilege('public', %s::regproc::oid, 'EXECUTE')"
        assert watch(public, name) == [each in (neighbour, libraries[0])]
        watch(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
    table = libraries[0].operations.words["function_set"]
    assert len(watch(f"SELECT digest FROM {table}")) == 2
    for statement in statements_to_drop(schema, prefix):
        watch(statement)
    left = watch("SELECT proname FROM pg_proc WHERE lower(proname) LIKE 'q\\_%' AND prorettype <> 'trigger'::regtype")
    assert sorted(left) == sorted(neighbour.functions.names)
    neighbour(neighbour.operations.create_jobs([new_job()]))
    for each in (neighbour, *libraries):
        each.close()


# Without migrating


class Greet(EntryJob[None], name="greet"):
    pass


def test_without_migrating_a_missing_set_names_the_command(library: Callable[..., Library], database_url: str) -> None:
    library(OTHER_CLOCK).migrate()  # the tables are there, and another set
    with queuert.connect_sync(database_url, jobs=[Greet], migrate=False, notify=None) as client:
        with pytest.raises(SchemaMissing, match=r"run client\.migrate\(\).*manage\.py migrate.*upgrade\(\)") as caught:
            client.get_chain(client_id())
        assert getattr(caught.value.__cause__, "sqlstate", None) == "42883"
        with pytest.raises(SchemaMissing), client.transaction() as tx:
            client.start(tx, Greet())
        assert client.migrate() == []
        with client.transaction() as tx:
            chain = client.start(tx, Greet())
        assert client.get_chain(chain) is not None


def client_id() -> Any:
    return "00000000-0000-7000-8000-000000000000"


# Rights


@pytest.fixture
def roles(database_url: str, watch: Watcher) -> Iterator[Callable[[str], str]]:
    made: list[str] = []

    def make(options: str = "LOGIN") -> str:
        name = f"role {len(made)} {watch('SELECT pg_backend_pid()')[0]}"  # a name that needs quotes
        watch(f'CREATE ROLE "{name}" {options}')
        made.append(name)
        return name

    yield make
    for name in made:
        watch(f'REASSIGN OWNED BY "{name}" TO CURRENT_USER')
        watch(f'DROP OWNED BY "{name}"')
        watch(f'DROP ROLE "{name}"')


def url_for(role: str, url: str) -> str:
    return url.replace("postgres@", f"{role.replace(' ', '%20')}@", 1)


def may_execute(watch: Watcher, role: str, digest: str) -> set[str]:
    """The functions of a set that a role may execute, without prefix and digest."""
    found = watch(
        "SELECT proname FROM pg_proc WHERE proname LIKE %s AND has_function_privilege(%s, oid, 'EXECUTE')",
        f"%{digest}",
        role,
    )
    return {name.removeprefix("queuert_").removesuffix(f"_{digest}") for name in found}


@needs_roles
def test_rights_are_copied_from_the_set_before(
    library: Callable[..., Library], watch: Watcher, roles: Callable[..., str]
) -> None:
    old, new = library(), library(OTHER_CLOCK)
    old.migrate()
    app, reader, stranger, keeper = (roles() for _ in range(4))
    for name in old.functions.names:
        watch(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
        watch(f'GRANT EXECUTE ON FUNCTION {name} TO "{app}"')
        watch(f'GRANT EXECUTE ON FUNCTION {name} TO "{keeper}" WITH GRANT OPTION')
    for what in ("read_jobs", "read_chains"):
        watch(f'GRANT EXECUTE ON FUNCTION queuert_{what}_{old.functions.digest} TO "{reader}"')
    watch(f"GRANT EXECUTE ON FUNCTION queuert_hold_{old.functions.digest} TO PUBLIC")
    new.migrate()
    for role in (app, reader, stranger, keeper):
        rights = may_execute(watch, role, new.functions.digest)
        assert rights == may_execute(watch, role, old.functions.digest)
    assert len(may_execute(watch, app, new.functions.digest)) == len(new.functions.names)
    assert may_execute(watch, reader, new.functions.digest) == {"read_jobs", "read_chains", "hold"}
    assert may_execute(watch, stranger, new.functions.digest) == {"hold"}
    claim = f"queuert_claim_{new.functions.digest}"
    for role, expected in ((keeper, True), (app, False)):
        assert watch(
            "SELECT has_function_privilege(%s, oid, 'EXECUTE WITH GRANT OPTION') FROM pg_proc WHERE proname = %s",
            role,
            claim,
        ) == [expected]


@needs_roles
def test_a_function_that_is_new_gets_the_rights_that_all_before_had(
    library: Callable[..., Library], watch: Watcher, roles: Callable[..., str]
) -> None:
    old, new = library(), library(OTHER_CLOCK)
    old.migrate()
    app, reader = roles(), roles()
    for name in old.functions.names:
        watch(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
        watch(f'GRANT EXECUTE ON FUNCTION {name} TO "{app}"')
    watch(f'GRANT EXECUTE ON FUNCTION queuert_read_jobs_{old.functions.digest} TO "{reader}"')
    # As if the set before had no function of that name.
    watch(f"DROP FUNCTION queuert_claim_{old.functions.digest}")
    new.migrate()
    assert "claim" in may_execute(watch, app, new.functions.digest)
    assert may_execute(watch, reader, new.functions.digest) == {"read_jobs"}


def test_without_grants_nothing_is_granted(library: Callable[..., Library], watch: Watcher) -> None:
    for clock in (DATABASE_CLOCK, OTHER_CLOCK):
        library(clock).migrate()
    rights = (
        "SELECT DISTINCT has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc WHERE proname LIKE 'queuert%'"
    )
    assert watch(rights) == [True]
    assert watch("SELECT proname FROM pg_proc WHERE proname LIKE 'queuert%' AND proacl IS NOT NULL") == []
    assert watch("SELECT relname FROM pg_class WHERE relname LIKE 'queuert%' AND relacl IS NOT NULL") == []


@needs_roles
def test_what_another_role_installs_belongs_to_the_owner_of_the_jobs(
    library: Callable[..., Library],
    watch: Watcher,
    database_url: str,
    roles: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then that one can drop it when its time has come, and work with the tables that are new."""
    owner = roles()
    watch(f'GRANT ALL ON SCHEMA public TO "{owner}"')
    old = library(url=url_for(owner, database_url))
    old.migrate()
    new = library(OTHER_CLOCK)  # a superuser
    at_version(monkeypatch, KNOWN + 1)
    new.migrate()
    owners = (
        "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relname LIKE 'queuert%' "
        "UNION SELECT proowner::regrole::text FROM pg_proc WHERE proname LIKE 'queuert%'"
    )
    assert watch(owners) == [f'"{owner}"']
    at_version(monkeypatch, KNOWN + 3)
    newest = library(f"({OTHER_CLOCK})", url_for(owner, database_url))
    newest.migrate()
    assert recorded(watch) == {new.functions.digest: KNOWN + 1, newest.functions.digest: KNOWN + 3}


@needs_roles
def test_a_set_that_this_role_may_not_drop_stays(
    library: Callable[..., Library],
    watch: Watcher,
    database_url: str,
    roles: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = library(), library(OTHER_CLOCK)
    old.migrate()
    owner = roles()
    watch(f'GRANT ALL ON SCHEMA public TO "{owner}"')
    watch(f'GRANT ALL ON ALL TABLES IN SCHEMA public TO "{owner}"')
    at_version(monkeypatch, KNOWN + 1)
    new.migrate()
    at_version(monkeypatch, KNOWN + 2)
    watch("INSERT INTO queuert_version (version, oldest) VALUES (%s, 1)", KNOWN + 2)
    plain = library(f"({OTHER_CLOCK})", url_for(owner, database_url))
    assert plain.migrate() == []
    assert set(recorded(watch)) == {each.functions.digest for each in (old, new, plain)}


# What every later migration has to keep to


def test_new_columns_are_nullable_or_have_a_default() -> None:
    """Older functions do not name them when they insert."""
    for package in ("queuert.adapters.postgres.migrations", "queuert.adapters.sqlite.migrations"):
        for stem, text in sql_files(package):
            for column in re.findall(r"ADD COLUMN[^,;]*", text):
                assert "NOT NULL" not in column or "DEFAULT" in column, (stem, column)
            assert re.search(r"^-- oldest: \d+$", text, re.MULTILINE), stem
            # Without an index or a key, older functions are slower, but not wrong.
            gone = re.search(r"\b(RENAME|DROP)\b(?! INDEX| CONSTRAINT| IDENTITY| VIEW)", text)
            assert stem.startswith("0001_") or not gone, stem
