"""What `why` tells of limits: who holds a key, the place in line, when a rate opens, which job stops a key."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, eventually

from queuert import Attempt, Chain, Client, EntryJob, Handlers, Limit, LimitKey, Rate, RateLimited, Worker
from queuert.why import InLine, LimitClosed, LimitFull, OrderHeld, Paused, Reason


class Sync(EntryJob[None], name="sync", limit=Limit(by="tenant", concurrency=1)):
    tenant: str


class Call(EntryJob[None], name="call", limit=Limit(by="partner", rate=Rate(1, per=3600))):
    partner: str


class Post(EntryJob[None], name="post", limit=Limit(by="account", concurrency=1, ordered=True)):
    account: str
    number: int = 0


JOBS = [Sync, Call, Post]
OF_LIMITS = (LimitFull, LimitClosed, OrderHeld, InLine, Paused)


async def reason(client: Client[Any], chain: Chain[Any]) -> Reason:
    """The only one that a limit has for it."""
    (found,) = [each for each in (await client.why(chain)).in_the_way if isinstance(each, OF_LIMITS)]
    return found


async def test_a_job_knows_its_place_in_a_full_key(setting: Setting) -> None:
    gate = Gate()
    handlers = Handlers[Any]()
    begun: list[str] = []

    @handlers.handles(Sync)
    async def sync(attempt: Attempt[Sync]) -> None:
        begun.append(attempt.job.tenant)
        await gate()

    async with setting.connect(JOBS) as client:
        async with client.transaction() as tx:
            first, second, last = [await client.start(tx, Sync(tenant="x")) for _ in range(3)]
            patient = await client.start(tx, Sync(tenant="x").set(priority=200))
            await client.start(tx, Sync(tenant="another"))
        async with Worker(client, handlers, concurrency=10, poll_interval=min(setting.poll_interval, 5.0)):
            await eventually(lambda: len(begun) == 2)
            full = await reason(client, last)
            assert isinstance(full, LimitFull)
            assert (full.running, full.held_by, full.ahead) == (1, (first.id,), 1)
            assert str(full).endswith(f"the oldest is {first.id}; 1 job comes before it in line")
            assert str(await reason(client, second)).endswith("; it is the first in line")
            assert "; 2 jobs come before it in line" in str(await reason(client, patient))
            gate.open()


async def test_more_jobs_than_are_counted_come_first(setting: Setting) -> None:
    """The count ends at a bound, so its cost does not grow with the line."""
    async with setting.connect(JOBS) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Sync(tenant="x") for _ in range(1001)])
            last = await client.start(tx, Sync(tenant="x"))
            await client.set_limit(tx, Sync, concurrency=1)  # no worker has declared it
            await client.pause(tx, LimitKey(Sync, "x"))
        found = [each for each in (await client.why(last)).reasons if isinstance(each, InLine)]
        assert found == []  # the pause comes first
        async with client.transaction() as tx:
            await client.resume(tx, LimitKey(Sync, "x"))
        assert await reason(client, last) == InLine(1000)


async def test_a_rate_says_when_it_opens(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Call)
    async def call(attempt: Attempt[Call]) -> None:
        if attempt.job.partner == "refuses":
            raise RateLimited(1800)

    async with setting.connect(JOBS) as client:
        async with client.transaction() as tx:
            first, second, third = [await client.start(tx, Call(partner="a")) for _ in range(3)]
            refused = await client.start(tx, Call(partner="refuses"))
        async with Worker(client, handlers, concurrency=10, poll_interval=min(setting.poll_interval, 5.0)):
            await client.wait(first)
            await eventually(lambda: _is_closed(client, refused))
            closed = await reason(client, third)
            assert isinstance(closed, LimitClosed)
            job = await client.get_job(first.id)
            begun = None if job is None else job.last_attempt_at
            assert begun is not None
            assert 3600 <= (closed.opens_at - begun).total_seconds() < 3601
            assert closed.ahead == 1
            assert (await client.why(second)).status == "pending"


async def _is_closed(client: Client[Any], chain: Chain[Any]) -> bool:
    found = await client.why(chain)
    return any(
        isinstance(each, LimitClosed) and 1700 < (each.opens_at - found.looked_at).total_seconds() <= 3600
        for each in found.reasons
    )


async def test_a_stopped_key_names_the_job(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Post, max_attempts=1)
    async def post(attempt: Attempt[Post]) -> None:
        if attempt.job.number == 0:
            raise ValueError("no such account")

    async with setting.connect(JOBS) as client:
        async with client.transaction() as tx:
            chains = [await client.start(tx, Post(account="x", number=number)) for number in range(3)]
        async with Worker(client, handlers, concurrency=10, poll_interval=min(setting.poll_interval, 5.0)):
            await eventually(lambda: _has_status(client, chains[0], "failed"))
            stopped = await reason(client, chains[2])
            assert stopped == OrderHeld("post", "x", chains[0].id, "failed", 1)
            assert f"is stopped by job {chains[0].id}, which is failed" in str(stopped)
            assert "retry that job" in stopped.remedy
            async with client.transaction() as tx:
                await client.delete(tx, chains[0])
            await client.wait(chains[2])


async def test_a_paused_key_that_stops_what_runs(setting: Setting) -> None:
    """`cancel_running`: handlers of the key are told to stop, those of others go on, and no attempt is lost."""
    gates = {"x": Gate(), "y": Gate()}
    handlers = Handlers[Any]()
    numbers: list[tuple[str, int]] = []

    @handlers.handles(Sync)
    async def sync(attempt: Attempt[Sync]) -> None:
        numbers.append((attempt.job.tenant, attempt.number))
        await gates[attempt.job.tenant]()

    async with setting.connect(JOBS) as client:
        async with client.transaction() as tx:
            stopped, other = [await client.start(tx, Sync(tenant=name)) for name in "xy"]
        async with Worker(client, handlers, concurrency=10, poll_interval=min(setting.poll_interval, 5.0)):
            await eventually(lambda: len(numbers) == 2)
            async with client.transaction() as tx:
                await client.pause(tx, LimitKey(Sync, "x"), cancel_running=True, reason="too loud", by="ann")
            await eventually(lambda: _has_status(client, stopped, "pending"))
            paused = await reason(client, stopped)
            assert isinstance(paused, Paused)
            assert (str(paused.target), paused.by, paused.reason) == ("key 'x' of limit sync", "ann", "too loud")
            assert await _has_status(client, other, "running")
            for gate in gates.values():
                gate.open()
            async with client.transaction() as tx:
                await client.resume(tx, LimitKey(Sync, "x"))
            await client.wait(stopped)
            await client.wait(other)
    assert sorted(numbers) == [("x", 1), ("x", 1), ("y", 1)]


async def _has_status(client: Client[Any], chain: Chain[Any], status: str) -> bool:
    found = await client.get_chain(chain.id)
    return found is not None and found.status == status
