"""What is claimed first: queues, priorities, age; and which queues a worker serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, eventually, patiently

from queuert import Attempt, EntryJob, Handlers, InvalidArgument, Queue, Worker


class Mail(EntryJob[None], name="mail", queue="mails"):
    number: int


class Report(EntryJob[None], name="report", queue="reports"):
    number: int


class Plain(EntryJob[None], name="plain"):
    number: int


JOBS = (Mail, Report, Plain)
Order = list[tuple[str, int]]


def noting(order: Order, only: Sequence[Any] = JOBS, **options: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()

    async def note(attempt: Attempt[Any]) -> None:
        order.append((attempt.job_type, attempt.job.number))

    for job_type in only:
        handlers.handles(job_type, **options)(note)
    return handlers


async def start(client: Any, *jobs: Any) -> None:
    """Each in a transaction of its own, so that the order in time is theirs."""
    for job in jobs:
        async with client.transaction() as tx:
            await client.start(tx, job)


async def test_first_come_first_served(setting: Setting) -> None:
    order: Order = []
    async with setting.connect(JOBS) as client:
        await start(client, *(Plain(number=number) for number in range(8)))
        await Worker(client, noting(order), poll_interval=setting.poll_interval).drain()
    assert order == [("plain", number) for number in range(8)]


async def test_priorities_lower_first_and_age_within(setting: Setting) -> None:
    order: Order = []
    async with setting.connect(JOBS) as client:
        for number, priority in enumerate([100, 5, 200, -3, 5, 100]):
            await start(client, Plain(number=number).set(priority=priority))
        await Worker(client, noting(order), poll_interval=setting.poll_interval).drain()
    assert [number for _, number in order] == [3, 1, 4, 0, 5, 2]


async def test_the_priority_of_the_queue_comes_before_that_of_the_job(setting: Setting) -> None:
    order: Order = []
    async with setting.connect(JOBS) as client:
        await start(
            client,
            Mail(number=1).set(priority=1),
            Report(number=2).set(priority=900),
            Plain(number=3),
            Report(number=4),
        )
        queues = [Queue("mails", priority=30), Queue("reports", priority=10), Queue("default", priority=20)]
        await Worker(client, noting(order), queues=queues, poll_interval=setting.poll_interval).drain()
    assert order == [("report", 4), ("report", 2), ("plain", 3), ("mail", 1)]


async def test_a_worker_serves_only_the_queues_it_names(setting: Setting) -> None:
    order: Order = []
    async with setting.connect(JOBS) as client:
        await start(client, Mail(number=1), Report(number=2), Plain(number=3))
        await Worker(client, noting(order), queues=["reports"], poll_interval=setting.poll_interval).drain()
        assert order == [("report", 2)]
        await Worker(
            client, noting(order), queues=[Queue("mails"), "default"], poll_interval=setting.poll_interval
        ).drain()
        assert order[1:] == [("mail", 1), ("plain", 3)]


async def test_without_queues_a_worker_serves_all_it_has_handlers_for(setting: Setting) -> None:
    order: Order = []
    async with setting.connect(JOBS) as client:
        await start(client, Mail(number=1), Report(number=2), Plain(number=3))
        await Worker(client, noting(order, [Mail, Plain]), poll_interval=setting.poll_interval).drain()
        assert order == [("mail", 1), ("plain", 3)]
        assert [stats.job_type for stats in await client.stats()] == ["report"]


async def test_a_handler_may_put_its_type_into_another_queue(setting: Setting) -> None:
    order: Order = []
    handlers = noting(order, [Report, Plain])

    @handlers.handles(Mail, queue="reports")
    async def mail(attempt: Attempt[Mail]) -> None:
        order.append(("mail", attempt.job.number))

    async with setting.connect(JOBS) as client:
        await start(client, Mail(number=1), Report(number=2), Plain(number=3))
        await Worker(client, handlers, queues=["reports"], poll_interval=setting.poll_interval).drain()
        assert order == [("mail", 1), ("report", 2)]


async def test_a_paused_queue_and_an_unlimited_one(setting: Setting) -> None:
    order: Order = []
    async with setting.connect(JOBS) as client:
        await start(client, Mail(number=1), Report(number=2))
        queues = [Queue("mails", max_concurrency=0), Queue("reports", max_concurrency=None)]
        await patiently(Worker(client, noting(order), queues=queues, poll_interval=setting.poll_interval).drain())
        assert order == [("report", 2)]
        queues = [Queue("mails", max_concurrency=1), Queue("reports")]
        await patiently(Worker(client, noting(order), queues=queues, poll_interval=setting.poll_interval).drain())
        assert order == [("report", 2), ("mail", 1)]


async def test_the_cap_of_a_queue_counts_all_its_types_and_no_others(setting: Setting) -> None:
    gate = Gate()
    at_work: list[str] = []
    handlers = Handlers[Any]()

    async def work(attempt: Attempt[Any]) -> None:
        at_work.append(attempt.job_type)
        await gate()

    handlers.handles(Mail, queue="shared")(work)
    handlers.handles(Report, queue="shared")(work)
    handlers.handles(Plain)(work)
    async with setting.connect(JOBS) as client:
        await start(client, Mail(number=1), Report(number=2), Mail(number=3), Plain(number=4), Plain(number=5))
        queues = [Queue("shared", max_concurrency=2), Queue("default")]
        async with Worker(
            client, handlers, concurrency=10, queues=queues, poll_interval=setting.poll_interval
        ) as worker:
            await eventually(lambda: len(at_work) == 4)
            assert sorted(at_work) == ["mail", "plain", "plain", "report"]
            gate.open()
            await patiently(worker.drain())
        assert len(at_work) == 5


async def test_mistakes_in_queues_are_named(setting: Setting) -> None:
    client = setting.connect(JOBS)
    wrong: list[list[Queue | str]] = [["nowhere"], ["mails", "mails"], [Queue("mails"), "mails"], []]
    for queues in wrong:
        with pytest.raises(InvalidArgument):
            Worker(client, noting([]), queues=queues)
    bad: list[dict[str, Any]] = [{"max_concurrency": -1}, {"priority": "high"}, {"priority": 2**31}]
    for arguments in bad:
        with pytest.raises(InvalidArgument):
            Queue("mails", **arguments)
    with pytest.raises(InvalidArgument):
        Queue("")
