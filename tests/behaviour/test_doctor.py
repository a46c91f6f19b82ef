"""The doctor beside workers that run: a healthy database has no findings, however often it looks."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, Step, patiently

from queuert import Attempt, Chain, Client, EntryJob, Handlers, Job, Limit, Queue, Schedules, Worker

MAIL = Queue("mail", max_concurrency=2)


class Last(Job[int], name="doctor-last"):
    pass


class First(EntryJob[int, Last], name="doctor-first"):
    pass


class Waits(EntryJob[None], name="doctor-waits"):
    steps: list[Chain[Step]]


class Mail(EntryJob[None], name="doctor-mail", queue="mail"):
    pass


class Limited(EntryJob[None], name="doctor-limited", limit=Limit(by="key", concurrency=1, ordered=True)):
    key: int


JOBS = [Step, First, Last, Waits, Mail, Limited]


def schedules() -> Schedules:
    found = Schedules()
    found.every(timedelta(milliseconds=100), Mail(), name="doctor-skip", overlap="skip")
    found.every(timedelta(milliseconds=100), Limited(key=1), name="doctor-cancel", overlap="cancel")
    return found


def handlers() -> Handlers[Any]:
    found = Handlers[Any]()
    dice = random.Random(7)

    @found.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if dice.random() < 0.2:
            raise RuntimeError("again")
        return attempt.number

    @found.handles(First)
    async def first(attempt: Attempt[First]) -> Last:
        return Last()

    @found.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        return 1

    @found.handles(Waits)
    async def waits(attempt: Attempt[Waits]) -> None:
        """Only after its steps."""

    @found.handles(Mail)
    async def mail(attempt: Attempt[Mail]) -> None:
        await asyncio.sleep(0)

    @found.handles(Limited)
    async def limited(attempt: Attempt[Limited]) -> None:
        if dice.random() < 0.1:
            raise RuntimeError("again")

    return found


async def load(client: Client[Any], stop: asyncio.Event) -> None:
    """Start, cancel, trigger, delete, pause, and change many, until it is told to stop."""
    dice, old = random.Random(11), list[str]()
    while not stop.is_set():
        async with client.transaction() as tx:
            steps = await client.start_many(tx, [Step(number=each) for each in range(4)])
            await client.start_many(tx, [Waits(steps=steps[:2]), Waits(steps=steps[1:3])])
            first, *_ = await client.start_many(tx, [First(), First().set(after=0.01), Mail(), Mail()])
            await client.start(tx, Step(), dedup=f"key-{dice.randrange(5)}")
            await client.start_many(tx, [Limited(key=dice.randrange(3)) for _ in range(2)])
            later = await client.start(tx, Step(), after=3600)
        async with client.transaction() as tx:
            await (client.trigger(tx, later) if dice.random() < 0.5 else client.cancel(tx, later))
            await client.pause(tx, dice.choice([Limited, Mail]), until=0.05, cancel_running=True)
            if dice.random() < 0.2:
                await client.bulk_cancel(tx, "type:doctor-limited status:pending")
            if dice.random() < 0.2:
                await client.bulk_delete(tx, "type:doctor-limited,doctor-mail status:completed")
            if dice.random() < 0.2:
                await client.bulk_set_priority(tx, "type:doctor-mail", dice.randrange(9))
        old.append(later.id)
        if len(old) > 20:
            async with client.transaction() as tx:
                if await client.get_chain(old[0], tx=tx) is not None:
                    await client.cancel(tx, old[0])
                    await client.delete(tx, old.pop(0))
        await patiently(client.wait(first))  # no more than the workers can do


async def look(setting: Setting, looks: int) -> None:
    async with setting.connect(JOBS, pool_size=8) if setting.state == "postgres" else setting.connect(JOBS) as client:
        workers = [
            Worker(
                client,
                handlers(),
                schedules=[schedules()],
                queues=[Queue("default"), MAIL],
                poll_interval=0.05,
                backoff=SOON,
                concurrency=5,
            )
            for _ in range(2)
        ]
        stop = asyncio.Event()
        async with workers[0], workers[1]:
            loading = asyncio.create_task(load(client, stop))
            rows = 0
            for number in range(looks):
                assert not loading.done(), loading.exception()
                diagnosis = await patiently(client.doctor(full=number % 4 == 3, fix=number % 8 == 7))
                assert diagnosis.findings == (), str(diagnosis)
                rows += diagnosis.rows
                await asyncio.sleep(0)
            stop.set()
            await patiently(loading)
        assert rows > looks
        assert (await client.doctor(full=True)).findings == ()


async def test_a_healthy_database_under_load_has_no_findings(setting: Setting) -> None:
    await look(setting, 8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_thousand_looks_find_nothing(setting: Setting) -> None:
    await look(setting, 1000)
