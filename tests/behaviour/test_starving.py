"""Handlers that hold all connections: the worker's own upkeep has connections that they cannot take."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Looks, Step, eventually, patiently
from tests.conformance.postgres_harness import database, empty
from tests.support.clients import clients_with, in_soak_over_sqlalchemy

from queuert import Attempt, Handlers, SyncAttempt, Worker

POOL = 10
SLOTS = 20
INSIDE = 12
"""Handlers in complete(): more than the pool has connections."""
LEASE = 2.0

CLIENTS = clients_with(Step, POOL, pool_size=POOL - 4, max_overflow=4)


@pytest.mark.parametrize("made", in_soak_over_sqlalchemy(CLIENTS))
async def test_nobody_loses_a_lease(made: str, caplog: pytest.LogCaptureFixture) -> None:
    """Twelve handlers in complete(), or waiting for it, for three leases; eight beside them. Nothing runs twice."""
    caplog.set_level(logging.WARNING, "queuert.worker")
    empty()
    handlers = Handlers[Any](backoff=SOON)
    runs: Counter[int] = Counter()
    aborted: list[tuple[int, Any]] = []
    go = asyncio.Event()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        number = attempt.job.number
        runs[number] += 1
        try:
            if number < INSIDE:
                async with attempt.complete():
                    await go.wait()
            else:
                await go.wait()
        except BaseException:
            aborted.append((number, attempt.signal.reason))
            raise
        return number

    watch = Watcher(database())
    async with CLIENTS[made](database()) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Step(number=each) for each in range(SLOTS)])
        async with Worker(client, handlers, concurrency=SLOTS, lease=LEASE, poll_interval=0.2, recovery_backoff=SOON):
            looks = Looks()

            def all_have_begun() -> bool:
                looks.note()
                return len(runs) == SLOTS

            await eventually(all_have_begun)
            (first,) = watch("SELECT max(leased_until) FROM queuert_running")
            # The leases of those that hold no lock move on by three leases.
            moved = (
                "SELECT count(*) FROM queuert_running WHERE leased_until > %s::timestamptz + make_interval(secs => %s)"
            )

            def have_moved_on() -> bool:
                looks.note()
                return bool(watch(moved, first, LEASE * 3)[0] >= SLOTS - INSIDE)

            await eventually(have_moved_on)
            kept_up = looks.were_within(LEASE / 2)
            go.set()
            outputs = [await client.wait(chain, timeout=PATIENCE) for chain in chains]
    watch.close()
    assert outputs == list(range(SLOTS))
    if kept_up:
        assert aborted == []
        assert set(runs.values()) == {1}
    set_aside = 1 if "sqlalchemy" in made else 3
    assert f"A pool of {SLOTS + set_aside} connections would be enough" in caplog.text


async def test_a_pool_that_is_large_enough_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "queuert.worker")
    empty()
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        return attempt.job.number

    async with CLIENTS["psycopg"](database()) as client, Worker(client, handlers, concurrency=POOL - 3):
        assert await client.wait(await client.submit(Step(number=3)), timeout=PATIENCE) == 3
    assert "would do" not in caplog.text


@pytest.mark.drivers
async def test_a_read_inside_of_a_phase(setting: Setting) -> None:
    """It uses the phase's transaction: it needs no other connection, and sees what the phase has written."""
    handlers = Handlers[Any](backoff=SOON)
    everybody = asyncio.Barrier(2)

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        async with attempt.complete() as tx:
            if setting.state == "postgres":
                await patiently(everybody.wait())  # each has a connection, and there are no others
            started = await attempt.client.start(tx, Step(number=100).set(after=3600))
            assert await attempt.client.get_chain(started) is not None
            assert await attempt.client.get_job(attempt.job_id) is not None
        # The transaction is open until the handler has returned.
        assert await attempt.client.get_chain(started) is not None
        return attempt.job.number

    options = {"pool_size": 5} if setting.state == "postgres" else {}
    async with setting.connect([Step], **options) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Step(number=each) for each in range(2)])
        async with Worker(client, handlers, concurrency=2, poll_interval=setting.poll_interval):
            for number, chain in enumerate(chains):
                assert await client.wait(chain, timeout=PATIENCE) == number


async def test_a_read_inside_of_a_phase_of_a_plain_handler(setting: Setting) -> None:
    handlers = Handlers[Any](backoff=SOON)

    @handlers.handles(Step)
    def step(attempt: SyncAttempt[Step, Any]) -> int:
        with attempt.complete() as tx:
            started = attempt.client.start(tx, Step(number=100).set(after=3600))
            assert attempt.client.get_chain(started) is not None
        return attempt.job.number

    async with setting.connect([Step]) as client:
        chain = await client.submit(Step(number=1))
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            assert await client.wait(chain, timeout=PATIENCE) == 1
