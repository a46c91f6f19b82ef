"""`queuert doctor` as a process, on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.cli.running import queuert
from tests.conformance.postgres_harness import database, empty

from queuert import EntryJob, connect_sync


class Charge(EntryJob[None], name="charge-card"):
    pass


Place = tuple[str, Callable[[str], None]]
"""A URL, and how to run SQL there."""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        file = tmp_path / "jobs.db"

        def run(text: str) -> None:
            with closing(sqlite3.connect(file, isolation_level=None)) as connection:
                connection.execute(text)

        return f"sqlite:///{file}", run
    empty()

    def run_there(text: str) -> None:
        with psycopg.connect(database(), autocommit=True) as connection:
            connection.execute(text.encode())

    return database(), run_there


def test_finding_and_repairing(place: Place) -> None:
    url, run = place
    with connect_sync(url, jobs=[Charge]) as client, client.transaction() as tx:
        step = client.start(tx, Charge())
    healthy = queuert("doctor", "--url", url)
    assert (healthy.code, healthy.err) == (0, "")
    assert healthy.out.startswith("no findings, ")
    nowhere = "UPDATE queuert_job SET ready = NULL" if url.startswith("sqlite") else "DELETE FROM queuert_ready"
    run(nowhere)
    found = queuert("doctor", "--full", "--url", url)
    assert (found.code, found.err) == (1, "")
    assert found.lines[:2] == [
        f"error not-queued: job {step.id}: pending, but in no queue. No worker finds it.",
        "  → run the doctor with fix=True (queuert doctor --fix): it puts it into the queue",
    ]
    assert found.lines[2].startswith("1 finding, ")
    (seen,) = queuert("doctor", "--full", "--json", QUEUERT_URL=url).objects
    assert (seen["code"], seen["severity"], seen["subject"], seen["fixable"], seen["repaired"]) == (
        "not-queued", "error", step.id, True, False,
    )  # fmt: skip
    repaired = queuert("doctor", "--full", "--fix", "--url", url)
    assert repaired.code == 0
    assert repaired.lines[1] == "  → repaired: put it into the queue"
    assert queuert("doctor", "--full", "--url", url).code == 0


def test_a_database_without_tables(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    ended = queuert("doctor", "--url", f"sqlite:///{tmp_path / 'empty.db'}")
    assert ended.code == 1
    assert "queuert migrate" in ended.out


def test_no_file(tmp_path: Path) -> None:
    ended = queuert("doctor", "--url", f"sqlite:///{tmp_path / 'none.db'}")
    assert (ended.code, ended.out) == (3, "")
    assert not (tmp_path / "none.db").exists()
