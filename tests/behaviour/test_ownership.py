"""A job that is taken from its worker: the handler is told why, and whatever it still does has no effect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import SOON, Gate, Step, end_lease, eventually, job, patiently, start, tasks
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Chain, Client, Handlers, Worker

LEASE = 1.0


def held_for_long(setting: Setting) -> dict[str, Any]:
    """Settings of a worker. Without notifications it is the renewal that finds out."""
    return {
        "lease": 3600,
        "poll_interval": setting.poll_interval,
        **({} if setting.notify else {"renew_interval": 0.05}),
    }


class Told:
    """A handler that waits to be stopped, and notes what it was told."""

    def __init__(self) -> None:
        self.handlers = Handlers[Any]()
        self.gate = Gate()
        self.reasons: list[Any] = []
        self.attempts: list[int] = []

        @self.handlers.handles(Step, backoff=SOON)
        async def step(attempt: Attempt[Step]) -> int:
            self.attempts.append(attempt.number)
            try:
                await self.gate()
            finally:
                self.reasons.append(attempt.signal.reason)
            async with attempt.complete() as tx:
                await write(attempt.client, tx, f"attempt {attempt.number}")
                return 1


async def take_away(client: Client[Any], chain: Any, how: str) -> None:
    async with client.transaction() as tx:
        if how == "cancelled":
            await client.cancel(tx, chain)
        elif how == "not_found":
            await client.delete(tx, chain)
        else:
            async with client.take_over(tx, chain, Step) as current:
                assert current.status == "running"
                await current.settle(99)


HOW = ["cancelled", "not_found", "already_completed"]


@pytest.mark.channels
@pytest.mark.drivers
@pytest.mark.parametrize("how", HOW)
async def test_the_handler_is_cancelled_and_told_why(setting: Setting, how: str) -> None:
    """By the notification at once; without any, by the next renewal."""
    told = Told()
    async with setting.connect([Step]) as client:
        worker = Worker(client, told.handlers, **held_for_long(setting))
        async with worker:
            (chain,) = await start(client)
            await told.gate.arrival()
            await take_away(client, chain, how)
            await eventually(lambda: told.reasons)
            assert told.reasons == [how]
            await patiently(worker.drain())
            assert told.attempts == [1]
            await _ended_as(client, chain, how)
            assert await ledger(client) == []
            # The slot is free again.
            told.gate.open()
            (following,) = await start(client)
            assert await client.wait(following, timeout=45) == 1


async def _ended_as(client: Client[Any], chain: Any, how: str) -> None:
    found = await client.get_job(chain.id)
    if how == "not_found":
        assert found is None
    elif how == "cancelled":
        assert found is not None
        assert found.status == "cancelled"
    else:
        assert found is not None
        assert (found.status, found.output, found.completed_by) == ("completed", 99, None)


@pytest.mark.channels
@pytest.mark.parametrize("how", HOW)
async def test_a_handler_that_goes_on_has_no_effect(setting: Setting, how: str) -> None:
    told = Told()
    async with setting.connect([Step]) as client:
        worker = Worker(client, told.handlers, **held_for_long(setting), cancel_on_abort=False)
        async with worker:
            (chain,) = await start(client)
            await told.gate.arrival()
            await take_away(client, chain, how)
            told.gate.open()
            await patiently(worker.drain())
            assert told.attempts == [1]
            await _ended_as(client, chain, how)
            assert await ledger(client) == [], "complete() must have refused"


@pytest.mark.channels
async def test_what_was_lost_before_the_worker_listened(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim comes first, then the subscription: nobody hears of what happens in between."""
    told, subscribing = Told(), Gate()
    async with setting.connect([Step]) as client, setting.connect([Step]) as other:
        listen = client.sessions.channel.listen

        async def slowly(topic: Any, callback: Any) -> Any:
            if topic == "ownership_lost":
                await subscribing()
            return await listen(topic, callback)

        monkeypatch.setattr(client.sessions.channel, "listen", slowly)
        (chain,) = await start(other)
        async with Worker(client, told.handlers, lease=3600, poll_interval=0.05):
            await told.gate.arrival()
            await subscribing.arrival()
            await take_away(other, chain, "cancelled")
            assert told.reasons == []
            subscribing.open()
            await eventually(lambda: told.reasons)
        assert told.reasons == ["cancelled"]


@pytest.mark.channels
async def test_taken_by_another_worker(setting: Setting) -> None:
    """The renewal hangs, the lease ends, another worker gets the job. The first one knows by the clock."""
    told, points, handlers = Told(), Points(), Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"attempt {attempt.number}")
            return 2

    hanging = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, hanging:
        renewing = points.hold("renew")
        async with Worker(hanging, told.handlers, lease=LEASE, poll_interval=setting.poll_interval):
            (chain,) = await start(client)
            await told.gate.arrival()
            # Otherwise it might be the one to get the job again, once its handler is told to stop.
            claiming = points.hold("claim")
            await renewing.arrival()
            # It polls. The first worker may put the job back before it is taken away, then take the wake hint for
            # it, and hang in its claim.
            other = Worker(client, handlers, lease=30, renew_interval=0.05, poll_interval=0.05)
            async with other:
                assert await client.wait(chain, timeout=45) == 2
            await eventually(lambda: told.reasons)
            renewing.open()
            claiming.open()
        assert told.reasons[0] in ("lease_lost", "taken_by_another_worker", "already_completed")
        record = await job(client, chain)
        assert record.completed_by == other.id
        assert await ledger(client) == [f"attempt {record.attempt_number}"]


