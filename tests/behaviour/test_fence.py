"""complete() reads the job again, under lock and with its token: who has lost the job writes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import Gate, eventually, job, patiently
from tests.behaviour.working import begin, output, working

from queuert import Attempt, EntryJob, Handlers, OwnershipLost, SyncAttempt, Worker

pytestmark = pytest.mark.drivers


class Task(EntryJob[str], name="task"):
    pass


def fenced(handlers: Handlers[Any], gate: Gate, lost: list[OwnershipLost], *, swallow: bool = False) -> None:
    """A handler that stops between its phases, and tells what complete() raised."""

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare("staged") as tx:
            await write(attempt.client, tx, "prepared")
        await gate()
        try:
            async with attempt.complete() as tx:
                await write(attempt.client, tx, "completed")
        except OwnershipLost as error:
            lost.append(error)
            if not swallow:
                raise
        return "by the worker"


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize(
    ("how", "reason", "status"),
    [
        ("cancel", "cancelled", "cancelled"),
        ("take_over", "already_completed", "completed"),
        ("delete", "not_found", None),
    ],
)
async def test_a_job_that_was_lost_between_the_phases_is_not_completed(
    setting: Setting, how: str, reason: str, status: str | None, swallow: bool
) -> None:
    handlers, gate, lost = Handlers[Any](), Gate(), list[OwnershipLost]()
    fenced(handlers, gate, lost, swallow=swallow)
    async with working(setting, [Task], handlers, cancel_on_abort=False) as client:
        chain = await begin(client, Task())
        await gate.arrival()
        async with client.transaction() as tx:
            if how == "take_over":
                async with client.take_over(tx, chain, Task) as current:
                    await current.settle("by hand")
            else:
                await getattr(client, how)(tx, chain)
        gate.open()
        await eventually(lambda: lost)
        assert (lost[0].reason, lost[0].job_id) == (reason, chain.id)
        if status == "completed":
            assert await output(client, chain) == "by hand"
    async with setting.connect([Task]) as client:  # the worker has stopped: nothing more can come
        found = await client.get_chain(chain)
        assert (None if found is None else found.status) == status
        assert await ledger(client) == ["prepared"]
        if found is not None:
            assert found.last_error is None


async def test_a_job_that_was_reaped_and_taken_by_another_worker_is_completed_by_that_one(setting: Setting) -> None:
    handlers, gate, lost = Handlers[Any](), Gate(), list[OwnershipLost]()
    fenced(handlers, gate, lost)
    others = Handlers[Any]()

    @others.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "by the other")
        return "by the other worker"

    async with working(setting, [Task], handlers, cancel_on_abort=False, lease=30, renew_interval=0.1) as client:
        chain = await begin(client, Task())
        await gate.arrival()
        # The lease ends only if nobody renews it: the job is put back under the first worker's feet instead.
        async with client.transaction() as tx:
            row = await job(client, chain)
            settled = client._engine.state.settle([_put_back(row)])
            await client._run((settled, tx.connection))
        async with setting.connect([Task]) as beside, Worker(beside, others, poll_interval=0.02):
            assert await output(beside, chain) == "by the other worker"
        gate.open()
        await eventually(lambda: lost)
        assert lost[0].reason == "already_completed"
        assert await ledger(client) == ["prepared", "by the other"]
        assert (await job(client, chain)).attempt_number == 2


async def test_a_late_result_does_not_end_a_job_that_another_worker_runs(setting: Setting) -> None:
    late, gate, others, other_gate = Handlers[Any](), Gate(), Handlers[Any](), Gate()

    @late.handles(Task)
    async def late_task(attempt: Attempt[Task]) -> str:
        await gate()
        return "late"

    @others.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        await other_gate()
        return "in time"

    async with setting.connect([Task]) as client, setting.connect([Task]) as beside:
        options: dict[str, Any] = {"concurrency": 1, "prefetch": 0, "cancel_on_abort": False}
        worker = Worker(client, late, poll_interval=setting.poll_interval, **options)
        await worker.start()
        chain = await begin(client, Task())
        await gate.arrival()
        async with client.transaction() as tx:
            row = await job(client, chain)
            await client._run((client._engine.state.settle([_put_back(row)]), tx.connection))
        async with Worker(beside, others, poll_interval=0.02) as other:
            await other_gate.arrival()
            gate.open()
            await patiently(worker.stop())  # it has offered its result
            record = await job(client, chain)
            assert (record.status, record.leased_by) == ("running", other.id)
            other_gate.open()
            assert await output(beside, chain) == "in time"


def _put_back(record: Any) -> Any:
    from queuert.records.model import Settlement

    return Settlement(job_id=record.id, token=record._row.token, status="pending")


async def test_an_atomic_attempt_keeps_its_job_locked(setting: Setting) -> None:
    """Whoever wants to cancel the job waits for the attempt, and finds it completed."""
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare("atomic") as tx:
            await write(attempt.client, tx, "prepared")
        await gate()
        return "done"

    async with working(setting, [Task], handlers) as client:
        chain = await begin(client, Task())
        await gate.arrival()

        async def cancel() -> list[Any]:
            async with client.transaction() as tx:
                return await client.cancel(tx, chain)

        cancelling = asyncio.create_task(cancel())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not cancelling.done()
        gate.open()
        assert await patiently(cancelling) == []
        assert await output(client, chain) == "done"
        assert await ledger(client) == ["prepared"]


async def test_a_plain_handler_is_fenced_too(setting: Setting) -> None:
    import threading

    handlers, lost = Handlers[Any](), list[OwnershipLost]()
    arrived, go_on = threading.Event(), threading.Event()

    @handlers.handles(Task)
    def task(attempt: SyncAttempt[Task]) -> str:
        arrived.set()
        assert go_on.wait(45)
        try:
            with attempt.complete():
                raise AssertionError("this must not be reached")
        except OwnershipLost as error:
            lost.append(error)
            raise

    async with working(setting, [Task], handlers) as client:
        chain = await begin(client, Task())
        await eventually(arrived.is_set)
        async with client.transaction() as tx:
            await client.cancel(tx, chain)
        go_on.set()
        await eventually(lambda: lost)
        assert lost[0].reason == "cancelled"
        assert (await job(client, chain)).status == "cancelled"
