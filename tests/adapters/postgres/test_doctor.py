"""The doctor on PostgreSQL: tables are broken by hand, in each way; it finds that, and repairs what can be proven."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.adapters.patient import Patient
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.scenes import COUNTED, violations
from tests.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.support.postgres import PostgresServer

import queuert
from queuert import EntryJob, Finding
from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.features.doctor import examining as doctor
from queuert.features.doctor import surroundings
from queuert.records.examination import Damage
from queuert_conformance.state.build import completed, new_id, new_job
from queuert_conformance.state.unblock import behind


class Ward(Patient):
    def __init__(self, url: str, watch: Watcher) -> None:
        super().__init__(sync_psycopg_state(url))
        self.watch = watch
        self.url = url

    def doctor(self, **options: Any) -> tuple[Finding, ...]:
        with queuert.connect_sync(self.url, jobs=[], migrate=False, notify=None) as client:
            return client.doctor(**options).findings

    def codes(self, **options: Any) -> list[str]:
        return [finding.code for finding in self.doctor(**options)]


@pytest.fixture
def database_url(migrated_url: str) -> str:
    return migrated_url


@pytest.fixture
def ward(database_url: str, watch: Watcher) -> Iterator[Ward]:
    ward = Ward(database_url, watch)
    yield ward
    ward.state.close()


def test_a_healthy_database_has_no_findings(ward: Ward) -> None:
    assert ward.doctor() == ()
    assert ward.doctor(full=True, fix=True) == ()


MISFILED = "UPDATE queuert_ready SET priority = 7 WHERE id = '{ready}'"
BREAKS: dict[str, tuple[str, str, bool]] = {
    "ready without a job": (
        "INSERT INTO queuert_ready VALUES ('task', 1, now(), '{new}')", "stray", False),
    "ready although ended": (
        "INSERT INTO queuert_ready SELECT type_name, priority, scheduled_at, id FROM queuert_job WHERE id = '{done}'",
        "stray", False),
    "ready although running": (
        "INSERT INTO queuert_ready SELECT type_name, priority, scheduled_at, id FROM queuert_job "
        "WHERE id = '{running}'", "stray", False),
    "ready with another priority": (MISFILED, "misfiled", False),
    "later with another time": (
        "UPDATE queuert_later SET scheduled_at = scheduled_at + interval '1 day' WHERE id = '{later}'",
        "misfiled", False),
    "later although ready": (
        "INSERT INTO queuert_later SELECT type_name, scheduled_at, id, priority FROM queuert_job WHERE id = '{ready}'",
        "stray", False),
    "running without a job": (
        "INSERT INTO queuert_running (job_id, token, type_name, worker, leased_until, started_at) "
        "VALUES ('{new}', 1, 'task', 'w', now(), now())", "stray", False),
    "running although blocked": (
        "INSERT INTO queuert_running (job_id, token, type_name, worker, leased_until, started_at) "
        "VALUES ('{blocked}', 1, 'task', 'w', now(), now())", "stray", False),
    "running as another type": (
        "UPDATE queuert_running SET type_name = 'other' WHERE job_id = '{running}'", "misfiled", False),
    "counts too many": ("UPDATE queuert_job SET blockers_left = 2 WHERE id = '{blocked}'", "miscounted", False),
    "counts too few": ("UPDATE queuert_job SET blockers_left = 0 WHERE id = '{blocked}'", "miscounted", False),
    "dependents forgotten": ("UPDATE queuert_job SET dependents = 0 WHERE id = '{source}'", "forgotten", False),
    "blockers unread": ("UPDATE queuert_job SET blocker_count = 0 WHERE id = '{blocked}'", "unread", False),
    "listed as blocked": ("UPDATE queuert_job SET resting = 'blocked' WHERE id = '{done}'", "mislabelled", False),
    "key without a chain": ("UPDATE queuert_key SET chain_id = '{new}'", "stray-key", False),
    "ready nowhere": ("DELETE FROM queuert_ready WHERE id = '{ready}'", "not-queued", True),
    "later nowhere": ("DELETE FROM queuert_later WHERE id = '{later}'", "not-queued", True),
    "running nowhere": ("DELETE FROM queuert_running WHERE job_id = '{running}'", "not-queued", True),
    "listed as failed": ("UPDATE queuert_job SET resting = 'failed' WHERE id = '{done}'", "mislabelled", True),
    "not listed": ("UPDATE queuert_job SET resting = NULL WHERE id = '{blocked}'", "mislabelled", True),
    "edge without a job": ("INSERT INTO queuert_blocker VALUES ('{new}', 1, '{done}')", "stray-edge", True),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_found_and_repaired(ward: Ward, name: str) -> None:
    text, code, only_full = BREAKS[name]
    ward.watch(text.format(new=new_id(), **vars(ward)).encode())
    assert violations(ward.watch)
    expected = [] if only_full else [code]
    assert ward.codes() == expected
    # With its own values, a misfiled job is not in the queue.
    assert ward.codes(full=True) in ([code], [code, "not-queued"] if code == "misfiled" else [])
    repaired = ward.doctor(full=True, fix=True)
    assert all(finding.repaired and finding.done for finding in repaired)
    # With a row of running, it is lost when the attempt began. The repair cannot count its end.
    lost = {COUNTED} if name == "running nowhere" else set[str]()
    assert violations(ward.watch).keys() == lost
    assert ward.codes(full=True) == []


NOT_PROVEN = {
    "a chain with another key": ("UPDATE queuert_job SET dedup_key = 'x' WHERE id = '{keyed}'", ["wrong-key"]),
    "a blocker that is not stored": (
        "DELETE FROM queuert_ready WHERE id = '{source}'; DELETE FROM queuert_job WHERE id = '{source}'",
        ["blocker-missing"]),
    "a chain without its beginning": (
        "UPDATE queuert_job SET chain_id = '{new}', chain_index = 1 WHERE id = '{done}'", ["broken-chain"]),
    "a job that leads nowhere": ("UPDATE queuert_job SET continued_to = '{new}' WHERE id = '{done}'", ["broken-chain"]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_what_cannot_be_proven_is_found_and_left_alone(ward: Ward, name: str) -> None:
    text, codes = NOT_PROVEN[name]
    ward.watch(text.format(new=new_id(), **vars(ward)).encode())
    before = ward.watch("SELECT j::text FROM queuert_job AS j ORDER BY id")
    (finding,) = ward.doctor(full=True, fix=True)
    assert ([finding.code], finding.fixable, finding.repaired, finding.done) == (codes, False, False, None)
    assert finding.remedy
    assert ward.watch("SELECT j::text FROM queuert_job AS j ORDER BY id") == before


def test_a_lost_wake_up_is_repaired(ward: Ward) -> None:
    """The chain was completed, and nobody counted down: the job is free after the repair, and can be claimed."""
    ward.watch(f"UPDATE queuert_job SET dependents = 0 WHERE id = '{ward.source}'".encode())
    ward.do(ward.operations.settle([completed(ward.claim("source"))]))
    assert ward.codes() == ["miscounted"]
    ward.watch(f"UPDATE queuert_job SET priority = 1 WHERE id = '{ward.blocked}'".encode())
    (finding,) = ward.doctor(fix=True)
    assert finding.repaired
    assert ward.claim("task").job.id == ward.blocked
    assert ward.doctor(full=True) == ()


def test_dependents_that_are_too_high_are_no_finding(ward: Ward) -> None:
    ward.watch(f"UPDATE queuert_job SET dependents = 99 WHERE id = '{ward.source}'".encode())
    assert ward.doctor(full=True) == ()


@pytest.mark.parametrize("held", ["the in-flight row", "the job"])
def test_a_repair_waits_for_nobody(ward: Ward, held: str) -> None:
    ward.watch(MISFILED.format(ready=ward.ready).encode())
    table = "queuert_ready" if held == "the in-flight row" else "queuert_job"
    with psycopg.connect(ward.url) as other:
        other.execute(f"SELECT FROM {table} WHERE id = '{ward.ready}' FOR UPDATE".encode())
        (finding,) = ward.doctor(fix=True)
        assert not finding.repaired
        assert finding.done is not None
        assert finding.done.startswith("not repaired")
        other.rollback()
    assert [finding.repaired for finding in ward.doctor(fix=True)] == [True]
    assert violations(ward.watch) == {}


def test_a_repair_looks_again(ward: Ward) -> None:
    """What has changed since the look is left alone."""
    ward.watch(MISFILED.format(ready=ward.ready).encode())
    (damage,) = ward.do(ward.operations.examine("ready", None, 10, 1.0)).damages
    ward.watch(f"UPDATE queuert_ready SET priority = 100 WHERE id = '{ward.ready}'".encode())
    assert ward.do(ward.operations.repair_damage(damage)) == "gone"
    assert violations(ward.watch) == {}


def test_a_count_is_repaired_while_a_chain_completes(ward: Ward) -> None:
    """The completion holds its own row and waits for the dependent: both count, in either order."""
    other = ward.create(new_job("source"))
    job = ward.create(new_job(**behind(ward.source, other)))
    ward.watch(f"UPDATE queuert_job SET blockers_left = 5 WHERE id = '{job}'".encode())
    claims = [ward.claim("source"), ward.claim("source")]
    with psycopg.connect(ward.url) as gate:
        gate.execute(f"SELECT FROM queuert_job WHERE id = '{job}' FOR UPDATE".encode())
        completing = threading.Thread(target=lambda: ward.do(ward.operations.settle([completed(claims[0])])))
        completing.start()
        while not ward.watch.others("wait_event_type = 'Lock'"):
            pass
        damage = Damage("miscounted", job, "")
        assert ward.do(ward.operations.repair_damage(damage)) == "busy"
        gate.rollback()
    completing.join()
    assert ward.do(ward.operations.repair_damage(damage)) == "repaired"
    ward.do(ward.operations.settle([completed(claims[1])]))
    assert violations(ward.watch) == {}
    assert ward.doctor(full=True) == ()


def test_the_default_is_bounded_and_full_is_not(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROWS", 10)
    monkeypatch.setattr(doctor, "ROWS_AT_ONCE", 4)
    ward.do(ward.operations.create_jobs([new_job("many") for _ in range(30)]))
    with queuert.connect_sync(ward.url, jobs=[], notify=None) as client:
        some, everything = client.doctor(), client.doctor(full=True)
    assert (some.complete, everything.complete) == (False, True)
    assert some.rows < 30 < everything.rows
    assert "not all" in str(some)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_look_reads_few_pages_beside_many_jobs(ward: Ward, number: int) -> None:
    """Completed jobs cost nothing: pages are counted, not seconds."""

    def pages() -> int:
        ward.watch.flush_statistics()
        (number,) = ward.watch(
            "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)) "
            "FROM pg_statio_user_tables WHERE relname LIKE 'queuert%'"
        )
        return int(number)

    def cost() -> int:
        before = pages()
        assert ward.doctor() == ()
        ward.watch.terminate_others()
        return pages() - before

    few = cost()
    ward.watch(
        "INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, priority, "
        "created_at, scheduled_at, completed_at) SELECT i, 'old', i, 'old', 0, '{}', 'completed', 1, now(), now(), "
        "now() FROM (SELECT gen_random_uuid() AS i FROM generate_series(1, %s)) AS n",
        number,
    )
    ward.watch("ANALYZE queuert_job")
    assert cost() < few + 200
    # A part of a full look is one snapshot. It ends in time, and the next one goes on.
    look = ward.do(ward.operations.examine("jobs", None, 1_000_000, 0.0))
    assert (look.rows, look.damages, look.after is None) == (1, [], False)


# The surroundings


def test_an_old_snapshot_is_found(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "OLD_SNAPSHOT", 0.0)
    with psycopg.connect(ward.url, application_name="a forgotten shell") as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        (finding,) = ward.doctor()
        assert (finding.code, finding.severity) == ("old-snapshot", "warning")
        assert "a forgotten shell" in finding.what
        assert "idle in transaction" in finding.what
    assert ward.doctor() == ()


def test_an_unlogged_table_is_found(ward: Ward) -> None:
    ward.watch("ALTER TABLE queuert_ready SET UNLOGGED")
    assert [(each.code, each.subject) for each in ward.doctor()] == [("unlogged", "queuert_ready")]
    ward.watch("ALTER TABLE queuert_ready SET LOGGED")
    assert ward.doctor() == ()


def test_a_table_without_autovacuum_is_found(ward: Ward) -> None:
    ward.watch("ALTER TABLE queuert_running SET (autovacuum_enabled = false)")
    assert [(each.code, each.subject) for each in ward.doctor()] == [("autovacuum-off", "queuert_running")]


def test_dead_rows_are_found(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "MANY_DEAD", 100)
    monkeypatch.setattr(surroundings, "LATE_VACUUM", 0.0)
    ward.watch("ALTER TABLE queuert_later SET (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0)")
    ward.watch("INSERT INTO queuert_later SELECT 'x', now(), gen_random_uuid(), 1 FROM generate_series(1, 500)")
    ward.watch("DELETE FROM queuert_later WHERE type_name = 'x'")
    ward.watch.flush_statistics()
    assert [(each.code, each.subject) for each in ward.doctor()] == [("dead-rows", "queuert_later")]
    ward.watch("VACUUM queuert_later")
    ward.watch.flush_statistics()
    assert ward.doctor() == ()


def test_a_database_that_cannot_be_written_is_found(ward: Ward) -> None:
    with queuert.connect_sync(
        f"{ward.url}{'&' if '?' in ward.url else '?'}options=-cdefault_transaction_read_only%3Don",
        jobs=[], migrate=False, notify=None,
    ) as client:  # fmt: skip
        (finding,) = client.doctor().findings
    assert (finding.code, finding.severity) == ("read-only", "error")


def test_settings_that_are_off_are_found(own_server: PostgresServer) -> None:
    with queuert.connect_sync(own_server.url, jobs=[], notify=None) as client:
        assert client.doctor().findings == ()
        with psycopg.connect(own_server.url, autocommit=True) as shell:
            shell.execute("ALTER SYSTEM SET autovacuum = off")
            shell.execute("SELECT pg_reload_conf()")
        while not client.doctor().findings:
            pass
        assert [each.code for each in client.doctor().findings] == ["setting-off"]


def test_tables_of_another_version_are_found(ward: Ward) -> None:
    ward.watch("DELETE FROM queuert_version WHERE version = (SELECT max(version) FROM queuert_version)")
    (finding,) = ward.doctor()
    assert (finding.code, finding.severity) == ("schema-old", "error")
    assert "queuert migrate" in finding.remedy


def test_missing_functions_are_found(ward: Ward) -> None:
    ward.watch(f"DROP FUNCTION {PostgresOperations().words['put_right']}".encode())
    (finding,) = ward.doctor()
    assert (finding.code, "functions" in finding.what) == ("schema-old", True)


def test_a_clock_that_differs_is_found(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    with queuert.connect_sync(ward.url, jobs=[], notify=None) as client:
        real = time.time
        for offset, word in ((-60, "ahead of"), (60, "behind")):
            monkeypatch.setattr(time, "time", lambda offset=offset: real() + offset)
            (finding,) = client.doctor().findings
            monkeypatch.undo()
            assert (finding.code, f"s {word} that" in finding.what) == ("clock", True)


class Job(EntryJob[None], name="doctor-job"):
    pass


def test_messages_that_arrive_are_no_finding(ward: Ward) -> None:
    with queuert.connect_sync(ward.url, jobs=[Job]) as client:
        assert client.doctor().findings == ()


async def test_messages_that_arrive_are_no_finding_for_an_async_client(ward: Ward) -> None:
    async with queuert.connect(ward.url, jobs=[Job]) as client:
        assert (await client.doctor()).findings == ()


@needs_pgbouncer
async def test_listening_through_a_pooler_is_found(ward: Ward) -> None:
    """Another client may get the session that LISTEN was sent on. So many listen that messages go elsewhere."""
    url = pgbouncer().through(ward.url)
    with queuert.connect_sync(url, jobs=[Job], prepare=False, migrate=False) as client:
        assert [each.code for each in client.doctor().findings] == ["not-heard"]
    async with queuert.connect(url, jobs=[Job], prepare=False, migrate=False) as client:
        assert [each.code for each in (await client.doctor()).findings] == ["not-heard"]
