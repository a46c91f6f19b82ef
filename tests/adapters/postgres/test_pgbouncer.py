"""Through PgBouncer in transaction mode: the state suite with each driver, without prepared statements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.driver_tests import add_soak_tests, add_transaction_tests
from tests.conformance.postgres_harness import PostgresHarness, _poison_async, _poison_sync, database, empty
from tests.support.pgbouncer import needs_pgbouncer, pgbouncer

from queuert.adapters.postgres.adapter import asyncpg_state, psycopg_state, sync_psycopg_state
from queuert.ports.provider import run_async
from queuert_conformance import StateHarness
from queuert_conformance.state.build import completed, new_job, queue, request
from queuert_conformance.state.driver import AnyStateAdapter

pytestmark = needs_pgbouncer


def bounced(state: Callable[..., AnyStateAdapter]) -> Callable[[str], AnyStateAdapter]:
    return lambda url: state(pgbouncer().through(url), prepare=False)


def psycopg_harness() -> StateHarness:
    return PostgresHarness(bounced(psycopg_state), _poison_async)


def sync_psycopg_harness() -> StateHarness:
    return PostgresHarness(bounced(sync_psycopg_state), _poison_sync)


def asyncpg_harness() -> StateHarness:
    return PostgresHarness(bounced(asyncpg_state), _poison_async)


add_transaction_tests(globals(), psycopg=psycopg_harness)
# Pooling is the server's affair: one driver in `make test`, all three in `make soak`.
add_soak_tests(globals(), sync_psycopg=sync_psycopg_harness, asyncpg=asyncpg_harness)


@pytest.mark.parametrize("state", [psycopg_state, asyncpg_state])
async def test_many_clients_share_few_connections(state: Callable[..., Any]) -> None:
    """Forty at once over thirty connections: what one of them sets on a connection must not reach the next."""
    empty()
    adapters = [state(pgbouncer().through(database()), prepare=False) for _ in range(4)]
    operations = adapters[0].operations
    jobs = [new_job("a") for _ in range(400)]
    await run_async(adapters[0].provider, None, operations.create_jobs(jobs))
    ended: list[str] = []

    async def work(provider: Any) -> None:
        wanted = request(queue("a", max_concurrency=50), limit=5)
        while claimed := (await run_async(provider, None, operations.claim(wanted))).jobs:
            settled = await run_async(provider, None, operations.settle([completed(each) for each in claimed]))
            assert all(settled.applied)
            ended.extend(each.job.id for each in claimed)

    await asyncio.gather(*(work(adapter.provider) for adapter in adapters for _ in range(10)))
    assert sorted(ended) == [job.id for job in jobs]
    for adapter in adapters:
        await adapter.close()
