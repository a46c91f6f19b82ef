"""Virtual time: on every database, retries of a month in a moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from tests.kit.conftest import Place
from tests.kit.shop import JOBS, Charge, Note

import queuert
import queuert.sqlalchemy
from queuert import (
    Attempt,
    Backoff,
    ChainExpired,
    EntryJob,
    Handlers,
    InvalidArgument,
    Schedules,
    SyncAttempt,
    Tick,
    testing,
)
from queuert.testing import Clock

DAY = timedelta(days=1)


@asynccontextmanager
async def closing_async(engine: AsyncEngine) -> AsyncGenerator[None]:
    yield
    await engine.dispose()


@contextmanager
def closing(engine: Engine) -> Generator[None]:
    yield
    engine.dispose()


class Flaky(EntryJob[int], name="flaky"):
    fails: int


flaky_handlers = Handlers[Any](backoff=Backoff(initial=3 * DAY, multiplier=1, maximum=3 * DAY), max_attempts=20)


@flaky_handlers.handles(Flaky)
async def flaky(attempt: Attempt[Flaky]) -> int:
    if attempt.number <= attempt.job.fails:
        raise ConnectionError("not yet")
    return attempt.number


plain_handlers = Handlers[Any](backoff=Backoff(initial=3 * DAY, multiplier=1, maximum=3 * DAY), max_attempts=20)


@plain_handlers.handles(Flaky)
def plain_flaky(attempt: SyncAttempt[Flaky]) -> int:
    if attempt.number <= attempt.job.fails:
        raise ConnectionError("not yet")
    with attempt.complete():
        return attempt.number


async def test_ten_retries_over_a_month(place: Place, clock: Clock) -> None:
    began = clock.now()
    async with place.connect([Flaky], clock=clock) as client, testing.running(client, flaky_handlers) as run:
        chain = await client.submit(Flaky(fails=10))
        await run.until_idle()
        assert len(run.failures) == 1, "nothing moves by itself"
        assert await run.output(chain, skip_time=True) == 11
        found = await client.get_chain(chain)
        assert found is not None
        assert found.created_at == began
        assert found.completed_at == began + 30 * DAY == clock.now()


def test_ten_retries_over_a_month_in_sync_code(place: Place, clock: Clock) -> None:
    began = clock.now()
    with place.connect_sync([Flaky], clock=clock) as client, testing.running(client, plain_handlers) as run:
        chain = client.submit(Flaky(fails=10))
        assert run.output(chain, skip_time=True) == 11
        assert clock.now() == began + 30 * DAY


@pytest.mark.parametrize(
    ("place", "driver"),
    [("sqlite", "aiosqlite"), ("postgres", "psycopg"), ("postgres", "asyncpg")],
    indirect=["place"],
)
async def test_virtual_time_with_sqlalchemy(place: Place, clock: Clock, driver: str) -> None:
    engine, began = create_async_engine(place.url.replace(":", f"+{driver}:", 1)), clock.now()
    async with (
        closing_async(engine),
        queuert.sqlalchemy.connect(async_sessionmaker(engine), jobs=[Flaky], clock=clock) as client,
        testing.running(client, flaky_handlers) as run,
    ):
        async with client.transaction() as tx:
            chain = await client.start(tx, Flaky(fails=10))
        assert await run.output(chain, skip_time=True) == 11
        assert clock.now() == began + 30 * DAY


@pytest.mark.parametrize(("place", "driver"), [("sqlite", "pysqlite"), ("postgres", "psycopg")], indirect=["place"])
def test_virtual_time_with_sqlalchemy_in_sync_code(place: Place, clock: Clock, driver: str) -> None:
    engine, began = create_engine(place.url.replace(":", f"+{driver}:", 1)), clock.now()
    with (
        closing(engine),
        queuert.sqlalchemy.connect_sync(sessionmaker(engine), jobs=[Flaky], clock=clock) as client,
        testing.running(client, plain_handlers) as run,
    ):
        assert run.output(client.submit(Flaky(fails=10)), skip_time=True) == 11
        assert clock.now() == began + 30 * DAY


async def test_jobs_on_the_way_run_when_they_are_due(place: Place, clock: Clock) -> None:
    seen: list[tuple[str, datetime]] = []
    handlers, began = Handlers[Any](), clock.now()

    @handlers.handles(Note)
    async def note(attempt: Attempt[Note]) -> None:
        seen.append((attempt.job.text, clock.now()))

    async with place.connect(JOBS, clock=clock) as client, testing.running(client, handlers) as run:
        await client.submit(Note(text="in two days"), after=2 * DAY)
        await client.submit(Note(text="in an hour"), after=3600)
        await client.submit(Note(text="in a week"), after=7 * DAY)
        await run.advance(3 * DAY)
        assert clock.now() == began + 3 * DAY
        assert seen == [("in an hour", began + timedelta(hours=1)), ("in two days", began + 2 * DAY)]
        await run.until_idle(skip_time=True)
        assert seen[-1] == ("in a week", began + 7 * DAY)


async def test_schedules_fire_at_each_tick_on_the_way(place: Place, clock: Clock) -> None:
    seen: list[str] = []
    handlers, schedules, began = Handlers[Any](), Schedules(), clock.now()

    @handlers.handles(Note)
    async def note(attempt: Attempt[Note]) -> None:
        seen.append(attempt.job.text)

    @schedules.every(DAY, start=began + DAY)
    def daily(tick: Tick) -> Note:
        return Note(text=f"day {(tick.at - began).days}")

    schedules.every(DAY, Note(text="at noon"), start=began + DAY / 2)
    async with (
        place.connect(JOBS, clock=clock) as client,
        testing.running(client, handlers, schedules=[schedules]) as run,
    ):
        await run.until_idle(skip_time=True)
        assert clock.now() == began, "schedules are never idle: the time does not move for them"
        await run.advance(3 * DAY)
        assert clock.now() == began + 3 * DAY
        assert seen == ["at noon", "day 1", "at noon", "day 2", "at noon", "day 3"]


async def test_deadlines_and_pauses_follow_the_clock(place: Place, clock: Clock) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Note)
    async def note(attempt: Attempt[Note]) -> None:
        return None

    async with place.connect(JOBS, clock=clock) as client, testing.running(client, handlers) as run:
        late = await client.submit(Note(text="late"), after=2 * DAY, deadline=DAY)
        async with client.transaction() as tx:
            await client.pause(tx, Note, until=3 * DAY)
        paused = await client.submit(Note(text="paused"))
        await run.until_idle()
        assert (await client.get_chain(paused)).status == "pending"  # type: ignore[union-attr]
        began = clock.now()
        await run.until_idle(skip_time=True)
        assert clock.now() == began + 3 * DAY
        assert (await client.get_chain(paused)).status == "completed"  # type: ignore[union-attr]
        with pytest.raises(ChainExpired):
            await client.wait(late, timeout=1)


async def test_a_lease_of_a_worker_that_is_gone_ends_by_the_clock(place: Place, clock: Clock) -> None:
    from queuert.records.model import ClaimRequest, QueueLimit, TypeLimit

    async with place.connect([Flaky], clock=clock) as client:
        chain = await client.submit(Flaky(fails=1))
        sessions, began = client.sessions, clock.now()
        limit = QueueLimit("default", 0, (TypeLimit("flaky", 1, 3600.0),))
        claimed = await sessions.run(sessions.engine.state.claim(ClaimRequest("gone", 1, (limit,))))
        assert len(claimed.jobs) == 1
        async with testing.running(client, flaky_handlers) as run:
            await run.until_idle()
            assert not run.failures
            assert await run.output(chain, skip_time=True) == 2
            assert clock.now() >= began + timedelta(hours=1)


async def test_one_clock_for_several_clients(place: Place, clock: Clock) -> None:
    async with place.connect(JOBS, clock=clock) as one, place.connect(JOBS, clock=clock) as other:
        clock.advance(DAY)
        first = await one.submit(Charge(order_id=1))
        clock.advance(DAY)
        second = await other.submit(Charge(order_id=2))
        records = [await one.get_job(chain.id) for chain in (first, second)]
        assert [record.created_at for record in records if record is not None] == [clock.now() - DAY, clock.now()]
    with place.connect_sync(JOBS, clock=clock) as third:
        chain = third.get_chain(third.submit(Charge(order_id=3)))
        assert chain is not None
        assert chain.created_at == clock.now()


async def test_another_clock_goes_on_where_the_row_is(place: Place, clock: Clock) -> None:
    if place.state == "memory":
        pytest.skip("there is no row")
    async with place.connect(JOBS, clock=clock):
        clock.advance(365 * DAY)
    later = Clock()
    async with place.connect(JOBS, clock=later) as client:
        assert later.now() == clock.now()
        chain = await client.get_chain(await client.submit(Charge(order_id=1)))
        assert chain is not None
        assert chain.created_at == clock.now()


async def test_tables_that_are_not_for_tests_are_refused(place: Place, clock: Clock) -> None:
    async with place.connect(JOBS) as client:
        await client.submit(Charge(order_id=1))
        if place.state == "memory":
            with pytest.raises(InvalidArgument, match="another clock"):
                place.connect(JOBS, clock=clock)
            return
        with pytest.raises(InvalidArgument, match="clock= is for tests"):
            async with place.connect(JOBS, clock=clock):
                pass
        clock.advance(DAY)
        chain = await client.get_chain(await client.submit(Charge(order_id=2)))
        assert chain is not None
        assert chain.created_at is not None
        assert abs(chain.created_at - datetime.now(UTC)) < timedelta(hours=1), "nobody else's time has changed"
        async with place.connect(JOBS, clock=clock, table_prefix="test_") as beside:
            assert not (await beside.list_chains()).items


async def test_asyncpg_has_virtual_time_too(clock: Clock) -> None:
    from tests.support.postgres import server

    with server().fresh() as url:
        url = url.replace("postgresql:", "postgresql+asyncpg:")
        async with (
            queuert.connect(url, jobs=[Flaky], clock=clock, schema="for_tests") as client,
            testing.running(client, flaky_handlers) as run,
        ):
            chain = await client.submit(Flaky(fails=2))
            assert await run.output(chain, skip_time=True) == 3


async def test_a_job_that_never_ends_is_noticed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("queuert.testing.time_skipping.MOST_JUMPS", 20)
    for_ever = Handlers[Any]()

    @for_ever.handles(Flaky)
    async def fail(attempt: Attempt[Flaky]) -> int:
        raise ConnectionError("never")

    async with (
        Place("memory", "memory://").connect([Flaky], clock=clock) as client,
        testing.running(client, for_ever) as run,
    ):
        await client.submit(Flaky(fails=1))
        with pytest.raises(AssertionError, match="does one retry for ever"):
            await run.until_idle(skip_time=True)


def test_a_clock_stands_still_and_never_goes_back() -> None:
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    assert clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.advance(DAY) == clock.now() == datetime(2030, 1, 2, tzinfo=UTC)
    clock.move_to(datetime(2031, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidArgument, match="never goes back"):
        clock.move_to(datetime(2030, 6, 1, tzinfo=UTC))
    wrong: Any = "now"
    with pytest.raises(InvalidArgument, match="clock takes a"):
        queuert.connect("memory://", jobs=JOBS, clock=wrong)
    with pytest.raises(InvalidArgument, match="migrate=True"):
        queuert.connect("memory://", jobs=JOBS, clock=clock, migrate=False)
