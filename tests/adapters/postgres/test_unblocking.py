"""Many dependents are freed in several transactions: in every order of steps, each edge counts down once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.adapters.postgres.test_claim_cost import cost
from tests.support.postgres import Databases

from queuert.records.model import Claimed, Freed, NewJob, Settled
from queuert_conformance.state.build import completed, new_ids, new_job, queue, request, waiting_for

SOURCE = request(queue("source"), limit=1)


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        scene.operations.unblocked_at_once = 1
        yield scene


async def claimed(scene: Scene) -> Claimed:
    """A new chain, claimed."""
    await scene.new("source")
    (claim,) = await scene.claim(SOURCE)
    return claim


def behind(*chains: str, id: str | None = None) -> NewJob:
    return new_job("dependent", id=id, blockers=waiting_for(*chains, chain_type="source"))


async def waiting(scene: Scene, number: int, *chains: str) -> list[str]:
    """Jobs that wait for these chains, by id."""
    ids = new_ids(number)
    await scene.start(*(behind(*chains, id=each) for each in ids))
    return ids


async def unblock(scene: Scene, limit: int = 100) -> list[str]:
    return ids_of(await scene.run(scene.operations.continue_unblocking(limit)))


def ids_of(freed: Freed | Settled) -> list[str]:
    return [each.job_id for each in freed.unblocked]


async def left(scene: Scene, ids: Sequence[str]) -> list[int]:
    return [job.blockers_left for job in await scene.jobs(ids)]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_step_while_another_blocker_completes(scene: Scene, commits: bool) -> None:
    first, second = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 4, first.job.id, second.job.id)
    assert (await scene.settle(completed(first))).more
    stepping, completing = await scene.sessions(2)
    await stepping.begin()
    assert ids_of(await stepping.run(scene.operations.continue_unblocking(2))) == []
    await completing.begin()
    other = scene.go(completing.settle(completed(second.job.id)))
    await scene.blocked(completing, by=stepping)
    await (stepping.commit() if commits else stepping.rollback())
    settled = await other
    await completing.commit()
    assert ids_of(settled) == (jobs[:3] if commits else jobs[:1])
    scene.check()
    assert await unblock(scene) == (jobs[3:] if commits else jobs[1:])
    assert await left(scene, jobs) == [0] * 4
    scene.check()


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_another_blocker_completes_while_a_step_waits(scene: Scene, commits: bool) -> None:
    first, second = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 4, first.job.id, second.job.id)
    await scene.settle(completed(first))
    stepping, completing = await scene.sessions(2)
    await completing.begin()
    assert ids_of(await completing.settle(completed(second.job.id))) == jobs[:1]
    await stepping.begin()
    step = scene.go(stepping.run(scene.operations.continue_unblocking(100)))
    await scene.blocked(stepping, by=completing)
    await (completing.commit() if commits else completing.rollback())
    assert ids_of(await step) == (jobs[1:] if commits else [])
    await stepping.commit()
    assert await left(scene, jobs) == [0 if commits else 1] * 4
    scene.check()


async def test_two_chains_that_free_the_same_jobs_at_once(scene: Scene) -> None:
    """Each of the two steps has a work item of its own, and the second waits for the jobs of the first."""
    scene.operations.unblocked_at_once = 0
    claims = [await claimed(scene), await claimed(scene)]
    jobs = await waiting(scene, 3, *(claim.job.id for claim in claims))
    assert (await scene.settle(*map(completed, claims))).more
    one, two = await scene.sessions(2)
    await one.begin()
    await two.begin()
    assert ids_of(await one.run(scene.operations.continue_unblocking(2))) == []
    second = scene.go(two.run(scene.operations.continue_unblocking(100)))
    await scene.blocked(two, by=one)
    await one.commit()
    assert ids_of(await second) == jobs[:2]  # the third one is still to be counted down by the first chain
    await two.commit()
    scene.check()
    assert await unblock(scene) == jobs[2:]
    scene.check()


async def test_a_chain_completes_with_a_work_item_during_a_step(scene: Scene) -> None:
    """The step sees the chain completed, and its work item, or neither."""
    scene.operations.unblocked_at_once = 0
    first, second = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 3, first.job.id, second.job.id)
    await scene.settle(completed(first))
    stepping, completing, locking = await scene.sessions(3)
    await locking.begin()
    await locking.lock(jobs[0])
    step = scene.go(stepping.run_alone(scene.operations.continue_unblocking(100)))
    await scene.blocked(stepping, by=locking)
    assert (await completing.run_alone(scene.operations.settle([completed(second)]))).more
    await locking.commit()
    assert ids_of(await step) == []
    assert await left(scene, jobs) == [1, 1, 1]
    scene.check()
    assert await unblock(scene) == jobs
    scene.check()


async def test_a_start_that_waited_for_the_completion(scene: Scene) -> None:
    """It began before the completion was committed. It sees the chain completed, and no step counts it down."""
    first, other = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 3, first.job.id)
    late = behind(first.job.id, other.job.id)
    completing, starting = await scene.sessions(2)
    await completing.begin()
    assert (await completing.settle(completed(first))).more
    start = scene.go(starting.run_alone(scene.operations.create_jobs([late])))
    await scene.blocked(starting, by=completing)
    await completing.commit()
    ((created,),) = (await start,)
    assert created.status == "blocked"
    assert await left(scene, [late.id]) == [1]
    assert await unblock(scene) == jobs[1:]
    assert await left(scene, [late.id]) == [1]
    scene.check()
    assert ids_of(await scene.settle(completed(other.job.id))) == [late.id]


async def test_a_start_between_two_steps_waits_for_nothing(scene: Scene) -> None:
    """An uncommitted start behind the chain does not delay a step, nor the other way round."""
    first, other = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 4, first.job.id)
    await scene.settle(completed(first))
    starting, stepping = await scene.sessions(2)
    late = [behind(first.job.id, other.job.id), behind(first.job.id)]
    await starting.begin()
    assert [each.status for each in await starting.start(*late)] == ["blocked", "pending"]
    await stepping.begin()
    assert ids_of(await stepping.run(scene.operations.continue_unblocking(1))) == jobs[1:2]
    await starting.commit()
    assert ids_of(await stepping.run(scene.operations.continue_unblocking(100))) == jobs[2:]
    await stepping.commit()
    assert await left(scene, [job.id for job in late]) == [1, 0]
    scene.check()


async def test_an_edge_that_an_older_version_stored_after_the_completion(scene: Scene) -> None:
    """It does not say that the chain was completed then. The job is not freed before its other blocker completes."""
    first, other = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 3, first.job.id)
    await scene.settle(completed(first))
    late = behind(first.job.id, other.job.id)
    await scene.start(late)
    scene.watch("UPDATE queuert_blocker SET done = NULL")
    assert await unblock(scene) == jobs[1:]
    assert await left(scene, [late.id]) == [1]
    assert ids_of(await scene.settle(completed(other.job.id))) == [late.id]
    scene.check()


async def test_a_work_item_that_an_older_version_has_left(scene: Scene) -> None:
    """It deleted the chain and its dependents, and did not know of the work item."""
    first = await claimed(scene)
    jobs = await waiting(scene, 3, first.job.id)
    await scene.settle(completed(first))
    await scene.delete(*jobs, cascade=True)
    scene.watch("INSERT INTO queuert_unblocking (chain_id, next_id) VALUES (%s, %s)", first.job.id, jobs[1])
    again = new_job("source", id=first.job.id)
    await scene.start(again)
    (job,) = await waiting(scene, 1, again.id)
    assert await unblock(scene) == []
    assert await left(scene, [job]) == [1]
    (claim,) = await scene.claim(SOURCE)
    assert ids_of(await scene.settle(completed(claim))) == [job]
    scene.check()


async def test_a_deletion_waits_for_a_step_and_a_step_for_no_deletion(scene: Scene) -> None:
    first = await claimed(scene)
    jobs = await waiting(scene, 4, first.job.id)
    await scene.settle(completed(first))
    stepping, deleting = await scene.sessions(2)
    await stepping.begin()
    assert ids_of(await stepping.run(scene.operations.continue_unblocking(1))) == jobs[1:2]
    await deleting.begin()
    deletion = scene.go(deleting.delete(*jobs, cascade=True))
    await scene.blocked(deleting, by=stepping)
    await stepping.commit()
    assert len((await deletion).chains) == 5
    assert await unblock(scene) == []  # the work item is locked
    await deleting.commit()
    assert scene.watch("SELECT count(*) FROM queuert_unblocking") == [0]
    scene.check()
    assert await scene.deadlocks() == 0


async def test_a_settlement_with_few_dependents_does_not_touch_the_work_items(scene: Scene) -> None:
    """Nor do starts and claims: all pass while that table is locked."""
    scene.operations.unblocked_at_once = 3
    locking = await scene.session()
    await locking.begin()
    await locking.connection.execute("LOCK TABLE queuert_unblocking")
    first, second = await claimed(scene), await claimed(scene)
    jobs = await waiting(scene, 3, first.job.id)
    assert ids_of(await scene.settle(completed(first))) == jobs
    assert (await scene.settle(completed(second))).applied == [True]
    await locking.commit()
    scene.check()


async def test_the_pages_of_a_step_do_not_grow_with_the_number_of_dependents(scene: Scene) -> None:
    pages = list[int]()
    with psycopg.connect(scene.url, autocommit=True) as connection:
        for number in (500, 3000):  # enough for the indexes to have as many levels
            first = await claimed(scene)
            await waiting(scene, number, first.job.id)
            await scene.settle(completed(first))
            pages.append(cost(connection, scene.operations.continue_unblocking(20)))
            assert len(await unblock(scene, 5000)) == number - 1
    few, many = pages
    assert many < 1.3 * few + 50, pages
    scene.check()
