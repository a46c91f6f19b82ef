"""What operations cost on SQLite: statements, writes, and the rows that a page walks over."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.jobs import JOBS, After, Greet, Nothing

import queuert
from queuert import Client, Dedup, EntryJob
from queuert.base.statuses import STATUSES
from queuert.client.sync_client import SyncClient

MANY = 2_000


def make_type(number: int) -> type[EntryJob[None]]:
    class Numbered(EntryJob[None], name=f"type-{number}"):
        value: int

    return Numbered


TYPES: list[Any] = [make_type(number) for number in range(20)]


def connect(path: Path) -> SyncClient[sqlite3.Connection]:
    return queuert.connect_sync(f"sqlite:///{path}", jobs=[*JOBS, *TYPES])


@pytest.fixture
def client(tmp_path: Path) -> Generator[SyncClient[sqlite3.Connection]]:
    with connect(tmp_path / "jobs.db") as client:
        yield client


@contextmanager
def traced(connection: sqlite3.Connection) -> Generator[list[str]]:
    """The statements that run on a connection, each by its first words."""
    found: list[str] = []
    connection.set_trace_callback(lambda statement: found.append(" ".join(statement.split()[:6])))
    try:
        yield found
    finally:
        connection.set_trace_callback(None)


def real(statements: list[str]) -> list[str]:
    """Without what only marks a place: savepoints, begin and commit do no work of their own."""
    marks = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "--")
    return [each for each in statements if not each.upper().startswith(marks)]


def test_two_thousand_jobs_of_twenty_types_are_one_statement(client: SyncClient[sqlite3.Connection]) -> None:
    jobs = [TYPES[number % 20](value=number) for number in range(MANY)]
    with client.transaction() as tx:
        with traced(tx.connection) as statements:
            chains = client.start_many(tx, jobs)
        assert tx.connection.execute("SELECT count(*) FROM queuert_job").fetchone() == (MANY,)
    assert len(chains) == MANY
    assert len(real(statements)) == 1, statements
    assert len(statements) <= 3, statements


async def test_the_async_client_needs_no_more(tmp_path: Path) -> None:
    jobs = [TYPES[number % 20](value=number) for number in range(MANY)]
    async with queuert.connect(f"sqlite:///{tmp_path / 'jobs.db'}", jobs=TYPES) as client:
        async with client.transaction() as tx:
            with traced(tx.connection) as statements:
                await client.start_many(tx, jobs)
        assert len(statements) <= 3, statements
        assert isinstance(client, Client)


def test_keys_and_blockers_of_two_thousand_jobs_cost_a_statement_each(client: SyncClient[sqlite3.Connection]) -> None:
    with client.transaction() as tx:
        greeting = client.start(tx, Greet())
        with traced(tx.connection) as with_keys:
            client.start_many(tx, [Nothing().set(dedup=str(number)) for number in range(MANY)])
        with traced(tx.connection) as with_blockers:
            client.start_many(tx, [After(greeting=greeting) for _ in range(MANY)])
        with traced(tx.connection) as with_both:
            client.start_many(tx, [After(greeting=greeting).set(dedup=str(number)) for number in range(MANY)])
    assert len(real(with_keys)) <= 3, with_keys
    assert len(real(with_blockers)) <= 3, with_blockers
    # Look, store, note the edges, hold the keys: whatever the number of jobs.
    assert len(real(with_both)) <= 4, with_both


def test_a_start_that_loses_writes_nothing(client: SyncClient[sqlite3.Connection]) -> None:
    once = Dedup("k", scope="any")
    with client.transaction() as tx:
        client.start(tx, Greet(), dedup=once)
    with client.transaction() as tx:
        before = tx.connection.total_changes
        with traced(tx.connection) as statements:
            chain = client.start(tx, Greet(), dedup=once)
            client.start_many(tx, [Greet().set(dedup=once) for _ in range(100)])
        assert chain.deduplicated
        assert tx.connection.total_changes == before
    assert [each for each in real(statements) if each.split()[0] not in ("SELECT", "WITH")] == []


def test_reading_writes_nothing_and_takes_one_statement(client: SyncClient[sqlite3.Connection]) -> None:
    with client.transaction() as tx:
        chain = client.start(tx, Greet())
    reads: list[Callable[[Any], Any]] = [
        lambda tx: client.get_chain(chain, tx=tx),
        lambda tx: client.get_job(chain.id, tx=tx),
        lambda tx: client.list_jobs(tx=tx),
        lambda tx: client.list_chains(tx=tx),
        lambda tx: client.list_chain_jobs(chain, tx=tx),
        lambda tx: client.list_blocked_jobs(chain, tx=tx),
    ]
    for read in reads:
        with client.transaction() as tx:
            before = tx.connection.total_changes
            with traced(tx.connection) as statements:
                assert read(tx) is not None
            assert tx.connection.total_changes == before
            assert len(statements) == 1, statements


# Pages

Listing = Callable[[SyncClient[Any], Any, Any], Any]


def jobs_by(*job_type: str, **filters: Any) -> Listing:
    return lambda client, tx, page: cast("Any", client).list_jobs(*job_type, tx=tx, **filters, **page)


def chains_by(*job_type: str, **filters: Any) -> Listing:
    return lambda client, tx, page: cast("Any", client).list_chains(*job_type, tx=tx, **filters, **page)


LISTINGS: dict[str, Listing] = {
    "jobs": jobs_by(),
    "jobs by type": jobs_by("type-3"),
    "chains": chains_by(),
    "chains by type": chains_by("type-3"),
}
for status in STATUSES:
    if status != "completed":
        LISTINGS[f"{status} jobs"] = jobs_by(status=status)
        LISTINGS[f"{status} chains"] = chains_by(status=status)
    if status not in ("completed", "pending", "running"):
        LISTINGS[f"{status} jobs by type"] = jobs_by("type-3", status=status)
        LISTINGS[f"{status} chains by type"] = chains_by("type-3", status=status)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", LISTINGS)
def test_pages_walk_along_an_index(client: SyncClient[sqlite3.Connection], name: str, order: str) -> None:
    texts: list[str] = []
    with client.transaction() as tx:
        client.start_many(tx, [TYPES[number % 20](value=number) for number in range(100)])
        tx.connection.set_trace_callback(texts.append)
        page = LISTINGS[name](client, tx, {"order": order, "limit": 2})
        if page.next_cursor is not None:
            LISTINGS[name](client, tx, {"order": order, "limit": 2, "cursor": page.next_cursor})
        tx.connection.set_trace_callback(None)
        assert texts
        for text in texts:
            plan = [row[3] for row in tx.connection.execute(f"EXPLAIN QUERY PLAN {text}")]
            assert not [step for step in plan if "TEMP B-TREE" in step], plan
            steps = [step for step in plan if step.startswith(("SCAN", "SEARCH"))]
            inner = ("SCAN walk", "SCAN scanned", "SCAN page", "SCAN (subquery")
            tables = [step for step in steps if not step.startswith(inner)]
            assert tables
            assert not [step for step in tables if "USING" not in step and "CONSTANT" not in step], plan


def fill(path: Path, rows: int) -> None:
    """Finished chains of all types, and in between some in every other status, spread evenly."""
    others = [status for status in STATUSES if status not in ("completed", "pending", "running")]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(queuert_job)")]

        def row(number: int) -> tuple[Any, ...]:
            job_id = f"{number:012x}-0000-7000-8000-000000000000"
            status = "completed"
            if number % 100 < len(others):
                status = others[number % 100]
            elif number % 100 == 50:
                status = "pending"
            elif number % 100 == 51:
                status = "running"
            values: dict[str, Any] = dict.fromkeys(columns)
            values |= {
                "id": job_id,
                "type_name": f"type-{number // 100 % 20}",
                "chain_id": job_id,
                "chain_type": f"type-{number // 100 % 20}",
                "chain_index": 0,
                "status": status,
                "priority": 100,
                "created_at": number,
                "scheduled_at": number,
                "attempt": 0,
                "blockers_left": int(status == "blocked"),
                "input": '{"value": 1}',
                "output": "null" if status == "completed" else None,
            }
            if "ready" in values and status == "pending":
                values["ready"] = 1
            if status == "running":
                values |= {"token": number, "leased_by": "w", "leased_until": number}
            return tuple(values.values())

        marks = ", ".join("?" * len(columns))
        names = ", ".join(columns)
        connection.executemany(f"INSERT INTO queuert_job ({names}) VALUES ({marks})", map(row, range(rows)))
        connection.commit()


def steps(client: SyncClient[sqlite3.Connection], name: str, order: str) -> int:
    """How much SQLite's virtual machine does for the first page of a listing and for one further on, in tens."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    with client.transaction() as tx:
        ahead = LISTINGS[name](client, tx, {"order": order, "limit": 100})
        assert len(ahead.items) == 100, name
        tx.connection.set_progress_handler(tick, 10)
        for cursor in (None, ahead.next_cursor):
            page = LISTINGS[name](client, tx, {"order": order, "limit": 50, "cursor": cursor})
            assert len(page.items) == 50
        tx.connection.set_progress_handler(None, 0)
    return count


Costs = dict[tuple[str, str], int]


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Costs, Costs]:
    """What pages cost among 400,000 jobs, and among a million."""
    directory = tmp_path_factory.mktemp("cost")
    found: list[Costs] = []
    for rows in (400_000, 1_000_000):
        path = directory / f"{rows}.db"
        with connect(path) as client:
            fill(path, rows)
            found.append({(name, order): steps(client, name, order) for name in LISTINGS for order in ("asc", "desc")})
        path.unlink()
    return found[0], found[1]


@pytest.mark.soak
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", LISTINGS)
def test_a_page_costs_the_same_at_a_million_jobs(costs: tuple[Costs, Costs], name: str, order: str) -> None:
    small, large = (each[name, order] for each in costs)
    assert large <= small * 1.2 + 10
    # And not by being slow on both: some hundred instructions for each row of the two pages, at the most.
    assert large * 10 < 2 * 50 * 1000
