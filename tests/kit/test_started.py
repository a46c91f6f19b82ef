"""`testing.started`: which chains were started, and which were rolled back."""

from __future__ import annotations

import pytest
from tests.kit.conftest import Place
from tests.kit.shop import JOBS, Charge, Note, Rate

from queuert import testing


async def test_what_was_started_and_committed(place: Place) -> None:
    async with place.connect(JOBS) as client:
        await client.submit(Note(text="before"))
        with testing.started(client) as started:
            chain = await client.submit(Charge(order_id=7))
        await client.submit(Note(text="after"))
        assert started.only(Charge(order_id=7)) == chain
        assert started.jobs == list(started) == [Charge(order_id=7)]
        assert started.chains == [chain]
        assert started.of(Charge)[0].order_id == 7
        assert not started.of(Note)


async def test_what_is_rolled_back_does_not_count(place: Place) -> None:
    async with place.connect(JOBS) as client:
        with testing.started(client) as started:
            with pytest.raises(ZeroDivisionError):
                async with client.transaction() as tx:
                    await client.start(tx, Note(text="undone"))
                    assert len(started) == 1, "it is not committed yet"
                    raise ZeroDivisionError
            async with client.transaction() as tx:
                await client.start(tx, Note(text="kept"))
                with pytest.raises(ZeroDivisionError):
                    async with client.savepoint(tx):
                        await client.start_many(tx, [Note(text="undone"), Rate(currency="EUR")])
                        raise ZeroDivisionError
                await client.start(tx, Note(text="kept too"))
        started.only(Note(text="kept too"), Note(text="kept"))


def test_sync_clients_too(place: Place) -> None:
    with place.connect_sync(JOBS) as client, testing.started(client) as started:
        with client.transaction() as tx:
            client.start(tx, Charge(order_id=7))
        with pytest.raises(ZeroDivisionError), client.transaction() as tx:
            client.start(tx, Charge(order_id=8))
            raise ZeroDivisionError
        started.only(Charge(order_id=7))


async def test_the_difference_can_be_read() -> None:
    async with Place("memory", "memory://").connect(JOBS) as client:
        with testing.started(client) as started:
            await client.submit(Charge(order_id=8))
            await client.submit(Note(text="as expected"))
        with pytest.raises(AssertionError) as raised:
            started.only(Charge(order_id=7), Note(text="as expected"))
        assert str(raised.value).splitlines() == [
            "what was started is not what was expected",
            "  not started: Charge(order_id=7, amount=10)",
            "  started, but not expected: Charge(order_id=8, amount=10)",
            "  as expected: Note(text='as expected')",
            "  order_id: expected 7, got 8",
        ]
        started.includes(Note(text="as expected"))
        with pytest.raises(AssertionError, match="not started: Rate"):
            started.includes(Rate(currency="EUR"))
        with pytest.raises(AssertionError, match="started, but not expected"):
            started.nothing()


async def test_options_are_compared_if_the_expected_job_has_them() -> None:
    async with Place("memory", "memory://").connect(JOBS) as client:
        with testing.started(client) as started:
            await client.submit(Note(text="later").set(after=60, priority=5))
            await client.submit(Note(text="once"), dedup="key")
            await client.submit(Note(text="twice"), dedup="key")
        started.only(Note(text="later").set(after=60), Note(text="once").set(dedup="key"))
        assert len(started.deduplicated) == 1
        with pytest.raises(AssertionError, match=r"option priority: expected 6, got 5"):
            started.includes(Note(text="later").set(priority=6))
        with pytest.raises(AssertionError, match="was started is not"):
            started.nothing()


async def test_chains_that_handlers_start_count(place: Place) -> None:
    from tests.kit.shop import handlers

    async with place.connect(JOBS) as client, testing.running(client, handlers) as run:
        with testing.started(client) as started:
            await client.submit(Note(text="rates"))
            await run.until_idle()
        started.only(Note(text="rates"), Rate(currency="EUR"))
