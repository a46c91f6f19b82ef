"""The doctor on SQLite: a file is broken by hand, in each way; it finds that, and repairs what can be proven."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.patient import Patient

import queuert
from queuert import Finding
from queuert.adapters.sqlite import sync_sqlite_state
from queuert.features.doctor import examining as doctor
from queuert_conformance.state.build import completed, new_id, new_job, queue, request


class Ward(Patient):
    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(sync_sqlite_state(path))

    def sql(self, text: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text.format(new=new_id(), **vars(self))).fetchall()

    def doctor(self, **options: Any) -> tuple[Finding, ...]:
        with queuert.connect_sync(f"sqlite:///{self.path}", jobs=[], migrate=False) as client:
            return client.doctor(**options).findings

    def codes(self, **options: Any) -> list[str]:
        return [finding.code for finding in self.doctor(**options)]


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path / "jobs.db")


def test_a_healthy_file_has_no_findings(ward: Ward) -> None:
    assert ward.doctor() == ()
    assert ward.doctor(full=True, fix=True) == ()


BREAKS: dict[str, tuple[str, str, bool]] = {
    "ready although ended": ("UPDATE queuert_job SET ready = 1 WHERE id = '{done}'", "stray", False),
    "ready although blocked": ("UPDATE queuert_job SET ready = 1 WHERE id = '{blocked}'", "stray", False),
    "later although ended": ("UPDATE queuert_job SET ready = 0 WHERE id = '{done}'", "stray", False),
    "ready although running": ("UPDATE queuert_job SET ready = 1 WHERE id = '{running}'", "stray", False),
    "ready nowhere": ("UPDATE queuert_job SET ready = NULL WHERE id = '{ready}'", "not-queued", False),
    "later nowhere": ("UPDATE queuert_job SET ready = NULL WHERE id = '{later}'", "not-queued", False),
    "claimed although pending": ("UPDATE queuert_job SET token = 7 WHERE id = '{ready}'", "stray", False),
    "claimed although ended": ("UPDATE queuert_job SET token = 7 WHERE id = '{done}'", "stray", True),
    "a lease without an end": ("UPDATE queuert_job SET leased_until = NULL WHERE id = '{running}'", "unleased", False),
    "a claim without a token": ("UPDATE queuert_job SET token = NULL WHERE id = '{running}'", "unleased", False),
    "counts too many": ("UPDATE queuert_job SET blockers_left = 2 WHERE id = '{blocked}'", "miscounted", False),
    "counts too few": ("UPDATE queuert_job SET blockers_left = 0 WHERE id = '{blocked}'", "miscounted", False),
    "key without a chain": ("UPDATE queuert_dedup SET chain_id = '{new}'", "stray-key", False),
    "edge without a job": (
        "INSERT INTO queuert_blocker (job_id, position, chain_id) VALUES ('{new}', 1, '{source}')",
        "stray-edge",
        True,
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_found_and_repaired(ward: Ward, name: str) -> None:
    text, code, only_full = BREAKS[name]
    before = ward.sql("SELECT id, status, ready, blockers_left FROM queuert_job ORDER BY id")
    ward.sql(text)
    assert ward.codes() == ([] if only_full else [code])
    assert ward.codes(full=True) == [code]
    (finding,) = ward.doctor(full=True, fix=True)
    assert finding.repaired
    assert ward.codes(full=True) == []
    assert ward.sql("SELECT id, status, ready, blockers_left FROM queuert_job ORDER BY id") == before


NOT_PROVEN = {
    "a chain with another key": ("UPDATE queuert_job SET dedup_key = 'x' WHERE id = '{keyed}'", ["wrong-key"]),
    "a blocker that is not stored": ("DELETE FROM queuert_job WHERE id = '{source}'", ["blocker-missing"]),
    "a chain without its beginning": (
        "UPDATE queuert_job SET chain_id = '{new}', chain_index = 1 WHERE id = '{done}'",
        ["broken-chain"],
    ),
    "a job that leads nowhere": ("UPDATE queuert_job SET continued_to = '{new}' WHERE id = '{done}'", ["broken-chain"]),
}


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_what_cannot_be_proven_is_found_and_left_alone(ward: Ward, name: str) -> None:
    text, codes = NOT_PROVEN[name]
    ward.sql(text)
    before = ward.sql("SELECT * FROM queuert_job ORDER BY id")
    (finding,) = ward.doctor(full=True, fix=True)
    assert ([finding.code], finding.fixable, finding.repaired) == (codes, False, False)
    assert ward.sql("SELECT * FROM queuert_job ORDER BY id") == before


def test_a_lost_wake_up_is_repaired(ward: Ward) -> None:
    ward.do(ward.operations.settle([completed(ward.claim("source"))]))
    ward.sql("UPDATE queuert_job SET status = 'blocked', blockers_left = 1, ready = NULL WHERE id = '{blocked}'")
    assert ward.codes() == ["miscounted"]
    assert [finding.repaired for finding in ward.doctor(fix=True)] == [True]
    claimed = ward.do(ward.operations.claim(request(queue("task"), limit=9))).jobs
    assert ward.blocked in [each.job.id for each in claimed]


def test_a_claim_without_an_end_is_taken_back_later(ward: Ward) -> None:
    """A worker that is still there renews it before."""
    ward.sql("UPDATE queuert_job SET leased_until = NULL WHERE id = '{running}'")
    ward.doctor(fix=True)
    assert ward.do(ward.operations.reap(["held"], [], 10, b"{}")) == []
    ward.sql("UPDATE queuert_job SET leased_until = leased_until - 61000000 WHERE id = '{running}'")
    (row,) = ward.do(ward.operations.reap(["held"], [], 10, b"{}"))
    assert (row.id, row.status) == (ward.running, "pending")


def test_the_default_is_bounded_and_full_is_not(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROWS", 10)
    monkeypatch.setattr(doctor, "ROWS_AT_ONCE", 4)
    ward.do(ward.operations.create_jobs([new_job("many") for _ in range(30)]))
    with queuert.connect_sync(f"sqlite:///{ward.path}", jobs=[]) as client:
        some, everything = client.doctor(), client.doctor(full=True)
    assert (some.complete, everything.complete) == (False, True)
    assert everything.rows > some.rows


def test_an_index_that_differs_from_its_table_is_found_by_full(ward: Ward) -> None:
    ward.state.close()
    with closing(sqlite3.connect(ward.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'chain_index = 0', 'chain_index = 5') "
            "WHERE name = 'queuert_job_first'"
        )
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute(f"PRAGMA schema_version = {version + 1}")
    assert ward.doctor() == ()
    findings = ward.doctor(full=True)
    assert {(finding.code, finding.severity) for finding in findings} == {("corrupt", "error")}
    assert "queuert_job_first" in findings[0].what


def test_the_journal_mode_is_read(ward: Ward) -> None:
    assert ward.do(ward.operations.surroundings(full=False)).journal_mode == "wal"


def test_tables_of_another_version_are_found(ward: Ward) -> None:
    ward.sql("DELETE FROM queuert_version WHERE version = (SELECT max(version) FROM queuert_version)")
    (finding,) = ward.doctor()
    assert (finding.code, finding.severity) == ("schema-old", "error")
