"""A worker that comes too late changes nothing, whatever it tries with its old token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.adapters.postgres.libraries import Library
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.support.postgres import Databases, PostgresServer

from queuert.records.model import Claimed, Lease, Settlement
from queuert_conformance.state.build import (
    ERROR,
    cancelled,
    completed,
    continued,
    failed,
    given_back,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    waiting_for,
)

EVERYTHING = (
    "SELECT (SELECT array_agg((j.*)::text ORDER BY j.id) FROM queuert_job AS j), "
    "(SELECT array_agg((r.*)::text ORDER BY r.id) FROM queuert_ready AS r), "
    "(SELECT array_agg((l.*)::text ORDER BY l.id) FROM queuert_later AS l), "
    "(SELECT array_agg((r.*)::text ORDER BY r.job_id) FROM queuert_running AS r), "
    "(SELECT array_agg((b.*)::text ORDER BY b.job_id) FROM queuert_blocker AS b)"
)
EXPIRED = b'{"code":"LEASE_EXPIRED"}'


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


async def late_claim(scene: Scene, state: str) -> Claimed:
    """A claim whose lease has ended, and what has become of the job since."""
    await scene.new("a")
    (late,) = await scene.claim(request(queue("a", lease=0.0), worker="late"))
    await scene.start(new_job("b", blockers=waiting_for(late.job.id, chain_type="a")))
    if state == "given back":
        await scene.settle(given_back(late))
        return late
    if state == "taken over":
        await scene.settle(completed(late.job.id))
        return late
    if state == "deleted":
        await scene.delete(late.job.id, *scene.watch("SELECT id::text FROM queuert_job WHERE type_name = 'b'"))
        return late
    (reaped,) = await scene.run(scene.operations.reap(["a"], [], 1, EXPIRED))
    assert (reaped.status, reaped.attempt, reaped.token) == ("pending", 1, None)
    if state == "reaped":
        return late
    (other,) = await scene.claim(request(queue("a"), worker="other"))
    assert other.job.attempt == 2
    assert other.job.token != late.job.token
    if state == "settled":
        await scene.settle(completed(other))
    elif state == "failed and retried":
        await scene.settle(failed(other))
        await scene.run(scene.operations.retry([other.job.id]))
        await scene.claim(request(queue("a"), worker="late"))
    return late


STATES = ["reaped", "reclaimed", "settled", "given back", "taken over", "deleted", "failed and retried"]


@pytest.mark.parametrize("state", STATES)
async def test_a_late_worker_changes_nothing(scene: Scene, state: str) -> None:
    late = await late_claim(scene, state)
    before = scene.watch(EVERYTHING)
    attempts: list[Settlement] = [
        completed(late),
        continued(late, next_job(late.job)),
        continued(late, next_job(late.job, blockers=waiting_for(new_job().id))),
        failed(late),
        cancelled(late),
        put_back(late),
        given_back(late),
    ]
    for attempt in attempts:
        settled = await scene.settle(attempt)
        assert (settled.applied, settled.created, settled.unblocked) == ([False], [None], [])
    lost = await scene.run(scene.operations.renew([Lease(late.job.id, late.job.token or 0, 60.0)]))
    assert lost == [late.job.id]
    assert scene.watch(EVERYTHING) == before


async def test_a_late_settlement_does_not_hold_up_its_neighbours(scene: Scene) -> None:
    late = await late_claim(scene, "reclaimed")
    await scene.new("a", "a")
    good = await scene.claim(request(queue("a"), worker="late"))
    settled = await scene.settle(completed(good[0]), completed(late), completed(good[1]))
    assert settled.applied == [True, False, True]
    assert (await scene.job(late.job.id)).leased_by == "other"


@pytest.mark.parametrize("late_first", [True, False])
async def test_reaped_while_the_settlement_is_under_way(scene: Scene, late_first: bool) -> None:
    await scene.new("a")
    (late,) = await scene.claim(request(queue("a", lease=0.0), worker="late"))
    first, second = await scene.sessions(2)
    reap: Any = scene.operations.reap(["a"], [], 1, EXPIRED)
    await first.begin()
    if late_first:
        assert (await first.settle(completed(late))).applied == [True]
        assert await second.run_alone(reap) == [], "what is held is passed over"
        await first.commit()
        assert await scene.statuses(late.job.id) == ["completed"]
        return
    assert [job.id for job in await first.run(reap)] == [late.job.id]
    settling = scene.go(second.run_alone(scene.operations.settle([completed(late)])))
    await scene.blocked(second, by=first)
    await first.commit()
    assert (await settling).applied == [False]
    row = await scene.job(late.job.id)
    assert (row.status, row.last_error) == ("pending", EXPIRED)


async def test_reaped_and_reclaimed_while_the_settlement_waits(scene: Scene) -> None:
    """The row that the settlement waits for is gone when its turn comes; the new one has another token."""
    await scene.new("a")
    (late,) = await scene.claim(request(queue("a", lease=0.0), worker="late"))
    first, second = await scene.sessions(2)
    await first.begin()
    await first.run(scene.operations.reap(["a"], [], 1, EXPIRED))
    await first.run(scene.operations.claim(request(queue("a"), worker="other")))
    settling = scene.go(second.run_alone(scene.operations.settle([completed(late), put_back(late, ERROR)])))
    await scene.blocked(second, by=first)
    await first.commit()
    assert (await settling).applied == [False, False]
    row = await scene.job(late.job.id)
    assert (row.status, row.leased_by, row.attempt) == ("running", "other", 2)


async def test_renewed_while_the_reaper_looks(scene: Scene) -> None:
    await scene.new("a")
    (claim,) = await scene.claim(request(queue("a", lease=0.0), worker="slow"))
    first, second = await scene.sessions(2)
    await first.begin()
    assert await first.run(scene.operations.renew([Lease(claim.job.id, claim.job.token or 0, 60.0)])) == []
    assert await second.run_alone(scene.operations.reap(["a"], [], 9, EXPIRED)) == []
    await first.commit()
    assert await second.run_alone(scene.operations.reap(["a"], [], 9, EXPIRED)) == []
    assert (await scene.settle(completed(claim))).applied == [True]


async def test_tokens_never_come_again(scene: Scene) -> None:
    await scene.new("a")
    seen: set[int] = set()
    sessions = await scene.sessions(3)
    for turn in range(12):
        session = sessions[turn % 3]
        await session.begin()
        ((claim,), _) = ((await session.run(scene.operations.claim(request(queue("a"))))).jobs, None)
        assert claim.job.token is not None
        assert claim.job.token not in seen
        seen.add(claim.job.token)
        if turn % 2:
            await session.rollback()
        else:
            await session.settle(given_back(claim))
            await session.commit()


def test_no_token_comes_again_after_a_failover_that_lost_the_last_writes(own_server: PostgresServer) -> None:
    """A claim that only the old server knew must not be taken for one that the new server has made."""
    late, other = Library(own_server.url), Library(own_server.url)
    late.migrate()
    late(late.operations.create_jobs([new_job("a") for _ in range(3)]))
    wanted = request(queue("a"))
    late.close()
    (lost, *_) = own_server.fail_over(lambda: Library(own_server.url).alone(late.operations.claim(wanted)).jobs)
    (claimed, *_) = other(other.operations.claim(request(queue("a"), worker="other"))).jobs
    assert claimed.job.id == lost.job.id
    assert other(other.operations.settle([completed(lost)])).applied == [False]
    assert other(other.operations.renew([Lease(lost.job.id, lost.job.token or 0, 60.0)])) == [lost.job.id]
    assert not other(other.operations.hold(lost.job.id, lost.job.token or 0))
    assert other(other.operations.settle([completed(claimed)])).applied == [True]
    other.close()
