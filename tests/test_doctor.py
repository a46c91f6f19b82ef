"""Findings from facts, without a database: surroundings, workers, caps, and how a diagnosis reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuert import Diagnosis, Finding
from queuert.features.doctor.surroundings import around, of_channel, of_clock, of_workers
from queuert.records.circumstances import RunningGroup
from queuert.records.examination import OldSnapshot, Surroundings, TableState
from queuert.records.workers import WorkerAbout, WorkerQueue, WorkerRow, WorkerState, WorkerType

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
BEFORE, SINCE = NOW - timedelta(hours=1), NOW - timedelta(minutes=1)


def worker(name: str = "one", *, cap: int | None = 2, begun: datetime = BEFORE, **fields: Any) -> WorkerRow:
    queues = (WorkerQueue("mail", (WorkerType("mail"),), max_concurrency=cap),)
    state: WorkerState = fields.pop("state", "alive")
    about = WorkerAbout(queues=queues, version=fields.pop("version", "1.0"), **fields)
    return WorkerRow(name, begun, NOW, about=about, state=state)


def running(number: int, *, by: str = "one", since: datetime = SINCE, queue: str | None = "mail") -> Surroundings:
    return Surroundings(running=(RunningGroup("mail", by, number, "id", since, queue),))


@pytest.mark.parametrize(
    ("facts", "workers", "codes"),
    [
        (running(2), [worker()], []),
        (running(3), [worker()], ["cap-exceeded"]),
        (running(3), [worker(cap=None)], []),
        (running(3), [worker(), worker("two", cap=9)], []),
        (running(3, since=BEFORE - timedelta(minutes=1)), [worker()], []),
        (running(3), [worker(), worker("two", begun=NOW)], []),
        (running(3, by="gone"), [worker()], []),
        (running(3, queue="other"), [worker()], []),
        (running(3, queue=None), [worker()], []),
        (running(3, queue="other"), [worker(cap=None, cluster_cap=2)], ["cap-exceeded"]),
        (running(3), [worker(cap=None, cluster_cap=2), worker("two", cap=None)], []),
        (running(3), [], []),
    ],
)
def test_a_cap_is_exceeded_only_if_no_cap_was_lowered(
    facts: Surroundings, workers: list[WorkerRow], codes: list[str]
) -> None:
    assert [finding.code for finding in of_workers(facts, workers)] == codes


def test_workers_of_different_versions() -> None:
    one, two, gone = worker(), worker("two", version="2.0"), worker("three", version="0.9", state="dead")
    assert list(of_workers(Surroundings(), [one, worker("two"), gone])) == []
    (finding,) = of_workers(Surroundings(), [one, two, gone])
    assert (finding.code, finding.severity) == ("versions", "warning")
    assert "1.0, 2.0" in finding.what
    (finding,) = of_workers(Surroundings(), [one, WorkerRow("old", BEFORE, NOW, state="alive")])
    assert "an older version" in finding.what


READY = TableState("queuert_ready", 10, 10, 5000, 10, unlogged=False, autovacuum=True)


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        (Surroundings(), []),
        (Surroundings(schema_version=3, known_version=4), ["schema-old"]),
        (Surroundings(schema_version=5, known_version=4), []),
        (Surroundings(functions_installed=False), ["schema-old"]),
        (Surroundings(read_only="it is a replica"), ["read-only"]),
        (Surroundings(settings_off=("track_counts",)), ["setting-off"]),
        (Surroundings(snapshot=OldSnapshot("process 1", "idle", 200)), []),
        (Surroundings(snapshot=OldSnapshot("process 1", "idle", 400)), ["old-snapshot"]),
        (Surroundings(journal_mode="wal"), []),
        (Surroundings(journal_mode="delete"), ["journal-mode"]),
        (Surroundings(corrupt=("row 1 missing from index x",)), ["corrupt"]),
        (Surroundings(tables=(READY,)), []),
        (Surroundings(tables=(TableState("t", 10, 900_000, 5000, 60, False, True),)), []),
        (Surroundings(tables=(TableState("t", 10, 900_000, 5000, 6000, False, True),)), ["dead-rows"]),
        (Surroundings(tables=(TableState("t", 10, 900_000, 500_000, 6000, False, True),)), []),
        (Surroundings(tables=(TableState("t", 10, 0, 5000, 0, True, False),)), ["unlogged", "autovacuum-off"]),
    ],
)
def test_the_surroundings(facts: Surroundings, codes: list[str]) -> None:
    findings = list(around(facts))
    assert [finding.code for finding in findings] == codes
    assert all(finding.what and finding.remedy for finding in findings)


@pytest.mark.parametrize(("offset", "codes"), [(0.0, []), (1.5, []), (-1.5, []), (3.0, ["clock"]), (-3.0, ["clock"])])
def test_the_time_of_the_round_trip_is_no_difference_of_clocks(offset: float, codes: list[str]) -> None:
    facts = Surroundings(server_clock=NOW + timedelta(seconds=offset))
    assert [each.code for each in of_clock(facts, NOW.timestamp(), NOW.timestamp())] == codes
    assert list(of_clock(facts, NOW.timestamp() - 10, NOW.timestamp() + 10)) == []
    assert list(of_clock(Surroundings(), 0, 0)) == []


def test_a_channel_is_a_finding_only_if_it_does_not_work() -> None:
    assert [len(list(of_channel(heard))) for heard in (None, True, False)] == [0, 0, 1]


def test_how_a_diagnosis_reads() -> None:
    finding = Finding("stray", "error", "job 1 is wrong.", "run it with fix=True", fixable=True)
    healthy = Diagnosis((), 7, complete=True, full=False)
    assert (str(healthy), healthy.healthy) == ("no findings, 7 rows compared (jobs that have not ended)", True)
    ill = Diagnosis((finding,), 7, complete=False, full=True)
    assert not ill.healthy
    assert str(ill) == (
        "error: job 1 is wrong. → run it with fix=True\n1 finding, 7 rows compared (all jobs, not all of them)"
    )
    cured = Diagnosis((replace(finding, done="repaired: removed", repaired=True),), 7, complete=True, full=True)
    assert cured.healthy
    assert "→ repaired: removed" in str(cured)
