"""Reading: single chains and jobs, typed and untyped, and what is there that this client does not know."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.support.jobs import JOBS, After, Charge, Greet, Nothing, Rate, Receipt, Report, Reserve, Send
from tests.support.naming import short
from tests.support.worlds import START, World, claim, complete, end, fail, start

from queuert.client.client import Client
from queuert.errors import (
    ChainNotCompleted,
    InvalidArgument,
    JobTypeMismatch,
    JobTypeValidationError,
    UnknownJobType,
)
from queuert.jobs import Chain, EntryJob


class Retired(EntryJob[int], name="retired"):
    """Known to the client that started it, and to no other."""

    size: int


async def test_the_job_types_of_a_client(world: World) -> None:
    class Versioned(EntryJob[None], name="versioned", version=3, aliases=["earlier"]):
        pass

    client = world.client(jobs=[Versioned, After, Reserve])
    assert client.job_types == ("versioned", "after", "greet", "reserve", "charge", "send")


async def test_get_chain_in_all_its_forms(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    for found in (
        await client.get_chain(chain.id),
        await client.get_chain(chain),
        await client.get_chain(chain.id, Greet),
        await client.get_chain(chain, Greet),
    ):
        assert found == chain
        assert found is not None
        assert (found.status, found.chain_type, found.created_at) == ("pending", "greet", START)
        assert (found.current_job_id, found.current_job_type) == (chain.id, "greet")
        assert (found.completed_at, found.deduplicated, found.last_error) == (None, False, None)


async def test_get_job_in_all_its_forms(client: Client[Any]) -> None:
    chain = await start(client, Greet(who="me"))
    record = await client.get_job(chain.id)
    assert record is not None
    for found in (
        await client.get_job(record),
        await client.get_job(chain.id, Greet),
        await client.get_job(record, Greet),
    ):
        assert found == record
        assert found is not None
        assert (found.job, found.input, found.output, found.last_error) == (Greet(who="me"), {"who": "me"}, None, None)


async def test_what_is_not_there_is_none(client: Client[Any]) -> None:
    unknown = str(uuid4())
    assert await client.get_chain(unknown) is None
    assert await client.get_chain(unknown, Greet) is None
    assert await client.get_job(unknown) is None
    assert await client.get_job(unknown, Greet) is None


@pytest.mark.parametrize("odd", ["", "\0", "x" * 100_000, "' OR 1=1 --", "%"], ids=short)
async def test_ids_that_cannot_be_are_not_there(client: Client[Any], odd: str) -> None:
    await start(client, Greet())
    assert await client.get_chain(odd) is None
    assert await client.get_job(odd) is None
    assert (await client.list_chain_jobs(odd)).items == []
    assert (await client.list_blocked_jobs(odd)).items == []
    assert (await client.list_jobs(odd)).items == []
    assert (await client.list_chains(odd)).items == []
    assert (await client.list_jobs(ids=[odd])).items == []


async def test_half_a_surrogate_pair_is_no_text(client: Client[Any]) -> None:
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        await client.get_chain("\ud800")
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        await client.get_job("\ud800")
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        await client.list_jobs("\ud800")
    with pytest.raises(InvalidArgument, match="not valid Unicode"):
        await client.list_chains(ids=["\ud800"])


@pytest.mark.parametrize("wrong", [None, 7, b"x", object(), ["x"]], ids=["None", "int", "bytes", "object", "list"])
async def test_ids_are_strings(client: Client[Any], wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="expected a Chain or a chain id"):
        await client.get_chain(wrong)
    with pytest.raises(InvalidArgument, match="expected a JobRecord or a job id"):
        await client.get_job(wrong)
    with pytest.raises(InvalidArgument):
        await client.list_chain_jobs(wrong)
    with pytest.raises(InvalidArgument):
        await client.list_blocked_jobs(wrong)
    with pytest.raises(InvalidArgument):
        await client.get_blockers(wrong)
    async with client.transaction() as tx:
        for change in (client.trigger, client.retry, client.cancel, client.delete):
            with pytest.raises(InvalidArgument):
                await change(tx, [wrong])
            if wrong != ["x"]:
                with pytest.raises(InvalidArgument):
                    await change(tx, wrong)
        with pytest.raises(InvalidArgument):
            async with client.take_over(tx, wrong):
                raise AssertionError("something was taken over")


async def test_a_chain_is_no_job_and_a_job_no_chain(client: Client[Any]) -> None:
    chain: Any = await start(client, Greet())
    record: Any = await client.get_job(chain.id)
    with pytest.raises(InvalidArgument, match="JobRecord"):
        await client.get_job(chain)
    with pytest.raises(InvalidArgument, match="Chain"):
        await client.get_chain(record)


async def test_another_type_than_asked_for_is_an_error(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    with pytest.raises(JobTypeMismatch) as caught:
        await client.get_chain(chain.id, Rate)
    assert (caught.value.job_id, caught.value.expected, caught.value.actual) == (chain.id, "rate", "greet")
    with pytest.raises(JobTypeMismatch):
        await client.get_job(chain.id, Rate)


async def test_the_type_of_a_chain_is_that_of_its_first_job(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal("2.50")))
    chain = await client.get_chain(order, Reserve)
    assert chain is not None
    assert (chain.chain_type, chain.current_job_type, chain.status) == ("reserve", "charge", "pending")
    with pytest.raises(JobTypeMismatch):
        await client.get_chain(order.id, Charge)
    assert chain.current_job_id is not None
    second = await client.get_job(chain.current_job_id, Charge)
    assert second is not None
    assert (second.chain_id, second.chain_index, second.chain_type) == (order.id, 1, "reserve")
    assert second.job == Charge(order_id=1, amount=Decimal("2.50"))
    first = await client.get_job(order.id)
    assert first is not None
    assert (first.status, first.continued_to, first.output) == ("completed", second.id, None)
    # The id of a later job is not the id of a chain.
    assert await client.get_chain(second.id) is None


async def test_a_type_that_is_not_registered_cannot_be_asked_for(client: Client[Any]) -> None:
    with pytest.raises(UnknownJobType, match="retired"):
        await client.get_chain("x", Retired)
    with pytest.raises(UnknownJobType):
        await client.list_jobs(Retired)
    with pytest.raises(InvalidArgument, match="a job class"):
        await client.get_job("x", int)  # type: ignore[type-var]


async def test_output_of_a_chain_that_has_none(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    with pytest.raises(ChainNotCompleted, match="pending") as caught:
        _ = chain.output
    assert (caught.value.chain_id, caught.value.status) == (chain.id, "pending")
    await fail(client, chain)
    failed = await client.get_chain(chain)
    assert failed is not None
    with pytest.raises(ChainNotCompleted, match="failed"):
        _ = failed.output
    assert failed.last_error == {"code": "UNHANDLED_ERROR", "type": "ValueError", "message": "boom"}


async def test_a_null_output_is_an_output(client: Client[Any]) -> None:
    chain = await start(client, Nothing())
    await complete(client, chain, None)
    done = await client.get_chain(chain, Nothing)
    assert done is not None
    assert (done.status, done.output, done.completed_at) == ("completed", None, START)
    job = await client.get_job(chain.id)
    assert job is not None
    assert (job.status, job.continued_to, job.completed_by) == ("completed", None, None)


async def test_a_typed_output_comes_back_as_its_type(client: Client[Any]) -> None:
    chain = await start(client, Reserve(order_id=1))
    await complete(client, chain, Receipt("p1"))
    done = await client.get_chain(chain, Reserve)
    assert done is not None
    assert done.output == Receipt("p1")
    job = await client.get_job(chain.id, Reserve)
    assert job is not None
    assert job.output == Receipt("p1")


async def test_get_blockers_of_a_job_that_is_not_there(client: Client[Any]) -> None:
    assert await client.get_blockers("nobody") is None
    assert await client.get_job("nobody") is None


async def test_get_blockers_takes_records_and_finds_none(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    record = await client.get_job(chain.id)
    assert record is not None
    assert await client.get_blockers(record) == []


async def test_a_stored_job_knows_its_blockers_by_id(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    record = await client.get_job(after.id, After)
    assert record is not None
    assert record.job.greeting == greeting
    assert record.job.greeting.status is None


# Types that this client does not know


async def test_unregistered_types_are_listed_as_untyped_records(world: World) -> None:
    async with world.client([*JOBS, Retired]) as old:
        retired = await start(old, Retired(size=3))
        greeting = await start(old, Greet())
        await complete(old, retired, 4)
    async with world.client() as client:
        page = await client.list_jobs()
        assert [job.id for job in page.items] == [retired.id, greeting.id]
        record = page.items[0]
        assert (record.job_type, record.input, record.output) == ("retired", {"size": 3}, 4)
        with pytest.raises(UnknownJobType, match="retired"):
            _ = record.job
        assert page.items[1].job == Greet()
        chains = (await client.list_chains()).items
        assert [(chain.chain_type, chain.status) for chain in chains] == [
            ("retired", "completed"),
            ("greet", "pending"),
        ]
        assert chains[0].output == 4
        assert [job.id for job in (await client.list_jobs("retired")).items] == [retired.id]
        assert [each.id for each in (await client.list_chains("retired")).items] == [retired.id]
        found = await client.get_chain(retired.id)
        assert found is not None
        assert found.output == 4


async def test_chains_of_unregistered_types_can_be_managed(world: World) -> None:
    async with world.client([*JOBS, Retired]) as old:
        first = await start(old, Retired(size=3), after=60)
        second = await start(old, Retired(size=4))
        third = await start(old, Retired(size=5))
        await fail(old, second)
    async with world.client() as client, client.transaction() as tx:
        assert [chain.status for chain in await client.trigger(tx, first)] == ["pending"]
        assert [chain.status for chain in await client.retry(tx, second)] == ["pending"]
        assert [chain.status for chain in await client.cancel(tx, third)] == ["cancelled"]
        with pytest.raises(UnknownJobType, match=r"jobs=\["):
            async with client.take_over(tx, first):
                raise AssertionError("an unknown job was taken over")
        assert {chain.id for chain in await client.delete(tx, [first, second, third])} == {
            first.id,
            second.id,
            third.id,
        }


async def test_a_stored_input_that_does_not_fit_any_more_breaks_only_its_own_job(world: World) -> None:
    class Before(EntryJob[None], name="greet"):
        whom: int

    class Now(EntryJob[None], name="greet"):
        who: str

    async with world.client([Before]) as old:
        chain = await start(old, Before(whom=1))
    async with world.client([Now]) as client:
        record = (await client.list_jobs(Now)).items[0]
        assert (record.id, record.input) == (chain.id, {"whom": 1})
        with pytest.raises(JobTypeValidationError, match="who") as caught:
            _ = record.job
        assert (caught.value.code, caught.value.details["field"]) == ("invalid_input", "who")


async def test_a_stored_output_that_does_not_fit_any_more_is_an_error_only_when_read(world: World) -> None:
    class Before(EntryJob[int], name="greet"):
        pass

    class Now(EntryJob[list[str]], name="greet"):
        pass

    async with world.client([Before]) as old:
        chain = await start(old, Before())
        await complete(old, chain, 4)
    async with world.client([Now]) as client:
        found = await client.get_chain(chain.id)
        assert found is not None
        assert found.status == "completed"
        with pytest.raises(JobTypeValidationError) as caught:
            _ = found.output
        assert caught.value.code == "invalid_output"
        with pytest.raises(JobTypeValidationError):
            await client.wait(found, timeout=45)


# Stats


async def test_stats_count_what_is_open_or_failed(client: Client[Any], world: World) -> None:
    assert await client.stats() == []
    greeting = await start(client, Greet())
    await start(client, After(greeting=greeting))
    await start(client, Rate(), after=60)
    done = await start(client, Nothing())
    await complete(client, done, None)
    failed = await start(client, Reserve(order_id=1))
    await fail(client, failed)
    world.pass_time(5)
    by_type = {stats.job_type: stats for stats in await client.stats()}
    assert list(by_type) == ["after", "greet", "rate", "reserve"]
    assert (by_type["greet"].pending, by_type["greet"].oldest_ready_age) == (1, 5.0)
    assert (by_type["after"].blocked, by_type["after"].pending) == (1, 0)
    assert (by_type["rate"].pending, by_type["rate"].oldest_ready_age) == (1, None)
    assert (by_type["reserve"].failed, by_type["reserve"].running) == (1, 0)
    await claim(client, "greet")
    assert [stats.running for stats in await client.stats() if stats.job_type == "greet"] == [1]


async def test_stats_up_to_a_limit(client: Client[Any]) -> None:
    for _ in range(3):
        await start(client, Greet())
    assert [[stats.pending for stats in await client.stats(limit=limit)] for limit in (None, 5, 3, 2, 1)] == [
        [3], [3], [3], [2], [1],
    ]  # fmt: skip
    wrong: list[Any] = [0, -1, True, "3", 2.0]
    for limit in wrong:
        with pytest.raises(InvalidArgument, match="limit must be a number of 1 or more, or None"):
            await client.stats(limit=limit)


async def test_migrating_again_does_nothing_and_vacuum_works(client: Client[Any]) -> None:
    assert await client.migrate() == []
    chain = await start(client, Greet())
    await client.vacuum()
    assert await client.get_chain(chain) is not None


async def test_an_error_record_is_shown_while_the_chain_goes_on(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    (claimed,) = await claim(client, "greet")
    await end(client, claimed.job, "pending", error=msgspec.json.encode({"code": "TIMEOUT", "message": "slow"}))
    found = await client.get_chain(chain)
    record = await client.get_job(chain.id)
    assert found is not None
    assert record is not None
    assert found.status == record.status == "pending"
    assert found.last_error == record.last_error == {"code": "TIMEOUT", "message": "slow"}
    assert (record.attempt_number, record.last_attempt_at) == (1, START)


async def test_repr_says_what_it_is(client: Client[Any]) -> None:
    chain = await start(client, Greet(), dedup="k")
    again = await start(client, Greet(), dedup="k")
    assert repr(chain) == f"<Chain greet {chain.id}: pending>"
    assert repr(again) == f"<Chain greet {chain.id}: pending, deduplicated>"
    assert chain != chain.id
    assert len({chain, again, Chain[Greet](chain.id, "greet")}) == 1


def test_unused_types_are_pulled_in(world: World) -> None:
    client = world.client()
    assert {Charge.__queuert_name__, Send.__queuert_name__, Report.__queuert_name__} <= set(client._engine.jobs.names)
