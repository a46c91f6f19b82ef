"""A continuation that no worker can run is warned of when it is stored, and asking for that costs next to nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, eventually, patiently
from tests.behaviour.watching import Points, watched
from tests.behaviour.working import begin

from queuert import Attempt, Client, EntryJob, Handlers, Job, StorageError, Worker
from queuert.worker.attempts import unhandled

pytestmark = pytest.mark.in_turn


class Last(Job[int], name="last"):
    pass


class First(EntryJob[int, Last], name="first"):
    in_phase: bool = False


def first_only() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(First)
    async def first(attempt: Attempt[First]) -> Last:
        if attempt.job.in_phase:
            async with attempt.complete():
                return Last()
        return Last()

    return handlers


def last_only() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        return 1

    return handlers


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if "has a handler for it" in record.getMessage()]


async def continued(client: Client[Any], number: int, **fields: Any) -> None:
    """So many chains have come to their last job."""
    async with client.transaction() as tx:
        chains = await client.start_many(tx, [First(**fields) for _ in range(number)])

    async def all_have() -> bool:
        read = [await client.get_chain(chain) for chain in chains]
        return {chain and chain.current_job_type for chain in read} == {"last"}

    await eventually(all_have)


@pytest.mark.parametrize("in_phase", [False, True])
async def test_a_type_that_no_worker_handles(
    setting: Setting, caplog: pytest.LogCaptureFixture, *, in_phase: bool
) -> None:
    """One question and one warning, however many chains come to that type."""
    points = Points()
    async with watched(setting.connect([First]), points) as client:
        async with Worker(client, first_only(), poll_interval=setting.poll_interval, concurrency=10) as worker:
            await continued(client, 30, in_phase=in_phase)
            await eventually(lambda: warnings(caplog))
        assert points.counts["handled_types"] == 1
    (warning,) = warnings(caplog)
    assert warning.levelname == "WARNING"
    assert (warning.job_type, warning.worker_id) == ("last", worker.id)
    assert f"chain {warning.chain_id} (first) continues with a job of type last" in warning.getMessage()


async def test_a_type_that_another_worker_handles(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    points = Points()
    async with watched(setting.connect([First]), points) as client:
        options: dict[str, Any] = {"poll_interval": setting.poll_interval}
        async with Worker(client, last_only(), **options), Worker(client, first_only(), **options):
            await registered(client, 2)
            chain = await begin(client, First())
            assert await client.wait(chain, timeout=PATIENCE) == 1
            await eventually(lambda: points.counts["handled_types"] == 1)
    assert warnings(caplog) == []


async def test_a_worker_that_has_stopped_handles_nothing(
    setting: Setting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look, some minutes later, notices."""
    monkeypatch.setattr(unhandled, "LOOK_INTERVAL", 0.0)
    async with setting.connect([First]) as client:
        options: dict[str, Any] = {"poll_interval": setting.poll_interval}
        async with Worker(client, first_only(), **options):
            async with Worker(client, last_only(), **options):
                await registered(client, 2)
                assert await client.wait(await begin(client, First()), timeout=PATIENCE) == 1
            assert warnings(caplog) == []
            await continued(client, 1)
            await eventually(lambda: warnings(caplog))


async def test_types_of_its_own_are_not_asked_for(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([First]), points) as client:
        handlers = [first_only(), last_only()]
        async with Worker(client, handlers, poll_interval=setting.poll_interval) as worker:
            assert await client.wait(await begin(client, First()), timeout=PATIENCE) == 1
            await patiently(worker.drain())
    assert points.counts["handled_types"] == 0


async def test_a_look_that_fails_disturbs_nothing(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    points = Points()
    async with watched(setting.connect([First]), points) as client:
        points.fail("handled_types", StorageError("no database"))
        async with Worker(client, first_only(), poll_interval=setting.poll_interval):
            await continued(client, 1)
            await eventually(lambda: points.counts["handled_types"] == 1)
            await asyncio.sleep(0)
            await continued(client, 1)
    assert warnings(caplog) == []


async def registered(client: Client[Any], number: int) -> None:
    async def all_are() -> bool:
        rows = await client._run((client._engine.state.list_workers(), None))
        return len(rows) == number

    await eventually(all_are)
