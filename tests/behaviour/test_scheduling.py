"""When a job runs: at its time, the most urgent first, first come first served."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate
from tests.behaviour.working import begin, outcome, output, working

from queuert import Attempt, Chain, EntryJob, Handlers, Reschedule, Worker

pytestmark = pytest.mark.channels


class Timed(EntryJob[float, "Timed"], name="timed"):
    number: int = 0


def timed(handlers: Handlers[Any]) -> list[int]:
    ran: list[int] = []

    @handlers.handles(Timed)
    async def handler(attempt: Attempt[Timed]) -> float:
        ran.append(attempt.job.number)
        return datetime.now(UTC).timestamp()

    return ran


@pytest.mark.parametrize("by", ["after", "at"])
async def test_an_idle_worker_wakes_when_a_scheduled_job_is_due(setting: Setting, by: str) -> None:
    """No poll is needed: the worker learns from its claim, or from the announcement, when to wake."""
    handlers = Handlers[Any]()
    timed(handlers)
    poll_interval = 300 if setting.notify else 0.02
    async with working(setting, [Timed], handlers, poll_interval=poll_interval) as client:
        await outcome(client, Timed())  # the worker is up, and idle
        for _ in range(3):
            now = datetime.now(UTC)
            when: Any = {"after": 0.05} if by == "after" else {"at": now + timedelta(milliseconds=50)}
            assert await outcome(client, Timed(), **when) >= (now + timedelta(milliseconds=50)).timestamp()


async def test_a_worker_that_starts_later_finds_what_is_due_and_what_will_be(setting: Setting) -> None:
    handlers = Handlers[Any]()
    ran = timed(handlers)
    async with setting.connect([Timed]) as client:
        async with client.transaction() as tx:
            past = await client.start(tx, Timed(number=1), at=datetime.now(UTC) - timedelta(days=1))
            soon = await client.start(tx, Timed(number=2), after=0.05)
            late = await client.start(tx, Timed(number=3), after=timedelta(days=1))
        async with Worker(client, handlers, poll_interval=300):
            await output(client, past)
            await output(client, soon)
        assert ran == [1, 2]
        found = await client.get_chain(late)
        assert found is not None
        assert found.status == "pending"


async def test_a_triggered_job_runs_at_once(setting: Setting) -> None:
    handlers = Handlers[Any]()
    timed(handlers)
    async with working(setting, [Timed], handlers) as client:
        chain = await begin(client, Timed(), after=timedelta(days=1))
        async with client.transaction() as tx:
            await client.trigger(tx, chain)
        await output(client, chain)


async def test_a_continuation_waits_for_its_time(setting: Setting) -> None:
    handlers, times = Handlers[Any](), list[datetime]()

    @handlers.handles(Timed)
    async def handler(attempt: Attempt[Timed]) -> Timed | float:
        times.append(datetime.now(UTC))
        return Timed(number=1).set(after=0.05) if attempt.job.number == 0 else 1.0

    async with working(setting, [Timed], handlers, poll_interval=300 if setting.notify else 0.02) as client:
        assert await outcome(client, Timed()) == 1.0
        assert times[1] - times[0] >= timedelta(milliseconds=50)


async def test_one_slot_serves_by_priority_then_time_then_order_of_creation(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    ran: list[int] = []

    @handlers.handles(Timed)
    async def handler(attempt: Attempt[Timed]) -> float:
        ran.append(attempt.job.number)
        if attempt.job.number == 0:
            await gate()
        return 0.0

    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    async with working(setting, [Timed], handlers) as client:
        await begin(client, Timed(number=0))
        await gate.arrival()
        async with client.transaction() as tx:
            chains = [
                await client.start(tx, Timed(number=4)),
                await client.start(tx, Timed(number=5)),
                await client.start(tx, Timed(number=3), priority=50),
                await client.start(tx, Timed(number=9), priority=101),
                await client.start(tx, Timed(number=6), at=long_ago + timedelta(days=1)),  # that is now
                await client.start(tx, Timed(number=7), at=long_ago),
                await client.start(tx, Timed(number=8)),
                await client.start(tx, Timed(number=2), priority=-5),
                await client.start(tx, Timed(number=1), priority=-(2**31)),
            ]
        gate.open()
        for chain in chains:
            await output(client, chain)
        assert ran == list(range(10))


async def test_first_come_first_served_with_one_slot(setting: Setting) -> None:
    handlers = Handlers[Any]()
    ran = timed(handlers)
    async with setting.connect([Timed]) as client:
        for start in range(0, 60, 20):
            async with client.transaction() as tx:
                await client.start_many(tx, [Timed(number=start + each) for each in range(20)])
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert ran == list(range(60))


class Source(EntryJob[None], name="source"):
    pass


class Freed(EntryJob[None], name="freed"):
    source: Chain[Source]


async def test_a_time_in_the_past_and_a_freed_job_take_their_place_now(setting: Setting) -> None:
    """Started, continued, rescheduled with a time in the past, or unblocked: behind what was ready before."""
    handlers, ran = Handlers[Any](), list[str]()
    past = datetime.now(UTC) - timedelta(days=1)

    @handlers.handles(Timed)
    async def timed_job(attempt: Attempt[Timed]) -> float | Timed:
        number = attempt.job.number
        again = str(number) in ran
        ran.append(f"{number} again" if again else str(number))
        if number == 1 and not again:
            raise Reschedule(at=past)
        return Timed(number=20).set(at=past) if number == 2 else 0.0

    @handlers.handles(Source)
    async def source(attempt: Attempt[Source]) -> None:
        ran.append("source")

    @handlers.handles(Freed)
    async def freed(attempt: Attempt[Freed]) -> None:
        ran.append("freed")

    async with setting.connect([Timed, Source, Freed]) as client:
        chains: list[Chain[Any]] = []
        async with client.transaction() as tx:
            first = await client.start(tx, Source())
            chains.append(await client.start(tx, Freed(source=first), at=past))
        chains.extend([await begin(client, Timed(number=number)) for number in (1, 2, 3)])
        chains.append(await begin(client, Timed(number=4), at=past))
        async with Worker(client, handlers, concurrency=1, prefetch=0, poll_interval=setting.poll_interval):
            for chain in chains:
                await output(client, chain)
        assert ran == ["source", "1", "2", "3", "4", "freed", "1 again", "20"]
