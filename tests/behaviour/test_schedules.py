"""Schedules fired by workers: when, once, with what, and what happens if a function fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, patiently
from tests.behaviour.watching import Points, watched
from tests.observability.recorder import Recorder
from tests.support.schedules import make_due

from queuert import (
    After,
    Attempt,
    Client,
    Cron,
    Debounce,
    EntryJob,
    Every,
    Handlers,
    InvalidArgument,
    Limit,
    Schedule,
    Schedules,
    StorageRejected,
    Tick,
    Worker,
)
from queuert.features.schedules import planning

pytestmark = pytest.mark.in_turn

HOUR = timedelta(hours=1)
FAR = timedelta(days=365)


class Light(EntryJob[None], name="light"):
    pass


class Limited(EntryJob[None], name="limited", limit=Limit(by="tenant", concurrency=1)):
    tenant: int


class TooSlow(Exception):
    """The time was over before the schedule was stored."""


Test = Callable[..., Coroutine[Any, Any, None]]
DELAYS = (0.7, 2.5, 10.0)
_delay = ContextVar("delay", default=DELAYS[0])


def soon(seconds: float | None = None) -> datetime:
    """In a moment. Tests with one tick only are `in_time`: the machine may be too slow to store it by then."""
    return datetime.now(UTC) + timedelta(seconds=_delay.get() if seconds is None else seconds)


def in_time(test: Test) -> Test:
    """Try it again, with more time, where a busy machine has not stored the schedule before its tick."""

    @wraps(test)
    async def tried(setting: Setting, **others: Any) -> None:
        for number, delay in enumerate(DELAYS):
            _delay.set(delay)
            try:
                await test(setting=setting.anew() if number else setting, **others)
            except TooSlow:
                continue
            return
        pytest.skip("the machine is too slow: the time was over before the schedule was stored")

    return tried


def once_soon() -> Every:
    """One tick in a moment, and no other in the time of a test."""
    return Every(HOUR, start=soon())


def handlers(ran: list[int] | None = None) -> Handlers[Any]:
    made = Handlers[Any]()

    @made.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if ran is not None:
            ran.append(attempt.job.number)
        return attempt.job.number

    @made.handles(Light)
    async def light(attempt: Attempt[Light]) -> None:
        del attempt

    return made


async def put(client: Client[Any], name: str, times: Any, job: Any = None, **options: Any) -> Schedule:
    async with client.transaction() as tx:
        return await client.put_schedule(tx, name, times, job or Step(number=1), **options)


async def get(client: Client[Any], name: str) -> Schedule:
    found = await client.get_schedule(name)
    assert found is not None
    return found


async def steps(client: Client[Any]) -> list[int]:
    """The numbers of all steps that were started, in the order of their ids."""
    return [each.job.number for each in (await client.list_jobs(Step, limit=1000)).items]


def is_fired(client: Client[Any], name: str) -> Callable[[], Any]:
    """Whether it has fired. A machine may be so slow that it is stored only after its first tick."""
    in_time = False

    async def check() -> bool:
        nonlocal in_time
        found = await client.get_schedule(name)
        if found is None or found.last_tick is not None:
            return found is not None
        start: datetime | None = getattr(found.times, "start", None)
        in_time = in_time or start is None or datetime.now(UTC) < start
        if not in_time and start is not None and found.next_at is not None and found.next_at > start:
            raise TooSlow
        return False

    return check


@asynccontextmanager
async def working(
    setting: Setting, client: Client[Any], *schedules: Schedules, **options: Any
) -> AsyncGenerator[Worker]:
    options.setdefault("poll_interval", setting.poll_interval)
    async with Worker(client, options.pop("handlers", None) or handlers(), schedules=schedules, **options) as worker:
        yield worker


@pytest.mark.channels
@in_time
async def test_an_idle_worker_wakes_for_a_schedule_that_a_client_puts(setting: Setting) -> None:
    """It would look for itself only much later: it is told, and then it knows the time."""
    async with setting.connect([Step, Light]) as client, working(setting, client):
        made = await put(client, "s", once_soon(), Step(number=7))
        await eventually(is_fired(client, "s"))
        schedule = await get(client, "s")
        (chain_id,) = schedule.last_chain_ids
        assert await client.wait(chain_id, timeout=PATIENCE) == 7
        chain = await client.get_chain(chain_id)
        assert chain is not None
        assert chain.tick is not None
        assert abs(chain.tick - (schedule.last_tick or chain.tick)) < timedelta(milliseconds=1)
        assert made.next_at is not None
        assert schedule.last_tick == made.next_at
        assert chain.created_at is not None
        assert chain.created_at >= made.next_at
        assert schedule.next_at == made.next_at + HOUR
        assert await steps(client) == [7]


@pytest.mark.drivers
@in_time
async def test_functions_make_the_jobs(setting: Setting) -> None:
    schedules, ticks, threads = Schedules(), list[Tick](), list[bool]()

    @schedules.every(HOUR, start=soon(), tz="Europe/Berlin")
    def plain(tick: Tick) -> Step:
        threads.append(threading.current_thread() is not threading.main_thread())
        ticks.append(tick)
        return Step(number=1)

    @schedules.every(HOUR, start=soon(), name="a list")
    async def several(tick: Tick) -> list[Step]:
        threads.append(threading.current_thread() is threading.main_thread())
        assert tick.schedule == "a list"
        return [Step(number=2), Step(number=3).set(priority=7)]

    @schedules.every(HOUR, start=soon())
    def nothing(tick: Tick) -> None:
        assert tick.at.tzinfo is UTC

    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):
        for name in ("plain", "a list", "nothing"):
            await eventually(is_fired(client, name))
        assert sorted(await steps(client)) == [1, 2, 3]
        assert threads == [True, True]
        assert ticks[0].local.tzname() in ("CET", "CEST")
        schedule = await get(client, "a list")
        first, second = schedule.last_chain_ids
        assert [await client.wait(each, timeout=PATIENCE) for each in (first, second)] == [2, 3]
        job = await client.get_job(second)
        assert job is not None
        assert job.priority == 7
        assert (await get(client, "nothing")).last_chain_ids == ()
        assert (schedule.declared, schedule.job_type, schedule.input) == (True, None, None)


@in_time
async def test_declared_jobs(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    if setting.notify is None:
        monkeypatch.setattr(planning, "LOOK_AGAIN", (timedelta(milliseconds=20), timedelta(seconds=1)))
    schedules, ran = Schedules(), list[int]()
    schedules.every(HOUR, Step(number=1), start=soon(), name="every")
    schedules.cron("* * * * *", Light())
    schedules.after(timedelta(milliseconds=20), Step(number=2))
    async with setting.connect([Step, Light]) as client, working(setting, client, schedules, handlers=handlers(ran)):
        # The end of each run is announced: nobody waits for the next look.
        await eventually(is_fired(client, "every"))
        await eventually(lambda: ran.count(2) >= 3 and 1 in ran)
        found = await client.list_schedules()
        assert [each.name for each in found.items] == ["every", "light", "step"]
        assert found.items[1].times == Cron("* * * * *")
        assert found.items[2].times == After(timedelta(milliseconds=20))


@pytest.mark.parametrize(
    "kind",
    ["raises", "exits", "async exits", "cancelled", "type", "unknown", "id", "too many", "slow", "slow thread"],
)
async def test_a_function_that_fails_is_recorded_and_tried_again(
    setting: Setting, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And stops nothing else. As soon as it works again, the tick fires."""
    monkeypatch.setattr(planning, "RETRY", (timedelta(milliseconds=50), timedelta(milliseconds=100)))
    schedules, broken, release = Schedules(), True, threading.Event()

    class Unknown(EntryJob[None], name="unknown"):
        pass

    def made(tick: Tick) -> Any:
        if not broken:
            return Step(number=1)
        if kind == "raises":
            raise ValueError(f"no {tick.schedule}")
        if kind == "exits":
            raise SystemExit(3)
        results: dict[str, Any] = {
            "type": "text",
            "unknown": Unknown(),
            "id": Step().set(id="0190a5b0-0000-7000-8000-000000000000"),
            "too many": [Step()] * 1001,
        }
        return results[kind]

    if kind == "slow":

        @schedules.after(HOUR, name="bad", timeout=0.02)
        async def slow(tick: Tick) -> Any:
            await asyncio.sleep(0 if not broken else HOUR.total_seconds())
            return Step(number=1)

    elif kind in ("async exits", "cancelled"):

        @schedules.after(HOUR, name="bad")
        async def ends_the_loop(tick: Tick) -> Any:
            if broken:
                raise SystemExit(3) if kind == "async exits" else asyncio.CancelledError
            return Step(number=1)

    elif kind == "slow thread":

        @schedules.after(HOUR, name="bad", timeout=0.5)
        def slow_thread(tick: Tick) -> Any:
            if broken:
                release.wait(PATIENCE)
            return Step(number=1)

    else:
        schedules.after(HOUR, name="bad")(made)
    schedules.after(HOUR, Step(number=2), name="good")
    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):
        await eventually(is_fired(client, "good"))

        async def failing() -> bool:
            return (await get(client, "bad")).errors > 1

        await eventually(failing)
        schedule = await get(client, "bad")
        texts = {
            "raises": "ValueError: no bad",
            "exits": "it raised SystemExit: 3",
            "async exits": "it raised SystemExit: 3",
            "cancelled": "it raised CancelledError",
            "type": "must return a job, a list of jobs or None, got str",
            "unknown": "unknown",
            "id": "cannot have an id of its own",
            "too many": "returned 1001 jobs",
            "slow": "it took longer than 0.02 s",
            "slow thread": "it took longer than 0.5 s",
        }
        assert schedule.error is not None
        assert texts[kind] in schedule.error
        assert (schedule.status, schedule.last_tick) == ("failing", None)
        assert "failing, " in str(schedule)
        assert any("schedule bad could not be fired" in record.getMessage() for record in caplog.records)
        broken = False
        release.set()
        await eventually(is_fired(client, "bad"))
        schedule = await get(client, "bad")
        assert (schedule.error, schedule.errors) == (None, 0)
        assert sorted(await steps(client)) == [1, 2]


