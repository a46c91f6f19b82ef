"""A job that waits for chains becomes pending when the last of them completes: never earlier, and never not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.adapters.postgres.scenes import Isolation, Scene, Session, conflict, open_scene
from tests.support.postgres import Databases

from queuert.records.model import NewJob
from queuert_conformance.state.build import completed, continued, new_job, next_job, queue, request, waiting_for

ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "repeatable_read", "serializable")


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


def behind(*chains: str) -> NewJob:
    return new_job("dependent", blockers=waiting_for(*chains, chain_type="source"))


async def complete(session: Session, chain_id: str) -> None:
    """As `take_over` does it: the current job is locked, then settled, in the user's transaction."""
    job = await session.take_over(chain_id)
    await session.settle(completed(job.id))


async def resolved(scene: Scene, job: NewJob, source: str) -> None:
    """However it went: the job is pending if the chain is completed, and becomes so when it is."""
    ((row,), chain) = (await scene.jobs([job.id]), await scene.chain(source))
    if chain.current.status != "completed":
        assert (row.status, row.blockers_left) == ("blocked", 1)
        settled = await scene.settle(completed(chain.current.id))
        assert [each.job_id for each in settled.unblocked] == [job.id]
        row = await scene.job(job.id)
    assert (row.status, row.blockers_left) == ("pending", 0)
    claimed = await scene.claim(request(queue("dependent")))
    assert [each.job.id for each in claimed] == [job.id]
    assert [each.status for each in claimed[0].blockers] == ["completed"]


