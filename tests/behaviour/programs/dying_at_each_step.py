"""A worker that fires schedules and kills itself at one step after the other: dying_at_each_step URL SCENARIO

For each step that the scenario takes, this process forks another one. That one fires what its predecessor has left,
and checks that each tick has fired once. Then it makes a schedule of its own, fires it, and kills itself with SIGKILL
at that step. It goes on until one has no more steps to die at. Lines on stdout: one for each step, then "done".

A step is anything done to the database: a statement, the beginning of a transaction, its commit.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace
from tests.behaviour.programs.talking import say
from tests.behaviour.steps import SOON, Step, start
from tests.behaviour.watching import Points, watched

import queuert
from queuert import After, Attempt, Client, EntryJob, Every, Handlers, Schedule, Schedules, Tick, Worker
from queuert.base.statuses import TERMINAL
from queuert.features.schedules.service import Firing
from queuert.features.schedules.stored import CatchUp, State, encode, state_of
from queuert.records.schedules import read_chain_id

HOUR, INSTANT = timedelta(hours=1), timedelta(microseconds=1)


def anchored(now: datetime) -> tuple[datetime, list[datetime], Every]:
    """The first of four ticks that have passed, all of them, and when they are. The next one is half an hour away."""
    start = now.replace(microsecond=0) - timedelta(hours=3, minutes=30)
    return start, [start + HOUR * number for number in range(4)], Every(HOUR, start=start)


START, TICKS, HOURLY = anchored(datetime.now(UTC))


class Other(EntryJob[None], name="other"):
    """What workers have a handler for. Chains of schedules stay where they are."""


handlers = Handlers[Any]()


@handlers.handles(Other)
async def other(attempt: Attempt[Other]) -> None: ...


def connect(url: str) -> Client[Any]:
    return queuert.connect(url, jobs=[Step, Other])


async def fire(client: Client[Any], schedules: Schedules | None = None, worker_id: str = "w") -> None:
    """What the task of a worker does when it wakes up."""
    worker = Worker(client, handlers, schedules=[] if schedules is None else [schedules], recovery_backoff=SOON)
    options = worker._options
    firing = Firing(
        worker_id,
        client.sessions,
        client.sessions.channel,
        options.schedules,
        limit=options.limit,
        poll_interval=options.poll_interval,
        backoff=options.recovery_backoff,
        release=options.release,
    )
    await firing.drain()


async def run(client: Client[Any], program: Any) -> Any:
    return await client._run((program, None))


async def rewrite(client: Client[Any], name: str, due_at: datetime, **values: Any) -> None:
    """Change what is stored, as no program does: as if the time had passed."""
    state = client._engine.state
    (row,) = (await run(client, state.get_schedules([name]))).rows
    changed = encode(replace(state_of(row), **values))
    saved = await run(client, state.save_schedules([replace(row, due_at=due_at, next_at=due_at, state=changed)]))
    assert saved == [True]


async def stored(client: Client[Any], name: str) -> tuple[Schedule, State, list[tuple[datetime, int, bool]]]:
    """The schedule, and what its chains were started for: tick, place in the list, triggered."""
    (row,) = (await run(client, client._engine.state.get_schedules([name]))).rows
    schedule = await client.get_schedule(name)
    assert schedule is not None
    found: list[tuple[datetime, int, bool]] = []
    cursor = None
    while True:
        page = await client.list_chains(limit=1000, cursor=cursor)
        for chain in page.items:
            known = read_chain_id(chain.id)
            if known is not None and known.incarnation == row.incarnation:
                found.append((known.at, known.place, known.triggered))
        cursor = page.next_cursor
        if cursor is None:
            return schedule, state_of(row), sorted(found)


async def put(client: Client[Any], name: str, times: Any = None, **options: Any) -> None:
    async with client.transaction() as tx:
        await client.put_schedule(tx, name, times or HOURLY, Step(), **options)


def once_each(ticks: list[datetime], places: int = 1) -> list[tuple[datetime, int, bool]]:
    return [(tick, place, False) for tick in ticks for place in range(places)]


def function(name: str, catch_up: CatchUp = "last") -> Schedules:
    """A schedule whose function makes two jobs."""
    schedules = Schedules()

    @schedules.every(HOUR, name=name, start=START, catch_up=catch_up)
    def make(tick: Tick) -> list[Step]:
        return [Step(number=1), Step(number=2)]

    return schedules


# Scenarios: what is there before, and what must be there in the end.


@dataclass(frozen=True)
class Scenario:
    prepare: Callable[[Client[Any], str], Awaitable[None]]
    check: Callable[[Client[Any], str], Awaitable[None]]
    schedules: Callable[[str], Schedules | None] = lambda name: None


async def _ticks(client: Client[Any], name: str) -> None:
    await put(client, name, catch_up="all")
    await rewrite(client, name, START, horizon=START - INSTANT)


async def _ticks_fired(client: Client[Any], name: str) -> None:
    schedule, _, found = await stored(client, name)
    assert found == once_each(TICKS), found
    assert schedule.next_at == TICKS[-1] + HOUR
    assert schedule.last_tick == TICKS[-1]


async def _function(client: Client[Any], name: str) -> None:
    await fire(client, function(name, catch_up="all"))
    await rewrite(client, name, START, horizon=START - INSTANT)


async def _function_fired(client: Client[Any], name: str) -> None:
    schedule, _, found = await stored(client, name)
    assert found == once_each(TICKS, places=2), found
    assert schedule.next_at == TICKS[-1] + HOUR


async def _overlapping(client: Client[Any], name: str, **options: Any) -> None:
    """The chain of the tick before the last has not ended."""
    await put(client, name, **options)
    (chain,) = await start(client, 1)
    await rewrite(client, name, TICKS[-1], horizon=TICKS[-2], last_tick=TICKS[-2], last_chains=(chain.id,))


async def _cancel(client: Client[Any], name: str) -> None:
    await _overlapping(client, name, overlap="cancel")


async def _cancelled(client: Client[Any], name: str) -> None:
    schedule, state, found = await stored(client, name)
    assert found == once_each(TICKS[-1:]), found
    assert state.cancelling == ()
    open_chains = [chain for chain in (await client.list_chains(limit=1000)).items if chain.status not in TERMINAL]
    mine = [chain.id for chain in open_chains if chain.id in schedule.last_chain_ids]
    assert len(mine) == 1, mine
    # All others of earlier rounds were cancelled, or are the last chains of theirs.
    assert all(read_chain_id(chain.id) is not None for chain in open_chains), open_chains


async def _skip(client: Client[Any], name: str) -> None:
    await _overlapping(client, name, overlap="skip")


async def _skipped(client: Client[Any], name: str) -> None:
    schedule, _, found = await stored(client, name)
    assert found == [], found
    assert (schedule.skips, schedule.skipped_at) == (1, TICKS[-1])


async def _queue(client: Client[Any], name: str) -> None:
    """A tick waits for a chain that has just ended."""
    await _overlapping(client, name, overlap="queue")
    await fire(client)
    schedule, state, found = await stored(client, name)
    assert (found, schedule.queued) == ([], TICKS[-1])
    async with client.transaction() as tx:
        await client.cancel(tx, state.last_chains[0])
    await rewrite(client, name, datetime.now(UTC) - HOUR)


async def _queued_fired(client: Client[Any], name: str) -> None:
    schedule, _, found = await stored(client, name)
    assert found == once_each(TICKS[-1:]), found
    assert (schedule.queued, schedule.skips) == (None, 0)


async def _after(client: Client[Any], name: str) -> None:
    """A run has just ended, and the next one is due."""
    await put(client, name, After(timedelta(milliseconds=1)))
    await fire(client)
    schedule, _, found = await stored(client, name)
    assert len(found) == 1
    async with client.transaction() as tx:
        await client.cancel(tx, schedule.last_chain_ids[0])
    await rewrite(client, name, datetime.now(UTC) - HOUR)


async def _after_fired(client: Client[Any], name: str) -> None:
    schedule, _, found = await stored(client, name)
    assert len(found) == 2, found
    assert schedule.status == "waiting"
    chain = await client.get_chain(schedule.last_chain_ids[0])
    assert chain is not None
    assert chain.status == "pending"


async def _backfill(client: Client[Any], name: str) -> None:
    await put(client, name)
    async with client.transaction() as tx:
        assert await client.backfill(tx, name, START, datetime.now(UTC)) == len(TICKS)


async def _backfilled(client: Client[Any], name: str) -> None:
    schedule, state, found = await stored(client, name)
    assert found == once_each(TICKS), found
    assert state.backfills == ()
    assert schedule.next_at == TICKS[-1] + HOUR


async def _trigger(client: Client[Any], name: str) -> None:
    await fire(client, function(name))
    async with client.transaction() as tx:
        assert await client.trigger_schedule(tx, name) is None
        assert await client.trigger_schedule(tx, name) is None


async def _triggered(client: Client[Any], name: str) -> None:
    _, state, found = await stored(client, name)
    assert [(place, triggered) for _, place, triggered in found] == [(0, True), (1, True)] * 2, found
    assert state.triggers == ()


SCENARIOS: dict[str, Scenario] = {
    "ticks": Scenario(_ticks, _ticks_fired),
    "function": Scenario(_function, _function_fired, lambda name: function(name, catch_up="all")),
    "cancel": Scenario(_cancel, _cancelled),
    "skip": Scenario(_skip, _skipped),
    "queue": Scenario(_queue, _queued_fired),
    "after": Scenario(_after, _after_fired),
    "backfill": Scenario(_backfill, _backfilled),
    "trigger": Scenario(_trigger, _triggered, function),
}


# Processes


def in_a_fork(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """The id of a process that does this, and nothing else."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        asyncio.run(work())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    """Its exit code; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def deadly(points: Points, number: int, report: int) -> None:
    """Die at this step, and tell which it was."""
    steps = 0

    def visit(point: str) -> None:
        nonlocal steps
        if point.endswith(".done") or point == "begun":
            return  # the next step begins there, too
        if steps == number:
            os.write(report, point.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    points.visit = visit


async def check_and_die(url: str, scenario: Scenario, number: int, report: int) -> None:
    """Finish what the one before has begun. Then die at this step, or do not, if there are not so many."""
    async with connect(url) as client:
        if number:
            await fire_and_check(client, scenario, f"s{number - 1}")
        name = f"s{number}"
        await scenario.prepare(client, name)
        points = Points(records=False)
        deadly(points, number, report)
        await fire(watched(client, points), scenario.schedules(name))
        await fire_and_check(client, scenario, name)


async def fire_and_check(client: Client[Any], scenario: Scenario, name: str) -> None:
    # The locks of one that was killed may be held until its server notices.
    for _ in range(600):
        await fire(client, scenario.schedules(name))
        with suppress(AssertionError):
            await scenario.check(client, name)
            return
        await asyncio.sleep(0.05)
    await scenario.check(client, name)


def each_step(url: str, scenario: Scenario) -> None:
    number, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        reading, writing = os.pipe()
        code = ended(in_a_fork(partial(check_and_die, url, scenario, number, writing)))
        os.close(writing)
        say(f"{number} {os.read(reading, 100).decode()}")
        os.close(reading)
        number += 1
    assert code == 0, number


# Three workers at once


RACERS, ROUNDS, SCHEDULES = 3, 4, 6


def declared(number: str) -> Schedules:
    schedules = Schedules()
    for each in range(SCHEDULES):

        @schedules.every(HOUR, name=f"function-{number}-{each}", start=START, catch_up="all")
        def make(tick: Tick) -> list[Step]:
            return [Step(number=1), Step(number=2)]

    return schedules


async def prepare_race(client: Client[Any], number: str) -> None:
    await fire(client, declared(number))
    for each in range(SCHEDULES):
        await put(client, f"stored-{number}-{each}", catch_up="all")
        for kind in ("stored", "function"):
            await rewrite(client, f"{kind}-{number}-{each}", START, horizon=START - INSTANT)


async def check_and_prepare(url: str, number: int) -> None:
    async with connect(url) as client:
        if number:
            await fire_and_check(client, RACE, str(number - 1))
        if number < ROUNDS:
            await RACE.prepare(client, str(number))


async def race(url: str, number: str, steps: int | None, report: int) -> None:
    async with connect(url) as client:
        points = Points(records=False)
        if steps is not None:
            deadly(points, steps, report)
        await fire(watched(client, points), declared(number), f"w{os.getpid()}")


async def check_race(client: Client[Any], number: str) -> None:
    for each in range(SCHEDULES):
        for kind, places in (("stored", 1), ("function", 2)):
            _, _, chains = await stored(client, f"{kind}-{number}-{each}")
            assert chains == once_each(TICKS, places), (kind, number, each, chains)


RACE = Scenario(prepare_race, check_race, declared)


def three_at_once(url: str) -> None:
    weather = random.Random(3)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in range(ROUNDS):
        assert ended(in_a_fork(partial(check_and_prepare, url, number))) == 0
        deaths = [weather.choice([None, weather.randrange(5, 30)]) for _ in range(RACERS)]
        racers = [in_a_fork(partial(race, url, str(number), steps, nowhere)) for steps in deaths]
        codes = [ended(pid) for pid in racers]
        assert set(codes) <= {0, -signal.SIGKILL}, codes
        say(str(codes))
    assert ended(in_a_fork(partial(check_and_prepare, url, ROUNDS))) == 0


def main() -> None:
    url, name = sys.argv[1:]
    if name == "three at once":
        three_at_once(url)
    else:
        each_step(url, SCENARIOS[name])
    say("done")


if __name__ == "__main__":
    main()
