"""A job whose deadline passes before its work begins expires, and its handler never runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import job
from tests.behaviour.working import begin, outcome, output, working
from tests.support.worlds import World

from queuert import Attempt, Chain, ChainExpired, EntryJob, Handlers, Reschedule, Worker

pytestmark = pytest.mark.in_turn


class Perishable(EntryJob[str, "Perishable"], name="perishable"):
    number: int = 0


class Waiting(EntryJob[str], name="waiting"):
    perishable: Chain[Perishable]


PAST = datetime(2020, 1, 1, tzinfo=UTC)


def eating(handlers: Handlers[Any]) -> list[int]:
    ran: list[int] = []

    @handlers.handles(Perishable)
    async def handler(attempt: Attempt[Perishable]) -> str:
        ran.append(attempt.job.number)
        return "fresh"

    return ran


async def assert_expired(client: Any, chain: Chain[Any]) -> None:
    with pytest.raises(ChainExpired):
        await output(client, chain)
    record = await job(client, chain)
    assert record.status == "expired"
    assert record.last_error is not None
    assert record.last_error["code"] == "EXPIRED"
    assert record.completed_by is not None


async def test_a_passed_deadline_expires_the_job_and_leaves_dependents_blocked(setting: Setting) -> None:
    handlers = Handlers[Any]()
    ran = eating(handlers)
    async with working(setting, [Perishable, Waiting], handlers) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, Perishable(), deadline=PAST)
            waiting = await client.start(tx, Waiting(perishable=chain))
        await assert_expired(client, chain)
        assert (await job(client, waiting)).status == "blocked"
        assert ran == []


async def test_a_deadline_ahead_changes_nothing(setting: Setting) -> None:
    handlers = Handlers[Any]()
    eating(handlers)
    async with working(setting, [Perishable], handlers) as client:
        assert await outcome(client, Perishable(), deadline=timedelta(hours=1)) == "fresh"


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A database whose clock is ours."""
    return World(request.param, "async", tmp_path)


async def test_a_deadline_is_about_the_beginning_of_the_work_not_its_end(world: World) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Perishable)
    async def handler(attempt: Attempt[Perishable]) -> str:
        world.pass_time(3600)
        async with attempt.complete():
            return "fresh"

    async with world.client([Perishable]) as client, Worker(client, handlers):
        assert await outcome(client, Perishable(), deadline=60) == "fresh"


async def test_a_retry_after_the_deadline_expires(world: World) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Perishable)
    async def handler(attempt: Attempt[Perishable]) -> str:
        ran.append(attempt.number)
        if attempt.number == 2:
            world.pass_time(3600)
        raise Reschedule(after=0, cause=RuntimeError("and again"))

    async with world.client([Perishable]) as client, Worker(client, handlers):
        chain = await begin(client, Perishable(), deadline=60)
        await assert_expired(client, chain)
        assert ran == [1, 2]
        assert (await job(client, chain)).attempt_number == 3


async def test_a_deadline_that_passes_between_the_claim_and_the_start(setting: Setting) -> None:
    """Both jobs are claimed at once; the handler of one blocks the loop until the other's deadline is over."""
    handlers, ran = Handlers[Any](), list[int]()
    deadline = datetime.now(UTC) + timedelta(seconds=0.7)

    @handlers.handles(Perishable)
    async def handler(attempt: Attempt[Perishable]) -> str:
        ran.append(attempt.job.number)
        # Our clock starts when the answer to the claim is read, which may be late.
        while datetime.now(UTC) < deadline + timedelta(seconds=1):
            pass
        return "fresh"

    async with setting.connect([Perishable]) as client:
        async with client.transaction() as tx:
            first = await client.start(tx, Perishable(number=1))
            second = await client.start(tx, Perishable(number=2), deadline=deadline)
        async with Worker(client, handlers, concurrency=2, poll_interval=setting.poll_interval):
            assert await output(client, first) == "fresh"
            await assert_expired(client, second)
        assert ran == [1]


async def test_a_continuation_has_a_deadline_of_its_own(setting: Setting) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Perishable)
    async def handler(attempt: Attempt[Perishable]) -> Perishable:
        ran.append(attempt.job.number)
        return Perishable(number=2).set(deadline=PAST)

    async with working(setting, [Perishable], handlers) as client:
        chain = await begin(client, Perishable(number=1), deadline=timedelta(hours=1))
        with pytest.raises(ChainExpired):
            await output(client, chain)
        assert ran == [1]