async def test_a_worker_of_an_older_release_has_a_job_where_others_have_a_function(setting: Setting) -> None:
    """It leaves the schedule to them, also when it hears that a chain has ended."""
    schedules, newer = Schedules(), Schedules()
    schedules.after(HOUR, Step(number=1), name="s")
    newer.after(HOUR, name="s")(lambda tick: Step(number=2))
    async with setting.connect([Step, Light]) as client, working(setting, client, schedules, release="a") as worker:
        await eventually(is_fired(client, "s"))
        async with working(setting, client, newer, release="b"):

            async def is_newer() -> bool:
                return (await get(client, "s")).release == "b"

            await eventually(is_newer)
        assert worker._run is not None
        firing = worker._run._firing
        assert (await firing._fire(["s"])).functions == ["s"]
        assert not firing._calls
        assert (await get(client, "s")).error is None


@in_time
async def test_two_workers_call_a_function_and_one_of_them_fires(setting: Setting) -> None:
    """Both have called it before either has stored anything: the second one drops its result."""
    both, calls = asyncio.Barrier(2), 0

    def declared(number: int) -> Schedules:
        schedules = Schedules()

        @schedules.every(HOUR, start=start, name="s")
        async def function(tick: Tick) -> Step:
            nonlocal calls
            calls += 1
            await both.wait()
            return Step(number=number)

        return schedules

    start = soon()
    async with setting.connect([Step, Light]) as client, setting.connect([Step, Light]) as other:
        options = {"poll_interval": 0.05}
        first, second = (
            working(setting, client, declared(1), **options),
            working(setting, other, declared(2), **options),
        )
        async with first, second:
            await eventually(is_fired(client, "s"))
            await eventually(lambda: calls == 2)
        assert len(await steps(client)) == 1
        schedule = await get(client, "s")
        assert schedule.times is not None
        assert schedule.times is not None
        assert (schedule.errors, schedule.last_tick) == (0, schedule.times.start)


