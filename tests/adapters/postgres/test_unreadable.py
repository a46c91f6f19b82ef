"""Moments that Python does not have, in rows that were written by hand or by an older version.

A driver refuses them, with all other rows of its answer. A claim is committed by then.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Driver, Watcher
from tests.support.postgres import Databases, template

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.base.arguments import EARLIEST, LATEST
from queuert.ports.provider import run_async
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import When
from queuert_conformance.state.build import completed, failed, new_job, queue, request

ABSURD = [
    "-infinity",
    "4000-01-01 00:00 BC",
    "0001-01-01 00:00Z",
    "infinity",
    "200000-01-01 00:00Z",
    "9999-12-31 23:59Z",
]
OPERATIONS = PostgresOperations()
LATER = When(after=3600.0)


class Hands:
    """A provider, and a connection that writes by hand."""

    def __init__(self, provider: Any, watch: Watcher) -> None:
        self.watch = watch
        self._provider = provider

    async def __call__(self, program: Any) -> Any:
        return await run_async(self._provider, None, program)


@pytest.fixture
async def hands(driver: Driver, postgres: Databases) -> Any:
    with postgres.fresh(template=template()) as url:
        # In the east, the last hours of the calendar do not exist; in the west, the first ones.
        watch = Watcher(url)
        name = watch("SELECT current_database()")[0]
        watch(f"ALTER DATABASE \"{name}\" SET timezone TO 'Pacific/Kiritimati'")
        provider = driver.provider(url, max_size=2)
        try:
            yield Hands(provider, watch)
        finally:
            await provider.close()
            watch.close()


@pytest.mark.parametrize("moment", ABSURD)
async def test_a_claim_has_all_its_jobs_whatever_their_times(hands: Hands, moment: str) -> None:
    """Every column in turn, each in a job of its own, beside one that is as it should be."""
    jobs = [new_job("a", priority=priority) for priority in range(5)]
    await hands(OPERATIONS.create_jobs(jobs))
    created, scheduled, deadline, all_three, plain = (job.id for job in jobs)
    early = moment.startswith(("-", "0001")) or "BC" in moment
    hands.watch("UPDATE queuert_job SET created_at = %s WHERE id = ANY (%s::uuid[])", moment, [created, all_three])
    hands.watch("UPDATE queuert_job SET deadline = %s WHERE id = ANY (%s::uuid[])", moment, [deadline, all_three])
    if early:
        for table in ("job", "ready"):
            text: Any = f"UPDATE queuert_{table} SET scheduled_at = %s WHERE id = ANY (%s::uuid[])"
            hands.watch(text, moment, [scheduled, all_three])
    assert (await hands(OPERATIONS.next_available_in(["a"]))).next_in == 0
    assert [stats.pending for stats in await hands(OPERATIONS.stats())] == [5]
    claimed = (await hands(OPERATIONS.claim(request(queue("a"))))).jobs
    assert [claim.job.id for claim in claimed] == [job.id for job in jobs]
    assert [claim.expired for claim in claimed] == [False, False, early, early, False]
    nearest = EARLIEST if early else LATEST
    now = datetime.now(UTC)
    for claim in claimed:
        assert (claim.job.created_at == nearest) == (claim.job.id in (created, all_three))
        assert claim.job.scheduled_at <= now
    await hands(OPERATIONS.settle([failed(claimed[0]), *map(completed, claimed[1:])]))
    rows = await hands(OPERATIONS.get_jobs([job.id for job in jobs]))
    assert [row.status for row in rows] == ["failed", *["completed"] * 4]
    assert [row.deadline for row in rows] == [None, None, nearest, nearest, None]
    page = PageRequest(10)
    assert len((await hands(OPERATIONS.list_jobs(JobFilter(), page))).rows) == 5
    assert len((await hands(OPERATIONS.list_chains(ChainFilter(), page))).rows) == 5
    assert (await hands(OPERATIONS.retry([created])))[0].status == "pending"
    assert len((await hands(OPERATIONS.cancel_chains([created, plain], cascade=True))).chains) == 1
    assert len((await hands(OPERATIONS.delete_chains([job.id for job in jobs], cascade=True))).chains) == 5


@pytest.mark.parametrize("moment", ABSURD[3:])
async def test_a_job_that_never_comes_is_in_nobodys_way(hands: Hands, moment: str) -> None:
    never, plain = new_job("a", schedule=LATER), new_job("a")
    await hands(OPERATIONS.create_jobs([never, plain]))
    for table in ("job", "later"):
        text: Any = f"UPDATE queuert_{table} SET scheduled_at = %s WHERE id = %s"
        hands.watch(text, moment, never.id)
    result = await hands(OPERATIONS.claim(request(queue("a"))))
    assert [claim.job.id for claim in result.jobs] == [plain.id]
    left = await hands(OPERATIONS.next_available_in(["a"]))
    if moment == "infinity":
        assert (result.next_in, left.next_in) == (None, None)
    else:
        assert min(result.next_in, left.next_in) > 7000 * 365 * 86400
    assert sum(stats.pending for stats in await hands(OPERATIONS.stats())) == 1
    (row,) = await hands(OPERATIONS.trigger([never.id]))
    assert row.scheduled_at < datetime.now(UTC) or (row.scheduled_at - datetime.now(UTC)).total_seconds() < 60
