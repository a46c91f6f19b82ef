"""The permits for a pool's connections: fair, never lost, and cheap to wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from queuert.adapters.permits import Permits
from queuert.adapters.waiting import IN_THREAD, ON_LOOP
from queuert.base.blocking import run_blocking


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def take(permits: Permits, timeout: float | None = None) -> asyncio.Task[bool]:
    return asyncio.create_task(permits.take(ON_LOOP, timeout))


async def test_who_waits_longest_is_next() -> None:
    permits = Permits(1)
    assert await permits.take(ON_LOOP, None)
    waiting = [take(permits) for _ in range(3)]
    await turns()
    for number in range(3):
        permits.give_back()
        assert not permits.take_now()  # it is handed over: nobody overtakes
        await turns()
        assert [task.done() for task in waiting] == [place <= number for place in range(3)]
    permits.give_back()
    assert permits.take_free() == 1


async def test_a_task_is_woken_by_its_own_loop_without_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    permits, loop = Permits(0), asyncio.get_running_loop()
    waiting = take(permits, 60)
    await turns()
    signals: list[Callable[..., object]] = []
    monkeypatch.setattr(loop, "call_soon_threadsafe", signals.append, raising=False)
    permits.give_back()
    await turns(2)
    assert waiting.done()
    assert waiting.result()
    assert signals == []


async def test_a_task_is_woken_by_a_thread() -> None:
    permits = Permits(0)
    waiting = take(permits, 60)
    await turns()
    await asyncio.to_thread(permits.give_back)
    assert await waiting


async def test_in_time_or_not() -> None:
    permits = Permits(0)
    assert not await permits.take(ON_LOOP, 0.001)
    assert not run_blocking(permits.take(IN_THREAD, 0.001))
    permits.give_back()  # those who have gone get nothing
    assert permits.take_now()
    assert not permits.take_now()


async def test_a_permit_that_is_granted_to_a_cancelled_task_goes_to_the_next_one() -> None:
    permits = Permits(0)
    first, second = take(permits), take(permits)
    await turns()
    permits.give_back()  # to the first, which is cancelled before it runs
    first.cancel()
    await turns()
    assert first.cancelled()
    assert await second


async def test_a_cancelled_task_is_passed_over() -> None:
    permits = Permits(0)
    first, second = take(permits), take(permits)
    await turns()
    first.cancel()
    permits.give_back()
    await turns()
    assert first.cancelled()
    assert await second
    assert permits.take_free() == 0


async def test_a_coroutine_that_is_dropped_while_it_waits() -> None:
    permits = Permits(0)
    waiting = permits.take(ON_LOOP, None)
    waiting.send(None)
    waiting.close()
    permits.give_back()
    assert permits.take_free() == 1


def test_a_loop_that_is_closed_gets_nothing() -> None:
    permits, loop = Permits(0), asyncio.new_event_loop()

    async def begin() -> object:
        waiting = permits.take(ON_LOOP, None)
        waiting.send(None)
        return waiting

    kept = loop.run_until_complete(begin())
    loop.close()
    permits.give_back()
    assert permits.take_free() == 1
    assert kept is not None


def test_threads_wait_in_turn() -> None:
    permits, taken = Permits(0), list[bool]()
    threads = [
        threading.Thread(target=lambda: taken.append(run_blocking(permits.take(IN_THREAD, 45)))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        permits.give_back()
    for thread in threads:
        thread.join(45)
    assert taken == [True, True]


async def test_closing_ends_all_waits() -> None:
    permits = Permits(0)
    waiting = [take(permits), take(permits, 60)]
    await turns()
    permits.close(LookupError("closed"))
    for task in waiting:
        with pytest.raises(LookupError, match="closed"):
            await task
    assert not permits.take_now()
    with pytest.raises(LookupError, match="closed"):
        await permits.take(ON_LOOP, None)