@pytest.mark.channels
async def test_a_job_that_came_back_to_the_same_worker(setting: Setting) -> None:
    """The first attempt is still at work here when the second begins: it is told, and has no effect."""
    points, handlers, gates = Points(), Handlers[Any](), [Gate(), Gate()]
    reasons: list[Any] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        try:
            await gates[attempt.number - 1]()
        finally:
            reasons.append((attempt.number, attempt.signal.reason))
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"attempt {attempt.number}")
            return attempt.number

    hanging = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, hanging:
        worker = Worker(hanging, handlers, concurrency=2, lease=3600, poll_interval=0.05)
        async with worker:
            (chain,) = await start(client)
            await gates[0].arrival()
            rows = await _reap_elsewhere(client, chain)
            assert rows == [chain.id]
            await gates[1].arrival()
            await eventually(lambda: reasons)
            assert reasons == [(1, "taken_by_another_worker")]
            gates[1].open()
            assert await client.wait(chain, timeout=45) == 2
        assert await ledger(client) == ["attempt 2"]
        assert not tasks()


async def _reap_elsewhere(client: Client[Any], chain: Chain[Any]) -> list[str]:
    """As another worker would, once the lease has ended: earlier than its worker knows."""
    found: list[str] = []
    await end_lease(client, chain)

    async def reap() -> bool:
        rows = await client._run((client._engine.state.reap(["step"], [], 1, b"{}"), None))
        found.extend(row.id for row in rows)
        return bool(found)

    await eventually(reap)
    return found


@pytest.mark.channels
async def test_a_stale_hint_is_checked_and_ignored(setting: Setting) -> None:
    told, points = Told(), Points()
    async with watched(setting.connect([Step]), points) as client:
        async with Worker(client, told.handlers, lease=3600, poll_interval=setting.poll_interval):
            (chain,) = await start(client)
            await told.gate.arrival()
            looks = points.counts["get_jobs.done"]

            async def looked_three_times() -> bool:
                # More than three, perhaps: a hint that comes before the worker listens is not heard.
                await client.sessions.channel.publish("ownership_lost", [chain.id, "no-such-job"])
                return not setting.notify or points.counts["get_jobs.done"] >= looks + 3

            await eventually(looked_three_times)
            told.gate.open()
            assert await client.wait(chain, timeout=45) == 1
        assert told.reasons == [None]
        assert told.attempts == [1]


@pytest.mark.channels
async def test_a_hint_while_the_database_is_away_is_left_to_the_renewal(setting: Setting) -> None:
    told, points = Told(), Points()
    watching = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, watching:
        worker = Worker(watching, told.handlers, lease=60, renew_interval=0.1, poll_interval=setting.poll_interval)
        async with worker:
            (chain,) = await start(client)
            await told.gate.arrival()
            points.fail_times("get_jobs", 1)
            await take_away(client, chain, "cancelled")
            await eventually(lambda: told.reasons)
            assert told.reasons == ["cancelled"]
        assert (await job(client, chain)).status == "cancelled"


POINTS = ["begin", "begun", "hold", "hold.done", "savepoint", "body", "release", "released", "commit"]


@pytest.mark.drivers
@pytest.mark.parametrize("point", [*POINTS, "settle", "settle.done", "committed"])
async def test_an_abort_inside_complete_leaves_everything_or_nothing(setting: Setting, point: str) -> None:
    points, handlers, body = Points(), Handlers[Any](), Gate()
    attempts: list[Attempt[Step]] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        attempts.append(attempt)
        await asyncio.sleep(0)
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "done")
            if point == "body" and len(attempts) == 1:
                await body()
        return attempt.number

    async with setting.connect([Step]) as client:
        stopped = watched(setting.connect([Step]), points)
        async with stopped:
            gate = body if point == "body" else points.hold(point)
            worker = Worker(stopped, handlers, shutdown_timeout=0, poll_interval=setting.poll_interval)
            (chain,) = await start(client)
            await worker.start()
            await gate.arrival()
            stopping = asyncio.create_task(worker.stop())
            for _ in range(5):
                await asyncio.sleep(0)
            gate.open()
            await patiently(stopping)
        record = await job(client, chain)
        assert record.status in ("pending", "completed")
        assert await ledger(client) == (["done"] if record.status == "completed" else [])
        if point in ("commit", "settle", "settle.done", "committed"):
            assert record.status == "completed", "the handler had returned: only user code is ever cancelled"
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert (await job(client, chain)).status == "completed"
        assert await ledger(client) == ["done"]
