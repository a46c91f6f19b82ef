"""retry with a corrected input: what is checked, what is kept, and what happens then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.support.jobs import After, Charge, Greet, Rate, Reserve
from tests.support.worlds import START, World, claim, complete, end, fail, run, start

from queuert import (
    ChainNotFound,
    ChainNotRetryable,
    EntryJob,
    InvalidArgument,
    JobTypeMismatch,
    JobTypeValidationError,
    Limit,
)
from queuert.client.client import Client
from queuert.records.limits import lane_of


class Copy(EntryJob[None], name="copy", limit=Limit(by="files", concurrency=1, weight="files")):
    files: int


LATER = datetime(2101, 1, 1, tzinfo=UTC)


async def retried(client: Client[Any], chain: Any, job: Any, **options: Any) -> Any:
    async with client.transaction() as tx:
        (found,) = await client.retry(tx, chain, input=job, **options)
    return found


@pytest.mark.drivers
async def test_a_failed_job_runs_again_with_the_corrected_input(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet(who="nobdy"))
    await fail(client, chain)
    found = await retried(client, chain, Greet(who="nobody"))
    assert (found.id, found.status, found.input) == (chain.id, "pending", {"who": "nobody"})
    assert found.last_error is not None
    record = await client.get_job(chain.id, Greet)
    assert record is not None
    assert (record.job, record.attempt_number) == (Greet(who="nobody"), 0)
    (claimed,) = await claim(client, "greet")
    assert (claimed.job.id, claimed.job.attempt) == (chain.id, 1)


@pytest.mark.drivers
async def test_the_current_job_is_repaired_not_the_first(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(-1)))
    await fail(client, order)
    with pytest.raises(JobTypeMismatch, match="is of type 'charge', not 'reserve'"):
        await retried(client, order, Reserve(order_id=2))
    found = await retried(client, order, Charge(order_id=1, amount=Decimal(7)))
    assert (found.status, found.current_job_type, found.input) == ("pending", "charge", {"order_id": 1})
    (charge,) = (await client.list_jobs(Charge)).items
    assert charge.job.amount == 7


@pytest.mark.drivers
async def test_cancelled_and_expired_jobs_can_be_repaired(client: Client[Any], world: World) -> None:
    cancelled = await start(client, Greet())
    async with client.transaction() as tx:
        await client.cancel(tx, cancelled)
    assert (await retried(client, cancelled, Greet(who="me"))).status == "pending"
    await complete(client, cancelled, "hi")

    deadlines = {"none": None, "moment": LATER, "duration": timedelta(hours=1)}
    found: dict[str, Any] = {}
    for name, deadline in deadlines.items():
        chain = await start(client, Greet(), deadline=START - timedelta(seconds=1))
        (claimed,) = await claim(client, "greet")
        assert claimed.expired
        await end(client, claimed.job, "expired")
        await retried(client, chain, Greet(), deadline=deadline)
        found[name] = (await client.get_job(chain.id)).deadline  # type: ignore[union-attr]
        await complete(client, chain, "hi")
    assert found["none"] is None
    assert found["moment"] == LATER
    assert found["duration"] == START + timedelta(hours=1)


@pytest.mark.drivers
async def test_what_cannot_be_repaired(client: Client[Any], world: World) -> None:
    open_chain = await start(client, Greet())
    done = await start(client, Rate())
    await complete(client, done, 1.5)
    with pytest.raises(ChainNotRetryable, match="is 'pending', not 'failed', 'cancelled' or 'expired'"):
        await retried(client, open_chain, Greet())
    with pytest.raises(ChainNotRetryable, match="is 'completed'"):
        await retried(client, done, Rate())
    with pytest.raises(ChainNotFound):
        await retried(client, "nobody", Greet())
    await fail(client, open_chain)
    wrong: Any = 7
    with pytest.raises(JobTypeValidationError, match="who"):
        await retried(client, open_chain, Greet(who=wrong))
    with pytest.raises(InvalidArgument, match="a job is expected"):
        await retried(client, open_chain, {"who": "me"})
    with pytest.raises(InvalidArgument, match="no options of its own"):
        await retried(client, open_chain, Greet().set(priority=1))
    with pytest.raises(InvalidArgument, match="takes one chain, got 2"):
        await retried(client, [open_chain, done], Greet())
    with pytest.raises(InvalidArgument, match="only with input="):
        await retried(client, open_chain, None, deadline=LATER)
    with pytest.raises(InvalidArgument, match="deadline"):
        await retried(client, open_chain, Greet(), deadline="soon")
    found = await client.get_chain(open_chain)
    assert found is not None
    assert (found.status, found.input) == ("failed", {"who": "you"})


@pytest.mark.drivers
async def test_blocker_fields_stay_as_they_are(client: Client[Any], world: World) -> None:
    greeting, other = await start(client, Greet()), await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        await client.cancel(tx, after)
    with pytest.raises(JobTypeValidationError, match="keeps the chains that it waited for"):
        await retried(client, after, After(greeting=other))
    with pytest.raises(ChainNotRetryable, match=f"needs the output of chain {greeting.id}, which is 'pending'"):
        await retried(client, after, After(greeting=greeting))
    await complete(client, greeting, "hi")
    assert (await retried(client, after, After(greeting=greeting))).status == "pending"
    async with client.transaction() as tx, client.take_over(tx, after, After) as current:
        assert current.job.greeting.output == "hi"


@pytest.mark.drivers
async def test_a_job_whose_blocker_was_deleted_meanwhile(client: Client[Any], world: World) -> None:
    """A cancelled job does not keep what it waited for."""
    greeting = await start(client, Greet())
    await complete(client, greeting, "hi")
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        await client.cancel(tx, after)
        await client.delete(tx, greeting)
    with pytest.raises(
        ChainNotRetryable, match=f"needs the output of chain {greeting.id}, which is not stored any more"
    ):
        await retried(client, after, After(greeting=greeting))
    found = await client.get_chain(after)
    assert found is not None
    assert found.status == "cancelled"


async def test_a_repaired_job_has_the_key_and_the_weight_of_its_new_input(world: World) -> None:
    async with world.client([Copy]) as client:
        chain = await start(client, Copy(files=1))
        async with client.transaction() as tx:
            await client.cancel(tx, chain)
        await retried(client, chain, Copy(files=2))
        (row,) = await run(client, client._engine.state.get_jobs([chain.id]))
        assert row is not None
        assert (row.input, row.lane) == (b'{"files":2}', lane_of("copy", "2"))
        if world.database == "memory":
            assert world.store.committed.weights == {chain.id: 2.0}


async def test_a_rolled_back_repair_changes_nothing(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    await fail(client, chain)
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await client.retry(tx, chain, input=Greet(who="me"))
            raise ZeroDivisionError
    found = await client.get_chain(chain)
    assert found is not None
    assert (found.status, found.input) == ("failed", {"who": "you"})
