"""Starting chains: what is stored, what is announced, and when a start finds another chain instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from tests.support.jobs import JOBS, After, Charge, Close, Greet, Nothing, Rate, Reserve
from tests.support.naming import short
from tests.support.worlds import START, World, claim, complete, end, start, status_of

from queuert.client.client import Client
from queuert.errors import (
    BlockerNotFound,
    InvalidJobId,
    JobIdExists,
    JobTypeMismatch,
    JobTypeValidationError,
    UnknownJobType,
)
from queuert.jobs import Chain, EntryJob
from queuert.records.dedup import Dedup
from queuert.records.model import DEFAULT_PRIORITY


class Stranger(EntryJob[None], name="stranger"):
    """Not given to any client."""


async def test_a_chain_is_its_first_job(client: Client[Any]) -> None:
    chain = await start(client, Greet(who="me"))

    assert (chain.chain_type, chain.status, chain.deduplicated) == ("greet", "pending", False)
    job = await client.get_job(chain.id, Greet)
    assert job is not None
    assert job.job == Greet(who="me")
    assert (job.id, job.chain_id, job.chain_index, job.chain_type) == (chain.id, chain.id, 0, "greet")
    assert (job.status, job.priority, job.attempt_number) == ("pending", DEFAULT_PRIORITY, 0)
    assert (job.created_at, job.scheduled_at) == (START, START)
    assert (job.deadline, job.dedup_key, job.completed_at, job.continued_to, job.leased_by) == (None,) * 5


async def test_a_start_is_announced_after_the_commit_once_for_each_type(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        await client.start_many(tx, [Greet(), Nothing(), Greet()])
        assert world.heard == []

    assert world.heard == [("job_scheduled", "greet"), ("job_scheduled", "nothing")]
    assert world.hub.consume("greet")
    assert world.hub.consume("greet")
    assert not world.hub.consume("greet")


async def test_a_blocked_job_is_not_announced(client: Client[Any], world: World) -> None:
    greeting = await start(client, Greet())
    world.heard.clear()

    chain = await start(client, After(greeting=greeting))

    assert chain.status == "blocked"
    assert world.heard == []


async def test_a_job_for_later_is_announced_so_that_idle_workers_know_when_to_wake(
    client: Client[Any], world: World
) -> None:
    await start(client, Greet(), after=3600)

    assert world.heard == [("job_scheduled", "greet")]


async def test_start_many_keeps_the_order_and_takes_mixed_types(client: Client[Any]) -> None:
    jobs = [Greet(who="a"), Rate(currency="CHF"), Greet(who="b"), Nothing()]
    async with client.transaction() as tx:
        chains: list[Chain[Any]] = await client.start_many(tx, jobs)

    assert [chain.chain_type for chain in chains] == ["greet", "rate", "greet", "nothing"]
    stored = [await client.get_job(chain.id) for chain in chains]
    assert [record and record.job for record in stored] == jobs
    assert [chain.id for chain in chains] == sorted(chain.id for chain in chains)


async def test_start_many_of_nothing_does_nothing(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        assert await client.start_many(tx, []) == []
    assert (world.count(), world.heard) == (0, [])


async def test_start_many_takes_any_iterable_of_jobs(client: Client[Any], world: World) -> None:
    jobs: Any = (Greet(who=str(number)) for number in range(3))
    async with client.transaction() as tx:
        assert len(await client.start_many(tx, jobs)) == 3
    assert world.count() == 3


# Options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"after": 90}, START + timedelta(seconds=90)),
        ({"after": timedelta(minutes=2)}, START + timedelta(minutes=2)),
        ({"after": 0}, START),
        ({"at": START + timedelta(days=1)}, START + timedelta(days=1)),
        ({"at": datetime(2030, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))}, datetime(2030, 6, 1, 10, tzinfo=UTC)),
        ({"at": START - timedelta(days=1)}, START),  # a time in the past is now
        ({"after": 0.000001}, START + timedelta(microseconds=1)),
    ],
    ids=short,
)
async def test_schedule(client: Client[Any], options: dict[str, Any], expected: datetime) -> None:
    chain = await start(client, Greet(), **options)

    job = await client.get_job(chain.id)
    assert job is not None
    assert job.scheduled_at == expected
    assert job.scheduled_at.utcoffset() == timedelta(0)
    assert bool(await claim(client, "greet")) == (expected <= START)


async def test_priority_decides_who_is_first(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        usual = await client.start(tx, Greet())
        urgent = await client.start(tx, Greet(), priority=-5)
        lazy = await client.start(tx, Greet().set(priority=101))

    claimed = await claim(client, "greet", limit=3)
    assert [each.job.id for each in claimed] == [urgent.id, usual.id, lazy.id]
    assert [each.job.priority for each in claimed] == [-5, DEFAULT_PRIORITY, 101]


@pytest.mark.parametrize("priority", [-(2**31), 2**31 - 1, 0])
async def test_priority_has_the_range_of_a_32_bit_integer(client: Client[Any], priority: int) -> None:
    chain = await start(client, Greet(), priority=priority)

    job = await client.get_job(chain.id)
    assert job is not None
    assert job.priority == priority


@pytest.mark.parametrize("deadline", [60, timedelta(minutes=1), START + timedelta(minutes=1)], ids=short)
async def test_deadline(client: Client[Any], world: World, deadline: Any) -> None:
    chain = await start(client, Greet(), deadline=deadline)
    job = await client.get_job(chain.id)
    assert job is not None
    assert job.deadline == START + timedelta(minutes=1)

    world.pass_time(60)
    (claimed,) = await claim(client, "greet")
    assert claimed.expired


async def test_keywords_of_start_go_over_those_the_job_carries(client: Client[Any]) -> None:
    job = Greet().set(priority=1, after=10)
    chain = await start(client, job, priority=2)

    stored = await client.get_job(chain.id)
    assert stored is not None
    assert (stored.priority, stored.scheduled_at) == (2, START + timedelta(seconds=10))


# Ids


async def test_an_explicit_id_is_the_id_of_the_chain(client: Client[Any]) -> None:
    wanted = str(uuid4())

    assert (await start(client, Greet(), id=wanted)).id == wanted
    assert await status_of(client, wanted) == "pending"


@pytest.mark.parametrize(
    "bad",
    ["", "7", "not-a-uuid", "0197a0b0-0000-7000-8000-00000000000", "{0197a0b0-0000-7000-8000-000000000000}"],
)
async def test_an_id_that_is_no_uuid_is_refused(client: Client[Any], world: World, bad: str) -> None:
    before = world.snapshot()
    with pytest.raises(InvalidJobId, match=r"is not a UUID|canonical") as caught:
        await start(client, Greet(), id=bad)

    assert caught.value.job_id == bad
    assert (world.snapshot(), world.heard) == (before, [])


async def test_an_id_has_one_spelling(client: Client[Any], world: World) -> None:
    with pytest.raises(InvalidJobId, match="0197a0b0-0000-7000-8000-00000000abcd"):
        await start(client, Greet(), id="0197A0B0-0000-7000-8000-00000000ABCD")
    assert world.count() == 0


async def test_an_id_that_exists_is_refused_and_the_transaction_goes_on(client: Client[Any], world: World) -> None:
    first = await start(client, Greet())
    world.heard.clear()
    async with client.transaction() as tx:
        other = await client.start(tx, Nothing())
        with pytest.raises(JobIdExists) as caught:
            await client.start_many(tx, [Greet(who="new"), Greet().set(id=first.id)])

    assert caught.value.job_id == first.id
    assert world.count() == 2
    assert await status_of(client, other) == "pending"
    assert world.heard == [("job_scheduled", "nothing")]


async def test_an_id_twice_in_one_batch_is_refused(client: Client[Any], world: World) -> None:
    wanted = str(uuid4())
    async with client.transaction() as tx:
        with pytest.raises(JobIdExists) as caught:
            await client.start_many(tx, [Greet().set(id=wanted), Nothing(), Nothing().set(id=wanted)])

    assert caught.value.job_id == wanted
    assert (world.count(), world.heard) == (0, [])


async def test_ids_can_be_made_and_checked_by_the_caller(world: World) -> None:
    numbers = iter(range(100))

    def check(job_id: str) -> None:
        if not job_id.startswith("job:"):
            raise InvalidJobId(job_id, "it must begin with job:")

    async with world.client(generate_id=lambda: f"job:{next(numbers):03}", validate_id=check) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Greet(), Greet(), Greet().set(id="job:x")])
            with pytest.raises(InvalidJobId, match="begin with job:"):
                await client.start(tx, Greet(), id=str(uuid4()))
        assert [chain.id for chain in chains] == ["job:000", "job:001", "job:x"]
        page = await client.list_chains(limit=2)
        assert page.next_cursor is not None
        rest = await client.list_chains(limit=2, cursor=page.next_cursor)
        assert [chain.id for chain in [*page.items, *rest.items]] == ["job:000", "job:001", "job:x"]


async def test_a_validator_may_just_say_no(world: World) -> None:
    async with world.client(validate_id=lambda job_id: not job_id.startswith("0")) as client:
        with pytest.raises(InvalidJobId, match="validate_id does not accept it"):
            await start(client, Greet(), id="0197a0b0-0000-7000-8000-00000000abcd")
        await start(client, Greet(), id="1197a0b0-0000-7000-8000-00000000abcd")
    assert world.count() == 1


async def test_a_validator_is_asked_about_generated_ids(world: World) -> None:
    asked: list[str] = []
    async with world.client(validate_id=asked.append) as client:
        first = await start(client, Greet())
        async with client.transaction() as tx:
            more = await client.start_many(tx, [Greet(), Greet()])
        assert asked == [first.id, *(chain.id for chain in more)]
    async with world.client(validate_id=lambda _: False) as strict:
        with pytest.raises(InvalidJobId, match="validate_id does not accept it"):
            await start(strict, Greet())
    assert world.count() == 3


async def test_ids_are_generated_only_for_jobs(world: World) -> None:
    ids: list[str] = []

    def generate() -> str:
        ids.append(f"0197a0b0-0000-7000-8000-{len(ids):012}")
        return ids[-1]

    async with world.client(generate_id=generate) as client:
        assert ids == []
        assert (await start(client, Greet())).id == ids[0]
        assert len(ids) == 1


async def test_an_id_maker_that_makes_no_strings_is_told_so(world: World) -> None:
    maker: Any = uuid4
    async with world.client(generate_id=maker) as client:
        with pytest.raises(InvalidJobId, match="generate_id"):
            await start(client, Greet())
    assert world.count() == 0


async def test_an_id_maker_that_repeats_itself_is_found_out(world: World) -> None:
    async with world.client(generate_id=lambda: "0197a0b0-0000-7000-8000-00000000abcd") as client:
        await start(client, Greet())
        with pytest.raises(JobIdExists):
            await start(client, Greet())
    assert world.count() == 1


# What may be started


async def test_only_an_entry_job_can_be_started(client: Client[Any], world: World) -> None:
    job: Any = Charge(order_id=1, amount=Decimal(1))
    with pytest.raises(JobTypeValidationError) as caught:
        await start(client, job)
    assert (caught.value.code, caught.value.job_type) == ("not_entry_point", "charge")
    assert world.count() == 0


async def test_a_type_that_the_client_was_not_given_is_refused(client: Client[Any], world: World) -> None:
    with pytest.raises(UnknownJobType, match=r"jobs=\["):
        await start(client, Stranger())
    assert world.count() == 0


async def test_one_bad_job_in_a_batch_leaves_nothing_behind(client: Client[Any], world: World) -> None:
    bad: Any = Rate(currency=7)  # type: ignore[arg-type]
    async with client.transaction() as tx:
        with pytest.raises(JobTypeValidationError) as caught:
            await client.start_many(tx, [Greet(), bad, Greet()])
    assert caught.value.code == "invalid_input"
    assert caught.value.details["field"] == "currency"
    assert (world.count(), world.heard) == (0, [])


# Blockers


async def test_a_job_waits_for_the_chains_in_its_fields(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        order = await client.start(tx, Reserve(order_id=7))
        rates = await client.start_many(tx, [Rate(currency="EUR"), Rate(currency="USD")])
        books = await client.start(tx, Close(day="mon", order=order, rates=[*rates, rates[0]]))
        assert books.status == "blocked"

    assert [blocker.id for blocker in await client.get_blockers(books.id) or ()] == [order.id, rates[0].id, rates[1].id]
    for rate in rates:
        await complete(client, rate, 1.5)
    assert await status_of(client, books) == "blocked"
    blockers = await client.get_blockers(books.id)
    assert blockers is not None
    assert [blocker.status for blocker in blockers] == ["pending", "completed", "completed"]
    assert blockers[1].output == 1.5


async def test_a_completed_chain_is_in_nobodys_way(client: Client[Any], world: World) -> None:
    greeting = await start(client, Greet())
    await complete(client, greeting, "hi")
    world.heard.clear()

    chain = await start(client, After(greeting=greeting))

    assert chain.status == "pending"
    assert world.heard == [("job_scheduled", "after")]


async def test_an_empty_list_of_blockers_blocks_nothing(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=7))
    books = await start(client, Close(day="mon", order=order, rates=[]))
    assert [blocker.id for blocker in await client.get_blockers(books.id) or ()] == [order.id]


async def test_a_blocker_that_is_not_stored_is_refused(client: Client[Any], world: World) -> None:
    ghost: Chain[Greet] = Chain(str(uuid4()), "greet")
    async with client.transaction() as tx:
        kept = await client.start(tx, Nothing())
        with pytest.raises(BlockerNotFound) as caught:
            await client.start_many(tx, [Nothing(), After(greeting=ghost)])
    assert caught.value.chain_id == ghost.id
    assert world.count() == 1
    assert await status_of(client, kept) == "pending"


async def test_a_blocker_whose_start_was_rolled_back_does_not_exist(client: Client[Any]) -> None:
    started: list[Chain[Greet]] = []
    async with client.transaction() as tx:
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx):
                started.append(await client.start(tx, Greet()))
                raise ZeroDivisionError
        with pytest.raises(BlockerNotFound):
            await client.start(tx, After(greeting=started[0]))


async def test_a_blocker_of_another_type_is_refused_by_its_class(client: Client[Any], world: World) -> None:
    rate: Any = await start(client, Rate())
    with pytest.raises(JobTypeValidationError) as caught:
        await start(client, After(greeting=rate))
    assert caught.value.code == "invalid_blockers"
    assert caught.value.details["field"] == "greeting"
    assert world.count() == 1


async def test_a_blocker_that_lies_about_its_type_is_refused_by_the_database(client: Client[Any], world: World) -> None:
    rate = await start(client, Rate())
    liar: Chain[Greet] = Chain(rate.id, "greet")
    with pytest.raises(JobTypeMismatch) as caught:
        await start(client, After(greeting=liar))
    assert (caught.value.expected, caught.value.actual) == ("greet", "rate")
    assert world.count() == 1


@pytest.mark.parametrize("wrong", ["an id", None, 7, Greet()], ids=short)
async def test_a_blocker_is_a_chain(client: Client[Any], world: World, wrong: Any) -> None:
    with pytest.raises(JobTypeValidationError):
        await start(client, After(greeting=wrong))
    assert world.count() == 0


async def test_a_later_job_of_a_chain_is_no_chain(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(2)))
    current = await client.get_chain(order)
    assert current is not None
    assert current.current_job_id is not None
    second: Chain[Reserve] = Chain(current.current_job_id, "reserve")
    with pytest.raises(BlockerNotFound):
        await start(client, Close(day="mon", order=second, rates=[]))
    assert world.count() == 2


async def test_blockers_may_come_earlier_in_the_same_batch(client: Client[Any]) -> None:
    wanted = str(uuid4())
    greeting: Chain[Greet] = Chain(wanted, "greet")
    async with client.transaction() as tx:
        batch: list[Any] = [Greet().set(id=wanted), After(greeting=greeting)]
        _, waiting = await client.start_many(tx, batch)
    assert waiting.status == "blocked"
    await complete(client, greeting, "hi")
    assert await status_of(client, waiting) == "pending"


# Deduplication


async def test_a_second_start_under_a_key_finds_the_first(client: Client[Any], world: World) -> None:
    first = await start(client, Greet(who="first"), dedup="k")
    world.heard.clear()
    before = world.snapshot()

    second = await start(client, Greet(who="second"), dedup="k")

    assert (second.id, second.deduplicated, second.status) == (first.id, True, "pending")
    assert (first.deduplicated, first == second) == (False, True)
    assert (world.snapshot(), world.heard) == (before, [])
    record = await client.get_job(first.id)
    assert record is not None
    assert (record.job, record.dedup_key) == (Greet(who="first"), "k")


async def test_keys_belong_to_a_type(client: Client[Any]) -> None:
    greeting = await start(client, Greet(), dedup="k")
    nothing = await start(client, Nothing(), dedup="k")
    assert (nothing.deduplicated, nothing.id != greeting.id) == (False, True)


async def test_a_key_is_free_again_when_its_chain_has_ended(client: Client[Any]) -> None:
    first = await start(client, Greet(), dedup="k")
    await complete(client, first, "hi")
    second = await start(client, Greet(), dedup="k")
    third = await start(client, Greet(), dedup="k")
    assert (second.deduplicated, second.id != first.id) == (False, True)
    assert (third.deduplicated, third.id) == (True, second.id)


async def test_a_chain_that_goes_on_holds_its_key(client: Client[Any]) -> None:
    first = await start(client, Reserve(order_id=1), dedup="k")
    await complete(client, first, Charge(order_id=1, amount=Decimal(2)))
    again = await start(client, Reserve(order_id=1), dedup="k")
    assert (again.deduplicated, again.id, again.current_job_type) == (True, first.id, "charge")


async def test_scope_any_matches_ended_chains_too(client: Client[Any]) -> None:
    first = await start(client, Greet(), dedup="k")
    await complete(client, first, "hi")
    again = await start(client, Greet(), dedup=Dedup("k", scope="any"))
    assert (again.deduplicated, again.id, again.status, again.output) == (True, first.id, "completed", "hi")


async def test_a_window_ends(client: Client[Any], world: World) -> None:
    once_a_minute = Dedup("k", scope="any", window=60)
    first = await start(client, Greet(), dedup=once_a_minute)
    world.pass_time(59.999999)
    within = await start(client, Greet(), dedup=once_a_minute)
    world.pass_time(0.000001)
    after = await start(client, Greet(), dedup=once_a_minute)
    assert (within.deduplicated, within.id) == (True, first.id)
    assert (after.deduplicated, after.id != first.id) == (False, True)
    # The key points at the latest.
    assert (await start(client, Greet(), dedup=once_a_minute)).id == after.id


async def test_excluded_chains_do_not_match(client: Client[Any]) -> None:
    first = await start(client, Greet(), dedup="k")
    second = await start(client, Greet(), dedup=Dedup("k", exclude=[first.id]))
    assert (second.deduplicated, second.id != first.id) == (False, True)
    assert (await start(client, Greet(), dedup="k")).id == second.id


async def test_a_deleted_chain_lets_its_key_go(client: Client[Any]) -> None:
    first = await start(client, Greet(), dedup=Dedup("k", scope="any"))
    async with client.transaction() as tx:
        await client.delete(tx, first)
    assert not (await start(client, Greet(), dedup=Dedup("k", scope="any"))).deduplicated


async def test_the_same_key_twice_in_one_batch_is_one_chain(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        first, second, third = await client.start_many(tx, [Greet(who=name).set(dedup="k") for name in ("a", "b", "c")])
    assert (first.id, first.id) == (second.id, third.id)
    assert [chain.deduplicated for chain in (first, second, third)] == [False, True, True]
    assert world.count() == 1
    assert world.heard == [("job_scheduled", "greet")]
    assert world.hub.consume("greet")
    assert not world.hub.consume("greet")


async def test_a_mixed_batch_creates_what_is_new(client: Client[Any], world: World) -> None:
    old = await start(client, Greet(), dedup="old")
    async with client.transaction() as tx:
        batch = [Greet().set(dedup="new"), Greet().set(dedup="old"), Greet()]
        chains = await client.start_many(tx, batch)
    assert [chain.deduplicated for chain in chains] == [False, True, False]
    assert chains[1].id == old.id
    assert world.count() == 3


async def test_a_rolled_back_start_leaves_its_key_free(client: Client[Any], world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await client.start(tx, Greet(), dedup="k")
            raise ZeroDivisionError
    assert not (await start(client, Greet(), dedup="k")).deduplicated
    assert world.count() == 1


async def test_a_deduplicated_start_does_not_look_at_its_explicit_id(client: Client[Any], world: World) -> None:
    first = await start(client, Greet(), dedup="k")
    again = await start(client, Greet(), dedup="k", id=first.id)
    assert (again.id, again.deduplicated, world.count()) == (first.id, True, 1)


async def test_a_running_chain_still_holds_its_key(client: Client[Any]) -> None:
    first = await start(client, Greet(), dedup="k")
    (claimed,) = await claim(client, "greet")
    again = await start(client, Greet(), dedup="k")
    assert (again.id, again.status, again.deduplicated) == (first.id, "running", True)
    await end(client, claimed.job, "expired")
    assert not (await start(client, Greet(), dedup="k")).deduplicated


# Large


async def test_a_10_mb_input_is_stored_and_warned_about_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    who = "é" * 5_000_000
    async with world.client(JOBS) as client:
        chain = await start(client, Greet(who=who))
        await start(client, Greet(who=who))
        record = await client.get_job(chain.id, Greet)
    assert record is not None
    assert record.job.who == who
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "'greet'" in warning.getMessage()
    assert "10000010" in warning.getMessage()


async def test_text_of_every_kind_comes_back_as_it_went(client: Client[Any]) -> None:
    text = "'; DROP TABLE queuert_job; -- \\u0000 \u2028 \x1f 😀 ñ\"\\ \u200d \ufeff"
    chain = await start(client, Greet(who=text), dedup=text)
    record = await client.get_job(chain.id, Greet)
    assert record is not None
    assert (record.job.who, record.dedup_key) == (text, text)
    await complete(client, chain, text)
    done = await client.get_chain(chain, Greet)
    assert done is not None
    assert done.output == text