async def test_a_schedule_that_is_triggered_and_backfilled(setting: Setting) -> None:
    schedules, at = Schedules(), list[tuple[datetime, datetime]]()

    @schedules.cron("0 3 * * *", tz="Europe/Berlin")
    def nightly(tick: Tick) -> Step:
        at.append((tick.at, tick.local))
        return Step(number=tick.local.hour)

    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):

        async def declared() -> bool:
            return await client.get_schedule("nightly") is not None

        await eventually(declared)
        async with client.transaction() as tx:
            assert await client.trigger_schedule(tx, "nightly") is None
        await eventually(lambda: len(at) == 1)
        async with client.transaction() as tx:
            number = await client.backfill(tx, "nightly", datetime.now(UTC) - timedelta(days=60), datetime.now(UTC))
        assert number in (59, 60, 61)

        async def all_started() -> bool:
            return len(await steps(client)) == 1 + number

        await eventually(all_started)
        # It may be called twice for a tick, and starts its job once.
        assert all(local.hour == 3 for moment, local in at if moment != at[0][0])
        assert len({moment for moment, _ in at}) == 1 + number


async def test_a_backfill_that_always_fails_stops_no_tick(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "RETRY", (timedelta(milliseconds=50), timedelta(milliseconds=100)))
    schedules, since = Schedules(), datetime.now(UTC)

    @schedules.every(timedelta(milliseconds=200))
    def often(tick: Tick) -> Step:
        if tick.at < since:
            raise ValueError("there is nothing of that time")
        return Step(number=1)

    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):
        await eventually(is_fired(client, "often"))
        async with client.transaction() as tx:
            assert await client.backfill(tx, "often", since - timedelta(hours=1), since - timedelta(minutes=59)) == 300

        async def is_failing() -> bool:
            return (await get(client, "often")).errors > 1

        await eventually(is_failing)
        before = len(await steps(client))

        async def goes_on() -> bool:
            return len(await steps(client)) > before + 1

        await eventually(goes_on)
        schedule = await get(client, "often")
        assert (schedule.status, schedule.error) == ("failing", "ValueError: there is nothing of that time")


