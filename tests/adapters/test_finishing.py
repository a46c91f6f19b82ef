"""Calls that run to their end, with a task of their own and without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from queuert.adapters import finishing
from queuert.adapters.finishing import finish, finish_here

Finish = Callable[..., Any]


@pytest.fixture(params=[finish, finish_here], ids=lambda function: function.__name__)
def finisher(request: pytest.FixtureRequest) -> Finish:
    found: Finish = request.param
    return found


class Call:
    """A call that waits twice, and then returns or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.first, self.second = asyncio.Event(), asyncio.Event()
        self.waits = asyncio.Event()
        self.ended = False

    async def __call__(self) -> str:
        self.waits.set()
        await self.first.wait()
        await asyncio.sleep(0)
        await self.second.wait()
        self.ended = True
        if self.error is not None:
            raise self.error
        return "done"


async def test_a_result_and_an_error(finisher: Finish) -> None:
    call = Call()
    call.first.set()
    call.second.set()
    assert await finisher(call()) == "done"
    failing = Call(ZeroDivisionError())
    task = asyncio.ensure_future(finisher(failing()))
    await failing.waits.wait()
    failing.first.set()
    failing.second.set()
    with pytest.raises(ZeroDivisionError):
        await task


@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
async def test_a_cancellation_waits_for_the_end(finisher: Finish, error: Exception | None) -> None:
    call = Call(error)
    task = asyncio.ensure_future(finisher(call()))
    await call.waits.wait()
    task.cancel()
    await asyncio.sleep(0)
    call.first.set()
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    call.second.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended
    assert task.cancelled()


async def test_a_cancellation_before_the_first_wait(finisher: Finish) -> None:
    call = Call()

    async def cancelled() -> None:
        task.cancel()
        await finisher(call())

    task = asyncio.ensure_future(cancelled())
    await call.waits.wait()
    call.first.set()
    call.second.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended


async def test_an_outer_timeout(finisher: Finish) -> None:
    call = Call()
    call.first.set()
    timeout = asyncio.timeout(0.01)
    with pytest.raises(TimeoutError):
        async with timeout:
            asyncio.get_running_loop().call_later(0.05, call.second.set)
            await finisher(call())
    assert call.ended
    assert timeout.expired()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_call_that_does_not_end_is_given_up(finisher: Finish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finishing, "CANCEL_PATIENCE", 0.01)
    call = Call()

    def give_up() -> None:
        call.first.set()
        call.second.set()

    task = asyncio.ensure_future(finisher(call(), give_up))
    await call.waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 45)
    assert call.ended


async def test_the_end_is_noticed_in_the_same_turn() -> None:
    """Without a task of its own, nothing comes between what is waited for and the task that waits."""
    waited: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def call() -> str:
        return await waited

    task = asyncio.ensure_future(finish_here(call()))
    await asyncio.sleep(0)
    waited.set_result("done")
    await asyncio.sleep(0)
    assert task.done()
    assert await task == "done"


async def test_what_is_waited_for_is_cancelled_by_others() -> None:
    """The call gets that, and decides. The task itself is not cancelled."""
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call() -> str:
        try:
            await waited
        except asyncio.CancelledError:
            return "cancelled"
        return "done"

    task = asyncio.ensure_future(finish_here(call()))
    await asyncio.sleep(0)
    waited.cancel()
    assert await task == "cancelled"
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    other = asyncio.ensure_future(finish_here(asyncio.wait_for(failed, None)))
    await asyncio.sleep(0)
    failed.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await other


def test_an_event_loop_that_ends() -> None:
    """Its task is never finished: nothing hangs, and the call is closed."""
    closed: list[bool] = []

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    loop = asyncio.new_event_loop()
    outer = finish_here(call())

    async def begin() -> None:
        step = outer.send(None)
        assert step is not None

    loop.run_until_complete(begin())
    outer.close()
    loop.close()
    assert closed == [True]
