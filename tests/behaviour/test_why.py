"""`client.why`: each reason, through the public API, with what would end it; and that it then ends."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, Step, eventually, patiently, start
from tests.behaviour.watching import Points, watched

from queuert import (
    Attempt,
    Backoff,
    Chain,
    ChainNotFound,
    Client,
    EntryJob,
    Handlers,
    JobError,
    Queue,
    WaitTimeout,
    Worker,
)
from queuert.errors import Explanation
from queuert.features.why import waiting as explaining
from queuert.why import (
    Blocked,
    BlockingChain,
    ClusterFull,
    Ended,
    FailedBefore,
    InLine,
    NotDue,
    NoWorker,
    PastDeadline,
    Paused,
    QueueFull,
    Reason,
    Running,
    SlotsBusy,
    Why,
)


class Sum(EntryJob[int], name="sum"):
    first: Chain[Step]
    second: Chain[Step]


JOBS = [Step, Sum]


def waiting(gate: Gate, **settings: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step, **settings)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.number

    @handlers.handles(Sum)
    async def total(attempt: Attempt[Sum]) -> int:
        return attempt.job.first.output + attempt.job.second.output

    return handlers


def worker_on(client: Client[Any], handlers: Handlers[Any], setting: Setting, **options: Any) -> Worker:
    return Worker(client, handlers, poll_interval=setting.poll_interval, prefetch=0, **options)


def only(why: Explanation | None, kind: type[Reason]) -> Any:
    assert isinstance(why, Why)
    assert [type(reason) for reason in why.reasons] == [kind], str(why)
    (reason,) = why.reasons
    assert str(reason) in str(why)
    assert reason.remedy in str(why)
    return reason


async def is_registered(client: Client[Any]) -> bool:
    return bool(await client.list_workers())


@pytest.mark.drivers
async def test_no_worker(setting: Setting) -> None:
    async with setting.connect(JOBS) as client:
        (chain,) = await start(client)
        why = await client.why(chain)
        assert (why.chain_id, why.job_id, why.job_type, why.status) == (chain.id, chain.id, "step", "pending")
        reason = only(why, NoWorker)
        assert (reason.job_type, reason.last_seen, reason.others) == ("step", None, 0)
        assert "none has ever had one; no worker is alive" in str(why)
        gate = Gate()
        gate.open()
        async with worker_on(client, waiting(gate), setting, release="r7"):
            assert await client.wait(chain, timeout=45) == 1
        (other,) = await start(client)
        reason = only(await client.why(other.id), NoWorker)
        assert reason.last_seen is not None
        assert reason.release == "r7"
        assert f"host {reason.host}, release r7" in str(reason)


@pytest.mark.drivers
async def test_paused(setting: Setting) -> None:
    """By its type, and by its queue."""
    gate = Gate()
    gate.open()
    async with setting.connect(JOBS) as client:
        # Before the worker starts: a claim that has begun already may take a job that comes with the pause.
        async with client.transaction() as tx:
            await client.pause(tx, Queue("work"), by="me")
            await client.pause(tx, Step, until=timedelta(hours=1), reason="PSP down", by="on-call")
        async with worker_on(client, waiting(gate, queue="work"), setting):
            await eventually(lambda: is_registered(client))
            (chain,) = await start(client)
            of_queue, of_type = sorted((await client.why(chain)).in_the_way, key=str)
            assert isinstance(of_queue, Paused)
            assert isinstance(of_type, Paused)
            assert (of_queue.target.scope, of_queue.target.name, of_queue.until, of_queue.by) == (
                "queue",
                "work",
                None,
                "me",
            )
            assert (of_type.target.scope, of_type.target.name) == ("type", "step")
            assert (of_type.reason, of_type.by) == ("PSP down", "on-call")
            (listed,) = [each for each in await client.list_pauses() if each.target == of_type.target]
            assert (of_type.since, of_type.until) == (listed.since, listed.until)
            async with client.transaction() as tx:
                await client.resume(tx, Step)
            only(await client.why(chain), Paused)
            async with client.transaction() as tx:
                await client.resume(tx, Queue("work"))
            assert await client.wait(chain, timeout=45) == 1


async def test_an_unknown_chain(setting: Setting) -> None:
    async with setting.connect(JOBS) as client:
        for unknown in ("00000000-0000-7000-8000-000000000000", "no such chain"):
            with pytest.raises(ChainNotFound):
                await client.why(unknown)


async def test_the_sync_client(sync_setting: Setting) -> None:
    with sync_setting.connect_sync(JOBS) as client:
        chain = client.submit(Step())
        with client.transaction() as tx:
            client.cancel(tx, chain)
            assert only(client.why(chain, tx=tx), Ended).status == "cancelled"
        with pytest.raises(WaitTimeout) as caught:
            client.wait(client.submit(Step()), timeout=0.01)
        assert caught.value.why is not None
        only(caught.value.why, NoWorker)
        with pytest.raises(ChainNotFound):
            client.why("00000000-0000-7000-8000-000000000000")


async def test_not_due(setting: Setting) -> None:
    async with setting.connect(JOBS) as client, worker_on(client, waiting(Gate()), setting):
        await eventually(lambda: is_registered(client))
        (chain,) = await start(client, after=timedelta(hours=3))
        why = await client.why(chain)
        reason = only(why, NotDue)
        assert timedelta(hours=2) < reason.due_at - why.looked_at <= timedelta(hours=3)
        assert "(in 2 h 59 min)" in str(why)


async def test_failed_before(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Step, backoff=Backoff(initial=3600, maximum=3600))
    async def step(attempt: Attempt[Step]) -> int:
        raise JobError("DECLINED", "the bank says no")

    async with setting.connect(JOBS) as client, worker_on(client, handlers, setting):
        (chain,) = await start(client)

        async def has_failed() -> bool:
            return [type(each) for each in (await client.why(chain)).reasons] == [FailedBefore]

        await eventually(has_failed)
        reason = only(await client.why(chain), FailedBefore)
        assert (reason.attempts, reason.error["code"]) == (1, "DECLINED")
        assert "it failed 1 time" in str(reason)
        assert "the last error was DECLINED: the bank says no" in str(reason)


async def test_blocked(setting: Setting) -> None:
    gate = Gate()
    async with setting.connect(JOBS) as client, worker_on(client, waiting(gate), setting):
        await eventually(lambda: is_registered(client))
        first, second = await start(client, 2)
        total = await client.submit(Sum(first=first, second=second))
        await gate.arrival()

        async def is_claimed() -> bool:
            return (await client.why(first)).status == "running"

        await eventually(is_claimed)
        reason = only(await client.why(total), Blocked)
        assert {each.chain_id for each in reason.chains} == {first.id, second.id}
        assert (reason.left, reason.forever) == (2, False)
        async with client.transaction() as tx:
            await client.cancel(tx, second)
        reason = only(await client.why(total), Blocked)
        assert reason.forever
        assert reason.chains[0] == BlockingChain(second.id, "step", "cancelled")
        assert "waits for ever" in str(reason)
        assert "cascade=True" in reason.remedy
        gate.open()


async def test_caps_slots_and_those_before(setting: Setting) -> None:
    gate = Gate()
    options = {"queues": [Queue("default", max_concurrency=1)], "concurrency": 5}
    async with setting.connect(JOBS) as client:
        first, second = await start(client, 2)
        async with worker_on(client, waiting(gate), setting, **options) as worker:
            await gate.arrival()
            reason = only(await client.why(second), QueueFull)
            assert (reason.queue, reason.cap, reason.running) == ("default", 1, 1)
            assert (reason.oldest.job_id, reason.oldest.worker_id) == (first.id, worker.id)
            assert "1 of 1 jobs are running" in str(reason)
            gate.open()
            assert await client.wait(second, timeout=45) == 1


async def test_a_cap_for_the_whole_database(setting: Setting) -> None:
    gate = Gate()
    async with setting.connect(JOBS) as client, worker_on(client, waiting(gate), setting, cluster_cap=1, concurrency=9):
        first, second = await start(client, 2)
        await gate.arrival()
        reason = only(await client.why(second), ClusterFull)
        assert (reason.cap, reason.running, reason.oldest.job_id) == (1, 1, first.id)
        gate.open()
        assert await client.wait(second, timeout=45) == 1


@pytest.mark.parametrize("of_type", [False, True])
async def test_slots_are_busy(setting: Setting, of_type: bool) -> None:
    gate = Gate()
    slots: dict[str, Any] = {"concurrency": 4 if of_type else 1}
    async with (
        setting.connect(JOBS) as client,
        worker_on(client, waiting(gate, concurrency=1 if of_type else None), setting, **slots),
    ):
        first, second = await start(client, 2)
        await gate.arrival()
        reason = only(await client.why(second), SlotsBusy)
        assert (reason.workers, reason.slots, reason.busy, reason.of_type) == (1, 1, 1, of_type)
        assert reason.oldest.job_id == first.id
        gate.open()
        assert await client.wait(second, timeout=45) == 1


async def test_others_come_first(setting: Setting) -> None:
    """More jobs are due than the idle worker has slots: the rest waits for its turn."""
    points = Points()
    async with watched(setting.connect(JOBS), points) as client:
        chains = await start(client, 3)
        held = points.hold("claim")
        async with worker_on(client, waiting(Gate()), setting, concurrency=2, shutdown_timeout=0) as worker:
            await held.arrival()
            assert (await client.why(chains[1])).reasons == ()
            assert "nothing is in its way" in str(await client.why(chains[1]))
            assert only(await client.why(chains[2]), InLine).ahead == 2
            held.open()
            assert worker.id


async def test_past_its_deadline(setting: Setting) -> None:
    """It is in the way of nothing: the next claim takes the job, and it ends as expired."""
    async with setting.connect(JOBS) as client:
        (chain,) = await start(client, deadline=0.01)

        async def has_passed() -> bool:
            return any(isinstance(each, PastDeadline) for each in (await client.why(chain)).reasons)

        await eventually(has_passed)
        why = await client.why(chain)
        assert [type(each) for each in why.in_the_way] == [NoWorker]
        async with worker_on(client, waiting(Gate()), setting):

            async def has_ended() -> bool:
                return (await client.why(chain)).status == "expired"

            await eventually(has_ended)
            assert only(await client.why(chain), Ended).status == "expired"


async def test_running(setting: Setting) -> None:
    gate = Gate()
    async with setting.connect(JOBS) as client, worker_on(client, waiting(gate), setting) as worker:
        (chain,) = await start(client)
        await gate.arrival()
        why = await client.why(chain)
        reason = only(why, Running)
        assert (reason.worker_id, reason.state) == (worker.id, "alive")
        assert reason.lease_until > why.looked_at
        assert "which is alive; its lease ends at" in str(reason)
        gate.open()
        assert await client.wait(chain, timeout=45) == 1
        ended = only(await client.why(chain), Ended)
        assert ended.status == "completed"


async def test_a_chain_that_has_continued(setting: Setting) -> None:
    """The reasons are those of its current job."""
    async with setting.connect(JOBS) as client:
        first, second = await start(client, 2)
        async with client.transaction() as tx:
            await client.cancel(tx, [first, second])
        total = await client.submit(Sum(first=first, second=second))
        why = await client.why(total)
        assert [type(each) for each in why.reasons] == [Blocked, NoWorker]
        assert str(why).splitlines()[0] == f"job {total.id} (sum) is blocked"
        assert str(why).splitlines()[1].startswith("  1. it waits for ever")


@pytest.fixture(params=["sqlite", "psycopg"])
def known(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    """Where the death of another process can be known."""
    state = "postgres" if request.param == "psycopg" else request.param
    return Setting(state, "sqlite" if state == "sqlite" else "postgres", tmp_path)


async def test_the_worker_is_dead(known: Setting) -> None:
    async with known.connect(JOBS) as client:
        (chain,) = await start(client)
        async with child("held_worker", known.url) as killed:
            assert await patiently(killed.says()) == "at work"
            killed.send(signal.SIGKILL)
            await killed.exit_code()

            async def is_gone() -> bool:
                state = client._engine.state
                await client._run((state.dead_workers("me", ["step"], grace=0), None))  # as another worker would
                return bool(only(await client.why(chain), Running).state == "dead")

            await eventually(is_gone)
            why = await client.why(chain)
            assert "which is dead" in str(why)
            assert "takes it back" in only(why, Running).remedy


# WaitTimeout


@pytest.mark.drivers
async def test_a_timeout_carries_it(setting: Setting) -> None:
    async with setting.connect(JOBS) as client:
        (chain,) = await start(client)
        with pytest.raises(WaitTimeout) as caught:
            await client.wait(chain, timeout=0.01)
        assert caught.value.why is not None
        only(caught.value.why, NoWorker)
        assert caught.value.__notes__ == [str(caught.value.why)]


async def test_a_timeout_without_an_explanation(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect(JOBS), points) as client:
        (chain,) = await start(client)
        points.fail_times("circumstances", 1)
        with pytest.raises(WaitTimeout) as caught:
            await client.wait(chain, timeout=0)
        assert caught.value.why is None
        assert not hasattr(caught.value, "__notes__")


async def test_a_timeout_does_not_wait_for_its_explanation(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    points = Points()
    monkeypatch.setattr(explaining, "READ_SECONDS", 0.01)
    async with watched(setting.connect(JOBS), points) as client:
        (chain,) = await start(client)
        held = points.hold("circumstances")
        with pytest.raises(WaitTimeout) as caught:
            await asyncio.wait_for(client.wait(chain, timeout=0), 45)
        assert caught.value.why is None
        held.open()