async def test_one_bad_tick_of_a_backfill_holds_up_nothing_behind_it(setting: Setting) -> None:
    schedules, bad, called = Schedules(), datetime(2026, 1, 1, 3, tzinfo=UTC), list[datetime]()

    @schedules.every(HOUR)
    def hourly(tick: Tick) -> Step:
        called.append(tick.at)
        if tick.at == bad:
            raise ValueError("there is nothing of that hour")
        return Step(number=tick.at.hour)

    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):

        async def declared() -> bool:
            return await client.get_schedule("hourly") is not None

        await eventually(declared)
        async with client.transaction() as tx:
            assert await client.backfill(tx, "hourly", bad - 2 * HOUR, bad + 3 * HOUR) == 5
            await client.trigger_schedule(tx, "hourly")

        async def others_fired() -> bool:
            return len(await steps(client)) == 5

        await eventually(others_fired)
        assert {1, 2, 4, 5} <= set(await steps(client))

        async def is_shown() -> bool:
            return len((await get(client, "hourly")).failing_ticks) == 1

        await eventually(is_shown)
        schedule = await get(client, "hourly")
        (failing,) = schedule.failing_ticks
        assert (schedule.status, schedule.error) == ("failing", "ValueError: there is nothing of that hour")
        assert (failing.at, failing.triggered, failing.error) == (bad, False, schedule.error)
        assert failing.retry_at > failing.error_at
        assert "the tick of 2026-01-01" in str(schedule)
        assert "there is nothing of that hour" in str(schedule)
        assert called.count(bad) == failing.errors


