"""Limits by key through workers: how many run, whose turn it is, rates, order, and changes at run time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, eventually

from queuert import (
    Attempt,
    Client,
    EntryJob,
    Handlers,
    Job,
    JobTypeValidationError,
    Limit,
    LimitKey,
    Rate,
    RateLimited,
    Reschedule,
    Worker,
)
from queuert.why import LimitFull

PARTNER = Limit("partner-api", by="partner", concurrency=2)


class Sync(EntryJob[None], name="sync", limit=Limit(by="tenant", concurrency=2)):
    tenant: int


class Fetch(EntryJob[None], name="fetch", limit=PARTNER):
    partner: str


class Push(EntryJob[None], name="push", limit=PARTNER):
    partner: str


class Call(EntryJob[None], name="call", limit=Limit(by=lambda job: job.partner.lower(), rate=Rate(2, per=0.3))):
    partner: str


class Second(Job[None], name="second", limit=Limit(by="account", concurrency=1, ordered=True)):
    account: str


class Post(EntryJob[None, Second], name="post", limit=Limit("accounts", by="account", concurrency=1, ordered=True)):
    account: str
    number: int = 0


class Plain(EntryJob[None], name="plain"):
    pass


async def done(client: Client[Any], number: int) -> bool:
    """Whether so many jobs are completed."""
    return len((await client.list_jobs(status="completed", limit=1000)).items) == number


class Tally:
    """How many handlers of each key were at work at once, at most."""

    def __init__(self) -> None:
        self.at_work: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def work(self, key: str) -> None:
        self.at_work[key] += 1
        self.most[key] = max(self.most[key], self.at_work[key])
        for _ in range(3):
            await asyncio.sleep(0)
        self.at_work[key] -= 1


@pytest.mark.drivers
async def test_a_limit_is_exact_across_workers(setting: Setting) -> None:
    tally = Tally()
    handlers = Handlers[Any]()

    @handlers.handles(Fetch)
    async def fetch(attempt: Attempt[Fetch]) -> None:
        await tally.work(attempt.job.partner)

    @handlers.handles(Push)
    async def push(attempt: Attempt[Push]) -> None:
        await tally.work(attempt.job.partner)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(setting.connect([Fetch, Push]))
        async with client.transaction() as tx:
            jobs = [kind(partner=name) for name in "abc" for kind in (Fetch, Push) for _ in range(6)]
            await client.start_many(tx, jobs)
        for _ in range(3):
            own = await stack.enter_async_context(setting.connect([Fetch, Push]))
            await stack.enter_async_context(Worker(own, handlers, concurrency=10, poll_interval=0.02))
        await eventually(lambda: done(client, 36))
        rows = (await client.list_limits()).items
    assert set(tally.most) == {"a", "b", "c"}
    assert max(tally.most.values()) <= 2
    assert sum(row.running + row.waiting for row in rows) == 0


async def test_what_a_full_key_holds_back_begins_when_there_is_room(setting: Setting) -> None:
    gate = Gate()
    handlers = Handlers[Any]()
    begun: list[int] = []

    @handlers.handles(Sync)
    async def sync(attempt: Attempt[Sync]) -> None:
        begun.append(attempt.job.tenant)
        await gate()

    async with setting.connect([Sync]) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Sync(tenant=1) for _ in range(4)])
        async with Worker(client, handlers, concurrency=10, poll_interval=0.2):
            await eventually(lambda: len(begun) == 2)
            async with client.transaction() as tx:
                await client.start(tx, Sync(tenant=2))
            await eventually(lambda: begun == [1, 1, 2])
            waiting = (await client.list_jobs(Sync, status="pending")).items[0]
            (full,) = [each for each in (await client.why(waiting.chain_id)).reasons if isinstance(each, LimitFull)]
            assert (full.limit, full.key, full.concurrency, full.running) == ("sync", "1", 2, 2)
            assert len(full.held_by) == 2
            assert str(full).startswith(
                "its key '1' of the limit 'sync' is full: 2 of 2 jobs are running, the oldest is"
            )
            gate.open()
            await eventually(lambda: done(client, 5))


async def test_rates_and_idle_workers(setting: Setting) -> None:
    """An idle worker wakes when the time is over, although nothing tells it."""
    handlers = Handlers[Any]()

    @handlers.handles(Call)
    async def call(attempt: Attempt[Call]) -> None:
        pass

    async with setting.connect([Call]) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Call(partner=name) for name in ("Acme", "ACME", "acme", "acme", "acme")])
        async with Worker(client, handlers, poll_interval=60):
            await eventually(lambda: done(client, 5))
        jobs = (await client.list_jobs(Call)).items
    begun = sorted(job.last_attempt_at for job in jobs if job.last_attempt_at is not None)
    for early, late in zip(begun, begun[2:], strict=False):
        assert (late - early).total_seconds() > 0.3


async def test_a_partner_that_refuses_closes_its_key(setting: Setting) -> None:
    handlers = Handlers[Any]()
    attempts: list[tuple[str, int]] = []
    moments: list[float] = []

    @handlers.handles(Fetch)
    async def fetch(attempt: Attempt[Fetch]) -> None:
        attempts.append((attempt.job.partner, attempt.number))
        moments.append(time.monotonic())
        if len(attempts) == 1:
            raise RateLimited(0.3)

    @handlers.handles(Plain)
    async def plain(attempt: Attempt[Plain]) -> None:
        attempts.append(("", attempt.number))
        if attempts.count(("", 1)) == 1:
            raise RateLimited(0.05) from ValueError("busy")

    async with setting.connect([Fetch, Plain]) as client:
        async with client.transaction() as tx:
            chains = [await client.start(tx, Fetch(partner=name)) for name in "aab"]
        async with Worker(client, handlers, concurrency=1, poll_interval=0.2):
            await eventually(lambda: done(client, 3))
            async with client.transaction() as tx:
                await client.start(tx, Plain())
            await eventually(lambda: done(client, 4))
    assert len(chains) == 3
    assert sorted(attempts[:4]) == [("a", 1), ("a", 1), ("a", 1), ("b", 1)]
    assert attempts[4:] == [("", 1), ("", 1)]
    # Unless the machine was so slow that the key was open again when the next job was claimed.
    assert attempts[1] == ("b", 1) or moments[1] - moments[0] > 0.3


async def test_the_order_of_a_key(setting: Setting) -> None:
    handlers = Handlers[Any]()
    seen: list[int] = []

    @handlers.handles(Post)
    async def post(attempt: Attempt[Post]) -> None:
        if attempt.job.number == 1 and len(seen) < 2:
            seen.append(-1)
            raise Reschedule(after=0.05)
        seen.append(attempt.job.number)

    async with setting.connect([Post]) as client:
        async with client.transaction() as tx:
            for number in range(4):
                await client.start(tx, Post(account="x", number=number))
        async with Worker(client, handlers, concurrency=10, poll_interval=60):
            await eventually(lambda: done(client, 4))
    assert seen == [0, -1, 1, 2, 3]


async def test_changes_at_run_time(setting: Setting) -> None:
    gate = Gate()
    handlers = Handlers[Any]()
    begun: list[str] = []

    @handlers.handles(Fetch)
    async def fetch(attempt: Attempt[Fetch]) -> None:
        begun.append(attempt.job.partner)
        await gate()

    async with setting.connect([Fetch]) as client:
        async with client.transaction() as tx:
            await client.pause(tx, LimitKey(PARTNER, "b"))
            await client.start_many(tx, [Fetch(partner=name) for name in "aaaab"])
        async with Worker(client, handlers, concurrency=10, poll_interval=0.2):
            await eventually(lambda: len(begun) == 2)
            async with client.transaction() as tx:
                row = await client.set_limit(tx, "partner-api", key="a", concurrency=3, by="ann")
            assert (row.key, row.rule.concurrency) == ("a", 3)
            await eventually(lambda: len(begun) == 3)
            async with client.transaction() as tx:
                assert await client.clear_limit(tx, Fetch, key="a")
                assert await client.resume(tx, LimitKey(Fetch, "b")) is not None
            await eventually(lambda: begun == ["a", "a", "a", "b"])
            gate.open()
            await eventually(lambda: done(client, 5))
        assert [record.action for record in (await client.list_audit()).items] == ["set_limit"]


async def test_jobs_of_a_limit_that_no_code_declares_any_more(setting: Setting) -> None:
    """They keep the limit that they were stored with."""

    class Loose(EntryJob[None], name="fetch"):
        partner: str

    handlers = Handlers[Any]()
    tally = Tally()

    @handlers.handles(Loose)
    async def fetch(attempt: Attempt[Loose]) -> None:
        await tally.work(attempt.job.partner)

    async with setting.connect([Fetch]) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Fetch(partner="a") for _ in range(6)])
        async with Worker(client, _nothing(Fetch), concurrency=1):
            pass
    async with setting.connect([Loose]) as client, Worker(client, handlers, concurrency=10, poll_interval=0.05):
        await eventually(lambda: done(client, 6))
    assert tally.most["a"] <= 2


async def test_a_key_that_cannot_be_stored(setting: Setting) -> None:
    class Odd(EntryJob[None], name="odd", limit=Limit(by=lambda job: None, concurrency=1)):
        pass

    async with setting.connect([Odd]) as client:
        with pytest.raises(JobTypeValidationError, match="the key of a limit must be"):
            async with client.transaction() as tx:
                await client.start(tx, Odd())


def _nothing(job_class: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(job_class)
    async def nothing(attempt: Attempt[Any]) -> None:
        raise Reschedule(after=0)

    return handlers
