"""A pool never has more connections than its size, whatever happens while a worker begins or ends."""

from __future__ import annotations

import asyncio

import pytest

from queuert.adapters.postgres.drivers.pool import Opener, Pool
from queuert.adapters.postgres.drivers.sources import PoolOptions
from queuert.adapters.waiting import ON_LOOP
from queuert.ports.provider import TimeLimit

SIZE = 4
URGENT = TimeLimit(seconds=5, urgent=True)
UPKEEP = TimeLimit(seconds=5)


class Counted(Opener[str]):
    """Counts what is open. Connecting and closing take until the test says so."""

    waiting = ON_LOOP

    def __init__(self) -> None:
        self.open = self.most = self.opened = 0
        self.connects = asyncio.Event()
        self.closes = asyncio.Event()
        self.connects.set()
        self.closes.set()

    async def connect(self, seconds: float, statement_timeout: float | None) -> str:
        self.open += 1
        self.opened += 1
        self.most = max(self.most, self.open)
        name = f"connection {self.opened}"
        await self.connects.wait()
        return name

    def is_usable(self, connection: str) -> bool:
        return True

    async def clean(self, connection: str) -> bool:
        return True

    async def close(self, connection: str) -> None:
        await self.closes.wait()
        self.open -= 1


@pytest.fixture
def opener() -> Counted:
    return Counted()


@pytest.fixture
def pool(opener: Counted) -> Pool[str]:
    return Pool(opener, PoolOptions(prepare=True, max_size=SIZE, timeout=0.2))


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def take_all(pool: Pool[str]) -> list[str]:
    """As a worker and its handlers do: all that there are."""
    return [await pool.take(limit) for limit in (None, UPKEEP, UPKEEP, URGENT)]


async def give_back_all(pool: Pool[str]) -> None:
    for connection in pool.in_use:
        await pool.give_back(connection)


async def test_a_worker_begins_while_a_caller_connects(pool: Pool[str], opener: Counted) -> None:
    first = await pool.take(None)
    opener.connects.clear()
    connecting = asyncio.create_task(pool.take(None))
    await settled()
    await pool.give_back(first)  # one is idle, and one more is on its way
    await pool.reserve(5)
    opener.connects.set()
    await pool.give_back(await connecting)
    assert len(await take_all(pool)) == opener.open == opener.most == SIZE


async def test_connections_are_closed_before_others_are_set_aside(pool: Pool[str], opener: Counted) -> None:
    for _ in range(SIZE):
        await pool.take(None)
    await give_back_all(pool)
    opener.closes.clear()
    workers = [asyncio.create_task(pool.reserve(5)) for _ in range(2)]
    await settled()
    assert not any(worker.done() for worker in workers)
    opener.closes.set()
    await asyncio.gather(*workers)
    assert len(await take_all(pool)) == opener.open == opener.most == SIZE


async def test_one_is_given_back_while_a_worker_ends(pool: Pool[str], opener: Counted) -> None:
    await pool.reserve(5)
    taken = await take_all(pool)
    await pool.give_back(taken[1])
    opener.closes.clear()
    ending = asyncio.create_task(pool.unreserve())
    await settled()
    late = [asyncio.create_task(pool.give_back(each)) for each in taken[2:]]
    await settled()
    opener.closes.set()
    await asyncio.gather(ending, *late)
    await pool.give_back(taken[0])
    for _ in range(SIZE):
        await pool.take(None)
    assert opener.open == opener.most == SIZE


async def test_nothing_opens_before_the_last_worker_has_closed_its_connections(
    pool: Pool[str], opener: Counted
) -> None:
    await pool.reserve(5)
    await take_all(pool)
    await give_back_all(pool)
    opener.closes.clear()
    ending = asyncio.create_task(pool.unreserve())
    users = [asyncio.create_task(pool.take(None)) for _ in range(SIZE)]
    await settled()
    assert (sum(user.done() for user in users), opener.open) == (1, SIZE)
    opener.closes.set()
    await asyncio.gather(ending, *users)
    assert opener.most == SIZE


async def test_a_statement_that_is_cancelled_when_it_is_its_turn(pool: Pool[str], opener: Counted) -> None:
    """Its permit goes back to everybody, also if the worker has just ended."""
    await pool.reserve(5)
    taken = await take_all(pool)
    waiting = asyncio.create_task(pool.take(URGENT))
    await settled()
    await pool.unreserve()
    await pool.give_back(taken[-1])  # now it is its turn
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for each in taken[:-1]:
        await pool.give_back(each)
    for _ in range(SIZE):
        await pool.take(None)
    assert opener.open == opener.most == SIZE


async def test_a_worker_that_is_cancelled_while_it_begins(pool: Pool[str], opener: Counted) -> None:
    for _ in range(SIZE):
        await pool.take(None)
    await give_back_all(pool)
    opener.closes.clear()
    beginning = asyncio.create_task(pool.reserve(5))
    await settled()
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    for _ in range(SIZE):
        await pool.take(None)
