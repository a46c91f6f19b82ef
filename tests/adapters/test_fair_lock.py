"""The single writer's lock: fair between tasks and threads, and never lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from queuert.adapters.fair_lock import FairLock
from queuert.errors import StorageBusy, TransactionNested


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(45):
        while not condition():
            await asyncio.sleep(0.001)


async def test_waiters_are_served_in_order_whether_tasks_or_threads() -> None:
    lock = FairLock(10, "the store")
    served: list[int] = []

    def in_thread(number: int) -> None:
        lock.acquire()
        served.append(number)
        lock.release()

    async def in_task(number: int) -> None:
        await lock.acquire_async()
        served.append(number)
        await asyncio.sleep(0)
        lock.release()

    await lock.acquire_async()
    with ThreadPoolExecutor(8) as pool:
        loop = asyncio.get_running_loop()
        running: list[asyncio.Future[None]] = []
        for number in range(8):
            if number % 2:
                running.append(loop.run_in_executor(pool, in_thread, number))
            else:
                running.append(asyncio.create_task(in_task(number)))
            await until(lambda number=number: lock.waiting == number + 1)  # type: ignore[misc]
        lock.release()
        await asyncio.gather(*running)
    assert served == list(range(8))
    assert not lock.locked


async def test_who_comes_later_cannot_overtake() -> None:
    lock = FairLock(10, "the store")
    await lock.acquire_async()
    waiting = asyncio.create_task(lock.acquire_async())
    await until(lambda: lock.waiting == 1)

    lock.release()  # hands over to the waiter, which has not run yet
    late = asyncio.create_task(lock.acquire_async())
    await waiting
    assert not late.done()
    lock.release()
    await late
    lock.release()


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    lock = FairLock(10, "the store")
    await lock.acquire_async()
    first, second = (asyncio.create_task(lock.acquire_async()) for _ in "ab")
    await until(lambda: lock.waiting == 2)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert lock.waiting == 1
    lock.release()
    await second
    lock.release()
    assert not lock.locked


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_lock_handed_to_a_cancelled_waiter_goes_on_to_the_next(cancel_first: bool) -> None:
    lock = FairLock(10, "the store")
    await lock.acquire_async()
    first, second = (asyncio.create_task(lock.acquire_async()) for _ in "ab")
    await until(lambda: lock.waiting == 2)

    if cancel_first:
        first.cancel()
        lock.release()
    else:
        lock.release()
        first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    lock.release()
    assert not lock.locked


async def test_waiting_too_long_is_busy() -> None:
    lock = FairLock(0.01, "the store")
    holder = asyncio.create_task(lock.acquire_async())
    await holder
    with pytest.raises(StorageBusy):
        await lock.acquire_async()
    with pytest.raises(StorageBusy):
        await asyncio.to_thread(lock.acquire)
    assert lock.waiting == 0
    lock.release()
    assert not lock.locked


async def test_a_second_acquire_of_one_task_or_thread_is_refused() -> None:
    lock = FairLock(10, "the store")
    await lock.acquire_async()
    with pytest.raises(TransactionNested):
        await lock.acquire_async()
    with pytest.raises(TransactionNested):
        lock.acquire()  # would block the event loop that the holder runs on
    lock.release()

    lock.acquire()
    with pytest.raises(TransactionNested):
        lock.acquire()
    with pytest.raises(TransactionNested):
        await lock.acquire_async()
    lock.release()
    assert not lock.locked


async def test_a_task_can_wait_for_a_lock_that_it_has_disowned() -> None:
    lock = FairLock(10, "the store")
    await lock.acquire_async()
    lock.disown()
    asyncio.get_running_loop().call_soon(lock.release)
    await lock.acquire_async()
    with pytest.raises(TransactionNested):
        await lock.acquire_async()
    lock.release()
    assert not lock.locked


def test_an_error_while_a_thread_waits_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FairLock(10, "the store")
    taken = threading.Thread(target=lock.acquire)
    taken.start()
    taken.join()

    def interrupted(condition: threading.Condition, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Condition, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    assert lock.waiting == 0
    lock.release()
    assert not lock.locked


def test_a_waiter_whose_event_loop_is_closed_is_passed_over() -> None:
    lock = FairLock(10, "the store")
    taken = threading.Thread(target=lock.acquire)
    taken.start()
    taken.join()

    loop = asyncio.new_event_loop()
    waiter = lock.acquire_async()
    abandoned = loop.create_task(waiter)
    loop.run_until_complete(asyncio.sleep(0))
    assert lock.waiting == 1
    loop.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock.release).result(45)
    assert not lock.locked
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]
    waiter.close()


def test_many_threads_and_loops_exclude_each_other() -> None:
    lock = FairLock(30, "the store")
    inside = 0
    total = 0

    def enter() -> None:
        nonlocal inside, total
        inside += 1
        assert inside == 1
        total += 1
        inside -= 1

    def in_thread() -> None:
        for _ in range(200):
            lock.acquire()
            enter()
            lock.release()

    async def in_task() -> None:
        for _ in range(50):
            await lock.acquire_async()
            enter()
            await asyncio.sleep(0)
            lock.release()

    async def in_loop() -> None:
        await asyncio.gather(*(in_task() for _ in range(4)))

    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    threads += [threading.Thread(target=lambda: asyncio.run(in_loop())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(45)
    assert total == 4 * 200 + 2 * 4 * 50
    assert not lock.locked
    assert lock.waiting == 0
