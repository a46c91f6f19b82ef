"""A database that version 6 has made (functions inside of migrations), and processes of that version beside ours."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.libraries import (
    KNOWN,
    SINCE_6,
    Library,
    Version6,
    at_version,
    install_version_6,
    needs_roles,
    recorded,
    work,
)
from tests.adapters.postgres.scenes import COUNTED, violations

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import Lease
from queuert_conformance.state.build import (
    completed,
    continued,
    failed,
    key,
    later,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    waiting_for,
)


class Ledger:
    """What two workers of version 6 do, and the longest time in which none of them has done anything."""

    def __init__(self, url: str) -> None:
        self.stop = threading.Event()
        self.problems: list[BaseException] = []
        self.longest = 0.0
        self._last = time.monotonic()
        self._threads = [threading.Thread(target=self._work, args=(Library(url, Version6()),)) for _ in range(2)]

    def __enter__(self) -> Ledger:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, one: Library) -> None:
        try:
            while not self.stop.is_set():
                one(one.operations.create_jobs([new_job("a"), new_job("a", schedule=later(0.001))]))
                claimed = one(one.operations.claim(request(queue("a"), limit=5))).jobs
                one(one.operations.settle([completed(each) for each in claimed]))
                now = time.monotonic()
                self.longest, self._last = max(self.longest, now - self._last), now
        except BaseException as error:
            self.problems.append(error)
        finally:
            one.close()


BOTH = request(queue("a", "b"))


@pytest.fixture
def watch(database_url: str) -> Iterator[Watcher]:
    watcher = Watcher(database_url)
    yield watcher
    watcher.close()


@pytest.fixture
def old(database_url: str) -> Iterator[Library]:
    install_version_6(database_url)
    library = Library(database_url, Version6())
    yield library
    library.close()


@pytest.fixture
def new(database_url: str) -> Iterator[Library]:
    library = Library(database_url)
    yield library
    library.close()


def test_the_tables_stay_and_the_set_comes_beside(old: Library, new: Library, watch: Watcher) -> None:
    functions = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'queuert%' AND prorettype <> 'trigger'::regtype"
    (before,) = watch(functions)
    assert new.migrate() == SINCE_6
    assert new.migrate() == []
    assert recorded(watch) == {"": 6, new.functions.digest: KNOWN}
    assert watch("SELECT cardinality(functions) FROM queuert_function_set WHERE digest = ''") == [before]
    assert watch(functions) == [before + len(new.functions.names)]
    assert watch("SELECT version, oldest FROM queuert_version") == [(version, 6) for version in SINCE_6]


def test_a_process_of_version_6_can_restart(old: Library, new: Library) -> None:
    """It refuses whatever is above 6 in the table that it knows."""
    assert isinstance(old.operations, Version6)
    assert old(old.operations.installed_version()) == 6
    new.migrate()
    assert old(old.operations.installed_version()) == 6
    old(old.operations.create_jobs([new_job()]))
    assert len(old(old.operations.claim(request())).jobs) == 1


@pytest.mark.parametrize("new_first", [False, True], ids=["6 first", "ours first"])
def test_each_step_of_a_job_by_the_other_version(old: Library, new: Library, watch: Watcher, new_first: bool) -> None:
    """Each version takes the rows that the other has written."""
    new.migrate()
    one, two = (new, old) if new_first else (old, new)
    first = new_job("a", dedup=key("k"))
    other = new_job("a", schedule=later())
    dependent = new_job("b", blockers=waiting_for(first.id, other.id, chain_type="a"))
    one(one.operations.create_jobs([first, other]))
    (again,) = two(two.operations.create_jobs([new_job("a", dedup=key("k"))]))
    assert again.existing is not None
    assert again.existing.first.id == first.id
    two(two.operations.create_jobs([dependent]))
    (claim,) = one(one.operations.claim(BOTH)).jobs
    assert two(two.operations.hold(claim.job.id, claim.job.token or 0))
    assert two(two.operations.renew([Lease(claim.job.id, claim.job.token or 0, 60.0)])) == []
    assert two(two.operations.settle([continued(claim, next_job(claim.job))])).applied == [True]
    (claim,) = one(one.operations.claim(BOTH)).jobs
    assert two(two.operations.settle([put_back(claim)])).applied == [True]
    (claim,) = one(one.operations.claim(BOTH)).jobs
    assert two(two.operations.settle([completed(claim, b"7")])).unblocked == []
    assert two(two.operations.trigger([other.id])) != [None]
    (claim,) = two(two.operations.claim(BOTH)).jobs
    settled = one(one.operations.settle([completed(claim, b"8")]))
    assert [each.job_id for each in settled.unblocked] == [dependent.id]
    (claim,) = one(one.operations.claim(BOTH)).jobs
    assert [each.output for each in claim.blockers] == [b"7", b"8"]
    watch("UPDATE queuert_running SET leased_until = now()")
    assert [row.id for row in two(two.operations.reap(["b"], [], 1, b"{}"))] == [dependent.id]
    (claim,) = one(one.operations.claim(BOTH)).jobs
    assert two(two.operations.settle([failed(claim)])).applied == [True]
    assert one(one.operations.retry([dependent.id])) != [None]
    for each in (one, two):
        assert len(each(each.operations.list_jobs(JobFilter(), PageRequest(10))).rows) == 4
        assert len(each(each.operations.list_chains(ChainFilter(), PageRequest(10))).rows) == 3
        assert each(each.operations.next_available_in(["a", "b"])).next_in == 0
        assert [found and found.current.status for found in each(each.operations.get_chains([first.id]))] == [
            "completed"
        ]
    assert violations(watch).keys() <= {COUNTED}  # version 6 does not count what it does
    assert len(two(two.operations.delete_chains([dependent.id], cascade=True)).chains) == 3


def test_caps_count_what_it_runs_by_type(old: Library, new: Library, watch: Watcher) -> None:
    """It stores no queue."""
    new.migrate()
    new(new.operations.create_jobs([new_job(name) for name in "aabbbb"]))
    assert len(old(old.operations.claim(request(queue("a")))).jobs) == 2
    assert watch("SELECT DISTINCT queue FROM queuert_running") == [None]
    stranger = request(queue("b", name="y", members=("b",), max_concurrency=1))
    assert len(new(new.operations.claim(stranger)).jobs) == 1, "no member of this queue"
    member = request(queue("b", name="x", members=("a", "b"), max_concurrency=3))
    assert len(new(new.operations.claim(member)).jobs) == 1
    assert watch("SELECT queue FROM queuert_running ORDER BY queue") == ["x", "y", None, None]


def test_both_versions_work_while_the_new_one_installs(old: Library, new: Library, watch: Watcher) -> None:
    stop, problems = threading.Event(), list[BaseException]()
    threads = [threading.Thread(target=work, args=(old, stop, problems))]
    threads[0].start()
    new.migrate()
    threads.append(threading.Thread(target=work, args=(new, stop, problems)))
    threads[1].start()
    stop.wait(1)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert violations(watch) == {}


def test_its_functions_are_dropped_two_versions_later(
    old: Library, new: Library, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.migrate()
    at_version(monkeypatch, KNOWN + 1)
    new.migrate()
    assert recorded(watch) == {new.functions.digest: KNOWN + 1}
    assert watch("SELECT count(*) FROM pg_proc WHERE proname LIKE 'queuert%' AND prorettype <> 'trigger'::regtype") == [
        len(new.functions.names)
    ]


@pytest.mark.parametrize("version", range(6))
def test_one_that_was_killed_before_its_functions_were_there(
    old: Library, new: Library, watch: Watcher, version: int
) -> None:
    """Version 6 made its functions in five steps; the tables were the first one."""
    watch("DELETE FROM queuert_schema_version WHERE version > %s", version)
    if version == 0:
        watch("DROP TABLE queuert_job, queuert_ready, queuert_later, queuert_running, queuert_blocker, queuert_key")
        watch("DROP SEQUENCE queuert_token")
    assert new.migrate() == ([1, *SINCE_6] if version == 0 else SINCE_6)
    new(new.operations.create_jobs([new_job()]))
    assert len(new(new.operations.claim(request())).jobs) == 1


@needs_roles
def test_a_role_with_rights_of_before_keeps_working(
    old: Library, new: Library, watch: Watcher, database_url: str
) -> None:
    """Also with the tables that are new: it reads them when it starts."""
    role = f"plain_{watch('SELECT pg_backend_pid()')[0]}"
    watch(f"CREATE ROLE {role} LOGIN")
    plain = Library(database_url.replace("postgres@", f"{role}@", 1))
    try:
        watch(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        watch(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
        watch("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
        watch(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}")
        new.migrate()
        assert plain.migrate() == []
        plain(plain.operations.create_jobs([new_job()]))
        (claim,) = plain(plain.operations.claim(request())).jobs
        assert plain(plain.operations.settle([completed(claim)])).applied == [True]
        rights = "SELECT DISTINCT has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc WHERE proname LIKE %s"
        assert watch(rights, f"queuert%{new.functions.digest}") == [False]
        assert watch(f"SELECT has_table_privilege('{role}', 'queuert_jobs', 'SELECT')") == [True]
    finally:
        plain.close()
        watch(f"DROP OWNED BY {role}")
        watch(f"DROP ROLE {role}")


def test_a_fresh_database_has_nothing_of_version_6(new: Library, watch: Watcher) -> None:
    assert new.migrate() == [1, *SINCE_6]
    assert recorded(watch) == {new.functions.digest: KNOWN}
    assert watch("SELECT to_regclass('queuert_schema_version') IS NULL") == [True]
    assert isinstance(new.operations, PostgresOperations)


@pytest.mark.soak
def test_migrating_under_the_load_of_old_workers(old: Library, new: Library, database_url: str, watch: Watcher) -> None:
    """It gets its locks, and nobody is undone for that. `-s` shows how long that takes."""
    with Ledger(database_url) as ledger:
        began = time.monotonic()
        assert new.migrate() == SINCE_6
        took = time.monotonic() - began
    sys.stdout.write(f"migrated in {took:.2f} s, and no worker did a job for {ledger.longest:.2f} s at most\n")
    assert ledger.problems == []
    assert violations(watch) == {}
