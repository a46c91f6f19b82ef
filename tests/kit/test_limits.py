"""Jobs with a limit in the test kit: each way to run them claims as a worker does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.kit.conftest import Place

from queuert import EntryJob, Handlers, Job, Limit, Rate, SyncAttempt, testing
from queuert.testing import Clock, Crash


class Fetch(EntryJob[int, "Store"], name="fetch", limit=Limit(by="tenant", concurrency=1, ordered=True)):
    tenant: str
    number: int


class Store(Job[int], name="store", limit=Limit("stores", rate=Rate(1, per=60))):
    number: int


JOBS = [Fetch]


def handlers_of(seen: list[str]) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Fetch)
    def fetch(attempt: SyncAttempt[Fetch]) -> Store:
        with attempt.complete():
            return Store(number=attempt.job.number)

    @handlers.handles(Store)
    @testing.outside
    def store(attempt: SyncAttempt[Store]) -> int:
        seen.append(f"stored {attempt.job.number}")
        return attempt.job.number

    return handlers


def test_sync_code_runs_jobs_with_a_limit(place: Place) -> None:
    seen: list[str] = []
    with place.connect_sync(JOBS) as client, testing.running(client, handlers_of(seen)) as run:
        assert run.output(client.submit(Fetch(tenant="a", number=1))) == 1
        assert seen == ["stored 1"]


def test_what_a_limit_holds_back_is_explained(place: Place) -> None:
    with place.connect_sync(JOBS) as client, testing.running(client, handlers_of([])) as run:
        assert run.output(client.submit(Fetch(tenant="a", number=1))) == 1
        with pytest.raises(AssertionError, match="its limit 'stores' is closed until") as raised:
            run.output(client.submit(Fetch(tenant="b", number=2)))
        assert "no worker" not in str(raised.value)


def test_a_type_without_a_handler_still_needs_a_worker() -> None:
    with (
        Place("memory", "memory://").connect_sync(JOBS) as client,
        testing.running(client, Handlers[Any]()) as run,
        pytest.raises(AssertionError, match="no worker that is alive has a handler for 'fetch'"),
    ):
        run.output(client.submit(Fetch(tenant="a", number=1)))


def test_crashes_of_jobs_with_a_limit(place: Place) -> None:
    @testing.crash_everywhere
    def test(crash: Crash) -> object:
        seen: list[str] = []
        with place.connect_sync(JOBS) as client:
            testing.clean(client)
            with client.transaction() as tx:
                client.set_limit(tx, "stores", rate=None)
            with crash.running(client, handlers_of(seen)) as run:
                first = client.submit(Fetch(tenant="a", number=1))
                second = client.submit(Fetch(tenant="a", number=2))
                return run.output(first), run.output(second), sorted(set(seen))

    test()


def test_crashes_of_jobs_with_a_limit_in_async_code(place: Place) -> None:
    @testing.crash_everywhere
    async def test(crash: Crash) -> object:
        seen: list[str] = []
        async with place.connect(JOBS) as client:
            await testing.clean(client)
            async with client.transaction() as tx:
                await client.set_limit(tx, "stores", rate=None)
            async with crash.running(client, handlers_of(seen)) as run:
                first = await client.submit(Fetch(tenant="a", number=1))
                second = await client.submit(Fetch(tenant="a", number=2))
                return await run.output(first), await run.output(second), sorted(set(seen))

    test()


async def test_time_moves_to_the_moment_when_a_limit_opens(place: Place, clock: Clock) -> None:
    seen: list[str] = []
    async with place.connect(JOBS, clock=clock) as client, testing.running(client, handlers_of(seen)) as run:
        chains = [await client.submit(Fetch(tenant="a", number=number)) for number in range(3)]
        began = clock.now()
        await run.until_idle()
        assert seen == ["stored 0"]
        assert await run.output(chains[2], skip_time=True) == 2
        assert timedelta(minutes=2) <= clock.now() - began < timedelta(minutes=2, seconds=1)


def test_time_moves_to_the_moment_when_a_limit_opens_in_sync_code(place: Place, clock: Clock) -> None:
    seen: list[str] = []
    with place.connect_sync(JOBS, clock=clock) as client, testing.running(client, handlers_of(seen)) as run:
        chains = [client.submit(Fetch(tenant="a", number=number)) for number in range(3)]
        began = clock.now()
        assert run.output(chains[2], skip_time=True) == 2
        assert timedelta(minutes=2) <= clock.now() - began < timedelta(minutes=2, seconds=1)
        client.submit(Fetch(tenant="a", number=3))
        run.advance(timedelta(hours=1))
        assert seen == [f"stored {number}" for number in range(4)]


def test_a_key_that_is_stopped_by_a_failed_job_ends_the_time_travel(clock: Clock) -> None:
    handlers = Handlers[Any](max_attempts=1)

    @handlers.handles(Fetch)
    def fetch(attempt: SyncAttempt[Fetch]) -> Store:
        raise ValueError("it fails for good")

    with (
        Place("memory", "memory://").connect_sync(JOBS, clock=clock) as client,
        testing.running(client, handlers) as run,
    ):
        client.submit(Fetch(tenant="a", number=1))
        second = client.submit(Fetch(tenant="a", number=2))
        with pytest.raises(AssertionError, match="is stopped by job"):
            run.output(second, skip_time=True)