@pytest.mark.parametrize("starter_isolation", ISOLATIONS)
@pytest.mark.parametrize("completer_isolation", ISOLATIONS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_start_comes_first(
    scene: Scene, starter_isolation: Isolation, completer_isolation: Isolation, commits: bool
) -> None:
    (source,) = await scene.new("source")
    job = behind(source)
    starter, completer = await scene.sessions(2)
    await completer.begin(completer_isolation)
    await starter.begin(starter_isolation)
    await starter.start(job)
    completing = scene.go(complete(completer, source))
    await scene.blocked(completer, by=starter)
    await (starter.commit() if commits else starter.rollback())
    lost = await conflict(completing)
    assert lost == ("40001" if commits and completer_isolation != "read_committed" else None)
    if lost:
        await completer.rollback()
        await completer.begin(completer_isolation)
        await complete(completer, source)
    await completer.commit()
    if not commits:
        await scene.start(job)
    await resolved(scene, job, source)


@pytest.mark.parametrize("starter_isolation", ISOLATIONS)
@pytest.mark.parametrize("completer_isolation", ISOLATIONS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_completion_comes_first(
    scene: Scene, starter_isolation: Isolation, completer_isolation: Isolation, commits: bool
) -> None:
    (source,) = await scene.new("source")
    job = behind(source)
    starter, completer = await scene.sessions(2)
    await starter.begin(starter_isolation)
    await completer.begin(completer_isolation)
    await complete(completer, source)
    starting = scene.go(starter.start(job))
    await scene.blocked(starter, by=completer)
    await (completer.commit() if commits else completer.rollback())
    lost = await conflict(starting)
    assert lost == ("40001" if commits and starter_isolation != "read_committed" else None)
    if lost:
        await starter.rollback()
        await starter.begin(starter_isolation)
        await starter.start(job)
    await starter.commit()
    await resolved(scene, job, source)


@pytest.mark.parametrize("isolation", ISOLATIONS[1:])
async def test_a_snapshot_that_is_older_than_the_other_side(scene: Scene, isolation: Isolation) -> None:
    """Nobody waits for anybody here: one is done before the other begins, and the other cannot see it."""
    source, another = await scene.new("source", "source")
    late_completer, late_starter, quick = await scene.sessions(3)
    await late_completer.begin(isolation)
    await late_starter.begin(isolation)
    first, second = behind(source), behind(another)
    await scene.start(first)
    await quick.begin()
    await complete(quick, another)
    await quick.commit()
    assert await conflict(complete(late_completer, source)) == "40001"
    assert await conflict(late_starter.start(second)) == "40001"
    await late_completer.rollback()
    await late_starter.rollback()
    await scene.start(second)
    assert await scene.statuses(first.id, second.id) == ["blocked", "pending"]
    await scene.settle(completed(source))
    assert await scene.statuses(first.id, second.id) == ["pending", "pending"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_chain_goes_on_while_somebody_starts_behind_it(scene: Scene, isolation: Isolation) -> None:
    await scene.new("source")
    (source,) = await scene.claim(request(queue("source")))
    following = next_job(source.job)
    job = behind(source.job.id)
    starter, completer = await scene.sessions(2)
    await starter.begin(isolation)
    await completer.begin()
    await completer.settle(continued(source, following))
    starting = scene.go(starter.start(job))
    await scene.blocked(starter, by=completer)
    await completer.commit()
    if await conflict(starting):
        assert isolation != "read_committed"
        await starter.rollback()
        await starter.begin(isolation)
        await starter.start(job)
    await starter.commit()
    assert await scene.statuses(job.id) == ["blocked"]
    await resolved(scene, job, source.job.id)


async def test_a_chain_goes_on_twice_while_somebody_waits_to_start_behind_it(scene: Scene) -> None:
    await scene.new("source")
    (source,) = await scene.claim(request(queue("source")))
    holder, starter = await scene.sessions(2)
    await holder.begin()
    second = next_job(source.job)
    await holder.settle(continued(source, second))
    job = behind(source.job.id)
    starting = scene.go(starter.run_alone(scene.operations.create_jobs([job])))
    await scene.blocked(starter, by=holder)
    third = next_job(await holder.take_over(source.job.id))
    await holder.settle(continued(second.id, third))
    await holder.commit()
    await starting
    assert (await scene.chain(source.job.id)).current.id == third.id
    await resolved(scene, job, source.job.id)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_two_blockers_complete_at_once(scene: Scene, isolation: Isolation) -> None:
    one, two = await scene.new("source", "source")
    job = behind(one, two)
    await scene.start(job)
    first, second = await scene.sessions(2)
    await first.begin(isolation)
    await second.begin(isolation)
    await complete(first, one)
    completing = scene.go(complete(second, two))
    await scene.blocked(second, by=first)
    await first.commit()
    if await conflict(completing):
        assert isolation != "read_committed"
        assert await scene.statuses(job.id) == ["blocked"]
        await second.rollback()
        await second.begin(isolation)
        await complete(second, two)
    await second.commit()
    row = await scene.job(job.id)
    assert (row.status, row.blockers_left) == ("pending", 0)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_fifty_blockers_are_completed_by_eight_connections(scene: Scene, isolation: Isolation) -> None:
    sources = await scene.new(*["source"] * 50)
    jobs = [behind(*sources), behind(*sources[:25]), behind(*sources[25:]), behind(*sources[::-7])]
    await scene.start(*jobs)
    sessions = await scene.sessions(8)
    left = list(sources)

    async def complete_and_commit(session: Session, source: str) -> None:
        await complete(session, source)
        await session.commit()

    async def work(session: Session) -> None:
        while left:
            source = left.pop()
            while True:
                await session.begin(isolation)
                if await conflict(complete_and_commit(session, source)) is None:
                    break
                if session.connection.is_in_transaction():
                    await session.rollback()

    async with asyncio.timeout(100):
        await asyncio.gather(*(work(session) for session in sessions))
    assert await scene.statuses(*(job.id for job in jobs)) == ["pending"] * 4
    if isolation == "read_committed":
        assert await scene.deadlocks() == 0


async def test_a_continuation_behind_a_chain_that_goes_on_in_the_same_settlement(scene: Scene) -> None:
    """Its last job is completed when the other looks, and the next one is not stored yet: still it has not ended."""
    await scene.new("source", "source", "source")
    one, two, three = await scene.claim(request(queue("source")))
    waiting = [
        next_job(one.job, blockers=waiting_for(two.job.id, chain_type="source")),
        next_job(two.job, blockers=waiting_for(three.job.id, chain_type="source")),
    ]
    settled = await scene.settle(continued(one, waiting[0]), continued(two, waiting[1]), completed(three))
    assert [None if each is None else each.status for each in settled.created] == ["blocked", "pending", None]
    scene.check()
    (claimed,) = await scene.claim(request(queue("source")))
    assert claimed.job.id == waiting[1].id
    settled = await scene.settle(completed(claimed))
    assert [each.job_id for each in settled.unblocked] == [waiting[0].id], (
        "the edge was counted on the job that is current"
    )


async def test_continuations_that_wait_for_each_other_are_blocked_both(scene: Scene) -> None:
    await scene.new("source", "source")
    one, two = await scene.claim(request(queue("source")))
    waiting = [
        next_job(one.job, blockers=waiting_for(two.job.id, chain_type="source")),
        next_job(two.job, blockers=waiting_for(one.job.id, chain_type="source")),
    ]
    await scene.settle(continued(one, waiting[0]), continued(two, waiting[1]))
    assert await scene.statuses(*(job.id for job in waiting)) == ["blocked", "blocked"]


async def test_a_start_behind_a_chain_and_behind_what_waits_for_it_against_its_completion(scene: Scene) -> None:
    """The start wants both rows, the completion holds one and then wants the other: not the other way round."""
    await scene.new("source")
    (source,) = await scene.claim(request(queue("source")))
    middle = new_job("source", blockers=waiting_for(source.job.id, chain_type="source"))
    await scene.start(middle)
    # The current job of the first chain is younger than the one that waits for it.
    following = next_job(source.job)
    await scene.settle(continued(source, following))
    assert following.id > middle.id
    completer, starter = await scene.sessions(2)
    await completer.begin()
    await completer.take_over(source.job.id)
    last = behind(source.job.id, middle.id)
    starting = scene.go(starter.run_alone(scene.operations.create_jobs([last])))
    await scene.blocked(starter, by=completer)
    async with asyncio.timeout(45):
        await completer.settle(completed(following.id))
    await completer.commit()
    await starting
    assert await scene.statuses(middle.id, last.id) == ["pending", "blocked"]
    assert await scene.deadlocks() == 0


async def test_a_completion_waits_for_a_dependent_that_is_taken_over(scene: Scene) -> None:
    (source,) = await scene.new("source")
    job = behind(source)
    await scene.start(job)
    user, completer = await scene.sessions(2)
    await user.begin()
    assert (await user.take_over(job.id)).status == "blocked"
    completing = scene.go(completer.run_alone(scene.operations.settle([completed(source)])))
    await scene.blocked(completer, by=user)
    await user.settle(completed(job.id))
    await user.commit()
    assert (await completing).unblocked == []
    assert await scene.statuses(source, job.id) == ["completed", "completed"]


async def test_a_blocked_job_becomes_pending_while_somebody_waits_to_take_it_over(scene: Scene) -> None:
    """Whoever locks it must hold its place in the queue too, although it had none when he began to wait."""
    (source,) = await scene.new("source")
    job = behind(source)
    await scene.start(job)
    completer, user = await scene.sessions(2)
    await completer.begin()
    await complete(completer, source)
    await user.begin()
    taking = scene.go(user.take_over(job.id))
    await scene.blocked(user, by=completer)
    await completer.commit()
    assert (await taking).status == "pending"
    assert await scene.claim(request(queue("dependent"))) == [], "it is held"
    await user.settle(completed(job.id))
    await user.commit()
    assert await scene.statuses(job.id) == ["completed"]
