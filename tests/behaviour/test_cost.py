"""What a job costs, and what an idle worker does: counted, not timed."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.counting import Statements, counted
from tests.behaviour.steps import Step, done, eventually, start

from queuert import Attempt, Handlers, Worker


def no_op() -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), [0]

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran[0] += 1
        return 0

    return handlers, ran


async def test_statements_per_job(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """BEGIN, COMMIT and savepoints included; with 200 slots, which claim 200 jobs at a time."""
    handlers, ran = no_op()
    client, statements = counted(setting, [Step], monkeypatch)
    async with client:
        for _ in range(2):
            await start(client, 1000)
        before, texts = statements.number, len(statements.texts)
        await Worker(client, handlers, concurrency=200, poll_interval=setting.poll_interval).drain()
        assert ran == [2000]
        # On SQLite, 0.06 if the machine is quiet. A busy one claims and settles fewer jobs at a time: 0.101 was seen.
        assert (statements.number - before) / 2000 < 0.15, statements.number - before
        # Statistics are one statement of a transaction that changes jobs, however many jobs it changes.
        kinds = [text.split(" (")[0] for text in statements.texts[texts:]]
        assert kinds.count("INSERT INTO queuert_history") <= kinds.count("BEGIN IMMEDIATE")


async def test_one_job_at_a_time(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price of one slot: a claim for each job, but the settlements go together."""
    handlers, ran = no_op()
    client, statements = counted(setting, [Step], monkeypatch)
    async with client:
        await start(client, 500)
        before = statements.number
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert ran == [500]
        assert (statements.number - before) / 500 < 20


async def test_nothing_is_kept_for_each_job(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer, no listener, no lock, no thread: only a task for each attempt."""
    handlers, _ = no_op()
    made = {"timers": 0, "locks": 0, "threads": 0, "listeners": 0}
    loop = asyncio.get_running_loop()

    def counting(what: str, function: Any) -> Any:
        def count(*args: Any, **options: Any) -> Any:
            made[what] += 1
            return function(*args, **options)

        return count

    async with setting.connect([Step]) as client:
        await start(client, 1000)
        monkeypatch.setattr(loop, "call_at", counting("timers", loop.call_at))
        monkeypatch.setattr(threading, "Lock", counting("locks", threading.Lock))
        monkeypatch.setattr(threading.Thread, "start", counting("threads", threading.Thread.start))
        monkeypatch.setattr(asyncio.Lock, "__init__", counting("locks", asyncio.Lock.__init__))
        monkeypatch.setattr(client.sessions.channel, "listen", counting("listeners", client.sessions.channel.listen))
        await Worker(client, handlers, concurrency=100, poll_interval=3600).drain()
        monkeypatch.undo()
        assert await done(client, 1000)
    # Ten claims, ten settlements, some moves of the horizon, each with a deadline; a few turns of the loop; a thousand
    # jobs.
    assert made["timers"] < 300, made
    assert made["locks"] < 40, made
    assert made["threads"] < 10, made
    assert made["listeners"] == 4, made  # the worker's three topics, and that of schedules


async def polls(statements: Statements, setting: Setting, number: int) -> int:
    """Let the worker poll so many times, and say how much it has asked meanwhile."""

    def polled() -> int:
        if setting.state != "sqlite":
            return statements.points.counts["next_available_in"]
        return sum(text.startswith("SELECT min(") for text in statements.texts)

    first = polled()
    before = statements.number
    await eventually(lambda: polled() >= first + number)
    return statements.number - before


@pytest.mark.parametrize("later", [0, 2000])
async def test_an_idle_worker(setting: Setting, later: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three statements per poll at most, however many jobs wait for their time."""
    handlers, ran = no_op()
    client, statements = counted(setting, [Step], monkeypatch)
    async with client:
        for _ in range(later // 1000):
            await start(client, 1000, after=36_000)
        async with Worker(client, handlers, concurrency=10, poll_interval=0.05):
            await eventually(lambda: statements.number > 0)
            await polls(statements, setting, 2)
            asked = await polls(statements, setting, 10)
            assert asked <= 3 * 11
    assert ran == [0]


async def memory_after(client: Any, worker: Worker, batches: int, size: int) -> int:
    """Bytes in use once so many batches of jobs are done and deleted."""

    async def batch() -> None:
        chains = await start(client, size)
        await worker.drain()
        async with client.transaction() as tx:
            await client.delete(tx, chains)

    for _ in range(batches):
        await batch()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def growth(setting: Setting, batches: int, size: int) -> int:
    handlers, ran = no_op()
    async with setting.connect([Step]) as client:
        async with Worker(client, handlers, concurrency=200, poll_interval=setting.poll_interval) as worker:
            tracemalloc.start()
            try:
                after_one = await memory_after(client, worker, 1, size)
                after_all = await memory_after(client, worker, batches, size)
            finally:
                tracemalloc.stop()
        assert ran == [size * (batches + 1)]
    return after_all - after_one


async def test_memory_does_not_grow(setting: Setting) -> None:
    """An id that is kept for each job would take 85 bytes. Small caches may fill."""
    assert await growth(setting, 10, 200) < 60 * 2000


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_memory_after_a_hundred_thousand_jobs(setting: Setting) -> None:
    """What it was after the first thousand, but for a caches' worth: less than two bytes for each job."""
    assert await growth(setting, 100, 1000) < 2 * 100_000