async def test_a_tick_whose_jobs_are_refused_holds_up_no_other(setting: Setting) -> None:
    """Not the function fails, but storing what it has made."""
    schedules, bad = Schedules(), datetime(2026, 1, 1, 3, tzinfo=UTC)

    @schedules.every(HOUR)
    def hourly(tick: Tick) -> Step:
        job = Step(number=tick.at.hour)
        return job.set(id="00000000-0000-7000-8000-000000000000") if tick.at == bad else job

    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):

        async def declared() -> bool:
            return await client.get_schedule("hourly") is not None

        await eventually(declared)
        async with client.transaction() as tx:
            assert await client.backfill(tx, "hourly", bad - 2 * HOUR, bad + 3 * HOUR) == 5

        async def others_fired() -> bool:
            return set(await steps(client)) == {1, 2, 4, 5}

        await eventually(others_fired)

        async def is_shown() -> bool:
            return [each.at for each in (await get(client, "hourly")).failing_ticks] == [bad]

        await eventually(is_shown)


async def test_jobs_of_ticks_are_merged_under_their_key(setting: Setting) -> None:
    schedules = Schedules()

    def both(waiting: Step, new: Step) -> Step:
        return Step(number=waiting.number + new.number)

    @schedules.every(HOUR)
    def hourly(tick: Tick) -> list[Step]:
        return [Step(number=1).set(dedup=Debounce("key", wait=HOUR, at_most=24 * HOUR, merge=both)), Step(number=100)]

    async with setting.connect([Step, Light]) as client, working(setting, client, schedules):

        async def declared() -> bool:
            return await client.get_schedule("hourly") is not None

        await eventually(declared)
        now = datetime.now(UTC)
        async with client.transaction() as tx:
            number = await client.backfill(tx, "hourly", now - timedelta(days=3), now)

        async def is_done() -> bool:
            return (await steps(client)).count(100) == number

        await eventually(is_done)
        assert sorted(await steps(client))[0] == number


async def test_a_job_of_a_type_with_a_limit_counts_for_it(setting: Setting) -> None:
    gate, begun = Gate(), list[int]()
    slow = Handlers[Any]()

    @slow.handles(Limited)
    async def limited(attempt: Attempt[Limited]) -> None:
        begun.append(attempt.job.tenant)
        await gate()

    async with setting.connect([Limited]) as client:
        for name, tenant in (("a", 1), ("b", 1), ("c", 2)):
            await put(client, name, Every(HOUR), Limited(tenant=tenant))
            async with client.transaction() as tx:
                await client.trigger_schedule(tx, name)
        await make_due(client, "a", "b")
        async with working(setting, client, handlers=slow, concurrency=10):
            await eventually(lambda: sorted(begun) == [1, 2])

            async def all_started() -> bool:
                return len((await client.list_jobs(Limited)).items) == 5

            await eventually(all_started)
            rows = {row.key: (row.running, row.waiting) for row in (await client.list_limits()).items if row.key}
            assert rows == {"1": (1, 3), "2": (1, 0)}
            gate.open()


async def test_queued_ticks_fire_when_the_chain_ends(setting: Setting) -> None:
    gate, ran = Gate(), list[int]()
    slow = Handlers[Any]()

    @slow.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        if len(ran) == 1:
            await gate()
        return 1

    async with setting.connect([Step]) as client, working(setting, client, handlers=slow):
        times = Every(timedelta(milliseconds=300), start=soon(0.3))
        await put(client, "s", times, overlap="queue")
        await gate.arrival()

        async def is_queued() -> bool:
            return (await get(client, "s")).skips >= 2

        await eventually(is_queued)
        schedule = await get(client, "s")
        assert schedule.queued is not None
        assert len(await steps(client)) == 1
        await put(client, "s", Every(FAR, start=soon(FAR.total_seconds() / 2)), overlap="queue")
        queued = await get(client, "s")
        assert queued.queued is None, "other times count from now"
        await put(client, "t", Every(timedelta(milliseconds=300), start=soon(0.3)), Step(number=2), overlap="queue")
        gate.open()
        await eventually(lambda: ran.count(2) >= 3)


