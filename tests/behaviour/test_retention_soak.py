"""Insert, drain and prune for minutes, while workers are killed and a snapshot is held.

Nothing that is needed goes, nothing that is due stays, and the tables stop growing.

QUEUERT_RETENTION_SECONDS and QUEUERT_RETENTION_RATE change how long, and how many jobs in a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.scenes import violations
from tests.behaviour.children import Child, child
from tests.behaviour.programs.pruning_worker import KEPT, Event, Stuck
from tests.support.postgres import server, template

import queuert
from queuert import Chain, Client, Keep
from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.ports.provider import run
from queuert.records.retention import policy_of

logger = logging.getLogger(__name__)

SECONDS = float(os.environ.get("QUEUERT_RETENTION_SECONDS", "600"))
RATE = int(os.environ.get("QUEUERT_RETENTION_RATE", "5000"))
STUCK_FOR = min(15.0, SECONDS / 8)
VACUUM_EVERY = SECONDS / 40
"""As autovacuum does with `autovacuum_naptime = 15s`. A page of an index is used again after the second or third of
them, so with the default, a minute, the size is still growing after the first one."""
EARLY = max(SECONDS / 10, 45.0)
"""By then, as much goes as comes."""
SNAPSHOT, SNAPSHOT_ENDS = SECONDS / 3, SECONDS / 3 + SECONDS / 30
RECOVERED = SNAPSHOT_ENDS + SECONDS / 5
"""Meanwhile, VACUUM could not free what was deleted: the size that counts is from before, and from after that."""
WORKERS = 3

SIZE = """
    SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c
    WHERE c.relname LIKE 'queuert\\_%' AND c.relkind = 'r'
"""
DUE = f"""
    SELECT count(*) FROM queuert_job AS j WHERE j.status NOT IN ('pending', 'blocked')
        AND j.completed_at < now() - interval '{2 * KEPT} seconds'
        AND NOT EXISTS (SELECT FROM queuert_blocker AS b WHERE b.chain_id = j.id)
"""


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 300)
async def test_minutes_of_insert_drain_and_prune() -> None:
    with server().fresh(template=template()) as url:
        _store_policy(url)
        watch = Watcher(url)
        try:
            await _minutes(url, watch)
            assert violations(watch) == {}
        finally:
            watch.close()


async def _minutes(url: str, watch: Watcher) -> None:
    sizes: list[tuple[float, int]] = []
    stuck: list[tuple[float, Chain[Stuck]]] = []
    lost: list[str] = []
    async with AsyncExitStack() as exits, queuert.connect(url, jobs=[Event, Stuck]) as client:
        workers = [await _worker(exits, url) for _ in range(WORKERS)]
        began, number, killed, vacuumed, snapshot = time.monotonic(), 0, 0, 0, None
        while (passed := time.monotonic() - began) < SECONDS:
            for _ in range(min(20, round(RATE * passed - number) // 100)):  # a slow machine does not catch up
                chains = await client.submit_many([Event(number=number + each) for each in range(1, 101)])
                number += 100
                dependent = await client.submit(Stuck(event=chains[50]))
                stuck.append((time.monotonic(), dependent))
            lost += await _free_old_ones(client, stuck)
            if passed > (vacuumed + 1) * VACUUM_EVERY:
                vacuumed += 1
                if passed > EARLY:
                    sizes += [(passed, size) for size in watch(SIZE)]  # the tables are largest now
                await asyncio.to_thread(_vacuum, url)
            if passed > (killed + 1) * SECONDS / 8:
                killed += 1
                victim = random.randrange(WORKERS)
                workers[victim].send(signal.SIGKILL)
                workers[victim] = await _worker(exits, url)
            if snapshot is None and passed > SNAPSHOT:
                snapshot = psycopg.connect(url)
                snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute("SELECT FROM queuert_job")
            if snapshot is not None and passed > SNAPSHOT_ENDS:
                snapshot.close()
            await asyncio.sleep(0.05)
        # What is stuck is still there, with what it needs.
        for _, dependent in stuck:
            lost += await _missing(client, dependent)
        for _, dependent in stuck:
            async with client.transaction() as tx:
                await client.cancel(tx, dependent)
        deadline = time.monotonic() + 120
        while watch("SELECT count(*) FROM queuert_job WHERE status = 'pending'") != [0] or watch(DUE) != [0]:
            assert time.monotonic() < deadline, (watch(DUE), "are due and stay")
            await asyncio.sleep(0.2)
        for worker in workers:
            worker.send(signal.SIGKILL)
    assert lost == []
    found = [f"{size / 1e6:.1f}" for _, size in sizes]
    counted = [size for at, size in sizes if not SNAPSHOT < at < RECOVERED]
    logger.info("%d jobs in %g s, %d workers killed; MB: %s", number, SECONDS, killed, found)
    assert max(counted) <= 1.2 * counted[0], found


async def _free_old_ones(client: Client[Any], stuck: list[tuple[float, Chain[Stuck]]]) -> list[str]:
    """After a while they are cancelled, and then nothing needs their events."""
    lost: list[str] = []
    while stuck and stuck[0][0] < time.monotonic() - STUCK_FOR:
        _, dependent = stuck.pop(0)
        lost += await _missing(client, dependent)
        async with client.transaction() as tx:
            await client.cancel(tx, dependent)
    return lost


async def _missing(client: Client[Any], dependent: Chain[Stuck]) -> list[str]:
    blockers = await client.get_blockers(dependent.id)
    return [] if blockers and len(blockers) == 1 and blockers[0].status is not None else [dependent.id]


def _store_policy(url: str) -> None:
    """No worker handles what is stuck, so none stores its policy. Without one it would stay, and keep each page of the
    indexes by id from becoming empty.
    """
    state = sync_psycopg_state(url)
    try:
        policy = policy_of(Keep(cancelled=KEPT), "stuck")
        run(state.provider, None, state.operations.store_policies([policy]))
    finally:
        state.close()


def _vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM")


async def _worker(exits: AsyncExitStack, url: str) -> Child:
    started = await exits.enter_async_context(child("pruning_worker", url))
    assert await started.says() == "ready"
    return started
