"""What operations cost beside years of other work: completed jobs, types, keys and schedules, all together.

Counted in pages. `QUEUERT_GROWTH_JOBS` is the number of completed jobs of the long test, a million if it is not set.
There are a tenth as many keys, a hundredth as many schedules, and up to a thousand types.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.test_claim_cost import OPERATIONS, connection, cost, fill, measure, ready_jobs

from queuert_conformance.state.build import key, new_job

JOBS = int(os.environ.get("QUEUERT_GROWTH_JOBS", "1000000"))

__all__ = ["connection"]  # a fixture

DESCENTS = {"start": 60, "start, with a key": 12, "due_schedules": 2}
"""How often these go down an index, at most. Each of ten new jobs is looked up, and entered into four of them. A page
may be split."""


def grow(connection: psycopg.Connection[Any], jobs: int) -> None:
    types = min(1000, jobs // 100)
    fill(connection, jobs, status="'completed'", type_name=f"'type ' || generate_series % {types}")
    for statement in (
        f"INSERT INTO queuert_key (chain_type, key, chain_id) SELECT 'type ' || number % {types}, 'key ' || number, "
        f"gen_random_uuid() FROM generate_series(1, {jobs // 10}) AS number",
        "INSERT INTO queuert_schedule (name, incarnation, version, next_at, due_at, definition, state) "
        "SELECT 'schedule ' || number, number, 1, due, due, '{}', '{}' FROM generate_series(1, "
        f"{jobs // 100}) AS number, LATERAL (SELECT now() + make_interval(mins => number) AS due) AS when_due",
    ):
        connection.execute(statement.encode())


def measured(connection: psycopg.Connection[Any]) -> dict[str, int]:
    found = measure(connection)
    found["start"] = cost(connection, OPERATIONS.create_jobs([new_job("a") for _ in range(10)]))
    found["start, with a key"] = cost(connection, OPERATIONS.create_jobs([new_job("a", dedup=key("one"))]))
    found["due_schedules"] = cost(connection, OPERATIONS.due_schedules(10, []))
    return found


def check(connection: psycopg.Connection[Any], jobs: int) -> None:
    """The tables begin with a hundredth of it, so that indexes grow by one level."""
    grow(connection, jobs // 100)
    ready_jobs(connection)
    before = measured(connection)
    connection.execute("TRUNCATE queuert_schedule, queuert_key")
    grow(connection, jobs)
    after = measured(connection)
    allowed = {name: max(1.3 * pages, pages + DESCENTS.get(name, 0)) for name, pages in before.items()}
    assert {name: after[name] for name in after if after[name] > allowed[name]} == {}, before


def test_twenty_thousand(connection: psycopg.Connection[Any]) -> None:
    check(connection, 20_000)


@pytest.mark.soak
def test_a_hundred_thousand(connection: psycopg.Connection[Any]) -> None:
    check(connection, 100_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_years_of_work(connection: psycopg.Connection[Any]) -> None:
    check(connection, JOBS)