async def test_a_later_tick_cancels_the_chain_of_an_earlier_one(setting: Setting) -> None:
    cancelled = asyncio.Event()
    slow = Handlers[Any]()

    @slow.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        try:
            await asyncio.sleep(HOUR.total_seconds())
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 1

    # The end of the lease tells it where no message can.
    options: dict[str, Any] = {"lease": 1.0, "shutdown_timeout": 0.1}
    async with setting.connect([Step]) as client, working(setting, client, handlers=slow, **options):
        await put(client, "s", Every(timedelta(seconds=1), start=soon(0.3)), overlap="cancel")
        await patiently(cancelled.wait())
        chains = (await client.list_chains(Step)).items
        assert chains[0].status == "cancelled"
        assert len(chains) >= 2


@pytest.mark.parametrize("lost", ["never", "between"])
async def test_a_cancellation_that_was_recorded_is_carried_out_by_another(setting: Setting, lost: str) -> None:
    """The worker that fired the later tick fails before it has cancelled the earlier chain."""
    points = Points()
    async with setting.connect([Step, Light]) as client:
        failing = watched(client, points)
        if lost == "between":
            points.fail_times("cancel_chains", 1)
        await put(client, "s", Every(timedelta(seconds=1), start=soon(0.3)), Light(), overlap="cancel")
        idle = Handlers[Any]()

        @idle.handles(Step)
        async def step(attempt: Attempt[Step]) -> int:
            return attempt.job.number

        async with working(setting, failing, handlers=idle):

            async def is_cancelled() -> bool:
                return bool((await client.list_chains(Light, status="cancelled")).items)

            await eventually(is_cancelled)
        assert points.counts["cancel_chains"] >= (2 if lost == "between" else 1)


@in_time
async def test_observers_are_told(setting: Setting) -> None:
    recorder, schedules = Recorder(), Schedules()

    @schedules.after(HOUR, name="bad")
    def bad(tick: Tick) -> Step:
        raise ValueError("no")

    async with setting.connect([Step, Light], observers=[recorder]) as client, working(setting, client, schedules):
        made = await put(client, "s", once_soon())
        await eventually(is_fired(client, "s"))
        await eventually(lambda: "schedule_failed" in recorder.names())
        fired = recorder.one("schedule_fired")
        assert (fired["schedule"], fired["tick"]) == ("s", made.next_at and made.next_at.isoformat())
        assert fired["chain_ids"] == list((await get(client, "s")).last_chain_ids)
        assert 0 <= fired["lag"] < PATIENCE
        assert fired["triggered"] is False
        assert fired["worker_id"].startswith("worker-")
        failed = recorder.of("schedule_failed")[0]
        assert (failed["schedule"], failed["error_message"]) == ("bad", "ValueError: no")
        assert failed["retry_in"] == planning.RETRY[0].total_seconds()


async def test_draining_fires_what_is_due(setting: Setting) -> None:
    schedules, ran = Schedules(), list[int]()

    @schedules.every(HOUR, start=datetime.now(UTC) - timedelta(minutes=1))
    def function(tick: Tick) -> Step:
        return Step(number=2)

    async with setting.connect([Step, Light]) as client:
        await put(client, "s", After(HOUR))
        async with client.transaction() as tx:
            await client.pause_schedule(tx, "s", until=0.001)
        await asyncio.sleep(0.01)
        worker = Worker(client, handlers(ran), schedules=[schedules], poll_interval=setting.poll_interval)
        await patiently(worker.drain())
        assert ran == [1]
        async with client.transaction() as tx:
            await client.trigger_schedule(tx, "function")
        await patiently(worker.drain())
        assert ran == [1, 2]


async def test_a_schedule_that_the_database_refuses_stops_no_other(setting: Setting) -> None:
    """The pages become smaller until it is alone. Then it is recorded, and left out for a while."""
    points = Points()

    def refuse(point: str) -> None:
        name, args = points.calls[-1]
        if point == name == "create_jobs" and any(new.type_name == "light" for new in args[0]):
            raise StorageRejected("not this one")

    points.visit = refuse
    async with setting.connect([Step, Light]) as client:
        for number in range(10):
            await put(client, f"s{number}", After(HOUR), Light() if number == 3 else Step(number=number))
        failing = watched(client, points)
        async with working(setting, failing, recovery_backoff=SOON, poll_interval=0.05):

            async def all_others() -> bool:
                return len(await steps(client)) == 9 and (await get(client, "s3")).status == "failing"

            await eventually(all_others)
        assert "StorageRejected: not this one" in ((await get(client, "s3")).error or "")


# Cost


async def test_claims_never_look_for_schedules(setting: Setting) -> None:
    """A worker without schedules looks once when it starts. With one that is not due, by its timer alone."""
    points, ran = Points(), list[int]()
    async with setting.connect([Step, Light], notify=setting.notify or "in-process") as client:
        worker = Worker(watched(client, points), handlers(ran), poll_interval=3600)
        async with worker:
            for number in range(20):
                await client.submit(Step(number=number))
                await eventually(lambda number=number: len(ran) == number + 1)  # type: ignore[misc]
            assert points.counts["claim"] >= 10
            assert [name for name, _ in points.calls].count("due_schedules") == 1
            assert points.counts["save_schedules"] == points.counts["undeclared_schedules"] == 0


# What is wrong where it is written


def test_declarations_that_cannot_work() -> None:
    schedules = Schedules()
    schedules.every(HOUR, Step())
    with pytest.raises(InvalidArgument, match="two schedules have the name 'step'"):
        schedules.after(HOUR, Step())
    with pytest.raises(InvalidArgument, match="takes a job, or decorates a function"):
        schedules.every(HOUR, "step")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="decorates a function"):
        schedules.every(HOUR)("step")  # type: ignore[type-var]
    with pytest.raises(InvalidArgument, match="no option 'overlaps'"):
        schedules.every(HOUR, Light(), overlaps="skip")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="timeout"):
        schedules.every(HOUR, timeout=0)
    with pytest.raises(InvalidArgument, match="must not be empty"):
        schedules.every(HOUR, name="")(lambda tick: None)
    assert len(schedules) == 1


async def test_workers_that_cannot_have_these_schedules(setting: Setting) -> None:
    class Unknown(EntryJob[None], name="unknown"):
        pass

    unknown, one, two = Schedules(), Schedules(), Schedules()
    unknown.every(HOUR, Unknown())
    one.every(HOUR, Step())
    two.every(2 * HOUR, Step())
    async with setting.connect([Step, Light]) as client:
        for schedules, text in (
            ([unknown], "unknown"),
            ([one, two], "two schedules have the name 'step'"),
            (["x"], "takes a list of Schedules"),
            (7, "takes a list of Schedules"),
        ):
            with pytest.raises(Exception, match=text):
                Worker(client, handlers(), schedules=schedules)  # type: ignore[arg-type]
        Worker(client, handlers(), schedules=one)


async def test_a_name_that_a_client_has_taken(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    schedules = Schedules()
    schedules.every(HOUR, Step(), name="s")
    schedules.after(HOUR, Light(), name="t")
    async with setting.connect([Step, Light]) as client:
        await put(client, "s", Every(FAR))
        with caplog.at_level(logging.ERROR):
            async with working(setting, client, schedules):
                await eventually(is_fired(client, "t"))
        assert any("schedule s cannot be declared" in record.getMessage() for record in caplog.records)
        assert (await get(client, "s")).declared is False
        with pytest.raises(InvalidArgument, match="is declared by workers"):
            await put(client, "t", Every(FAR))
