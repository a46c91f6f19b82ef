"""Listings: filters, order, pages that are stable while others insert, and cursors that are checked."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from tests.support.jobs import After, Charge, Close, Greet, Nothing, Rate, Receipt, Reserve, Send
from tests.support.naming import short
from tests.support.worlds import START, World, claim, complete, end, fail, start

from queuert.base.statuses import STATUSES
from queuert.client.client import Client
from queuert.errors import InvalidArgument, InvalidCursor
from queuert.jobs import Chain

List = Callable[..., Any]


async def pages(listing: List, *args: Any, **options: Any) -> list[list[str]]:
    """The ids of all pages, until there is none."""
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await listing(*args, cursor=cursor, **options)
        found.append([item.id for item in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert page.items, "an empty page promises another one"


def flat(found: list[list[str]]) -> list[str]:
    return [each for page in found for each in page]


@pytest.fixture
async def greetings(client: Client[Any], world: World) -> list[Chain[Greet]]:
    """Seven chains, a second apart."""
    chains = []
    for number in range(7):
        chains.append(await start(client, Greet(who=str(number))))
        world.pass_time(1)
    return chains


@pytest.mark.parametrize("name", ["list_jobs", "list_chains"])
@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 1000])
async def test_pages_hold_everything_once(
    client: Client[Any], greetings: list[Chain[Greet]], name: str, limit: int
) -> None:
    ids = [chain.id for chain in greetings]
    ascending = await pages(getattr(client, name), limit=limit)
    descending = await pages(getattr(client, name), limit=limit, order="desc")
    assert flat(ascending) == ids
    assert flat(descending) == ids[::-1]
    assert [len(page) for page in ascending[:-1]] == [limit] * (len(ascending) - 1)
    # The last page knows that it is the last one, also when it is full.
    assert len(ascending) == -(-7 // limit)


async def test_a_page_holds_50_unless_told_otherwise(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.start_many(tx, [Greet() for _ in range(51)])
    assert [len(page) for page in await pages(client.list_jobs)] == [50, 1]
    assert [len(page) for page in await pages(client.list_chains)] == [50, 1]


async def test_an_empty_database_has_one_empty_page(client: Client[Any]) -> None:
    for listing in (client.list_jobs, client.list_chains):
        page: Any = await listing()
        assert (list(page.items), page.next_cursor) == ([], None)


async def test_pages_are_stable_while_others_insert_and_delete(
    client: Client[Any], greetings: list[Chain[Greet]]
) -> None:
    ids = [chain.id for chain in greetings]
    ascending = await client.list_chains(limit=3)
    descending = await client.list_chains(limit=3, order="desc")
    early = await start(client, Greet(), id="00000000-0000-7000-8000-000000000000")
    late = await start(client, Greet())
    async with client.transaction() as tx:
        # The very items that the cursors point at.
        await client.delete(tx, [ids[2], ids[4]])

    up = await client.list_chains(limit=1000, cursor=ascending.next_cursor)
    down = await client.list_chains(limit=1000, order="desc", cursor=descending.next_cursor)

    assert [chain.id for chain in up.items] == [ids[3], ids[5], ids[6], late.id]
    assert [chain.id for chain in down.items] == [ids[3], ids[1], ids[0], early.id]


async def test_the_limit_may_change_between_pages(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    page = await client.list_jobs(limit=2)
    rest = await client.list_jobs(limit=100, cursor=page.next_cursor)
    assert [job.id for job in rest.items] == [chain.id for chain in greetings[2:]]


@pytest.mark.parametrize("limit", [0, -1, 1001, True, "5", 2.0, None, 10**30], ids=short)
async def test_limits_are_checked(client: Client[Any], limit: Any) -> None:
    for listing in (client.list_jobs, client.list_chains):
        with pytest.raises(InvalidArgument, match="limit must be a number from 1 to 1000"):
            await listing(limit=limit)
    with pytest.raises(InvalidArgument, match="limit"):
        await client.list_chain_jobs("x", limit=limit)
    with pytest.raises(InvalidArgument, match="limit"):
        await client.list_blocked_jobs("x", limit=limit)


@pytest.mark.parametrize("order", ["up", "ASC", "", None, 1], ids=short)
async def test_orders_are_checked(client: Client[Any], order: Any) -> None:
    with pytest.raises(InvalidArgument, match="'asc' or 'desc'"):
        await client.list_jobs(order=order)
    with pytest.raises(InvalidArgument, match="'asc' or 'desc'"):
        await client.list_chain_jobs("x", order=order)


@pytest.mark.parametrize("status", ["done", "", "PENDING", 1, ["pending", "done"], b"pending"], ids=short)
async def test_unknown_statuses_are_refused(client: Client[Any], status: Any) -> None:
    for listing in (client.list_jobs, client.list_chains):
        with pytest.raises(InvalidArgument, match="blocked, pending, running, completed, failed, cancelled, expired"):
            await listing(status=status)


@pytest.mark.parametrize(
    ("name", "args"),
    [("list_jobs", ()), ("list_chains", ()), ("list_chain_jobs", ("x",)), ("list_blocked_jobs", ("x",))],
)
async def test_misspelt_keywords_do_not_list_everything(client: Client[Any], name: str, args: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"{name}\(\) has no keyword stat"):
        await getattr(client, name)(*args, stat="failed")


async def test_filters_that_a_listing_does_not_have_are_refused(client: Client[Any]) -> None:
    with pytest.raises(InvalidArgument, match="status"):
        await client.list_chain_jobs("x", status="failed")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="ids"):
        await client.list_blocked_jobs("x", ids=["x"])  # type: ignore[call-arg]


@pytest.mark.parametrize("ids", ["one-string", 7, [7], [None], [b"x"], {"a": 1}.keys() | {1}], ids=short)
async def test_ids_are_checked(client: Client[Any], ids: Any) -> None:
    for listing in (client.list_jobs, client.list_chains):
        with pytest.raises(InvalidArgument, match="ids"):
            await listing(ids=ids)


@pytest.mark.parametrize("moment", [datetime(2030, 1, 1), "2030-01-01", 7], ids=short)  # noqa: DTZ001
@pytest.mark.parametrize("keyword", ["created_after", "created_before"])
async def test_moments_are_checked(client: Client[Any], keyword: str, moment: Any) -> None:
    options: Any = {keyword: moment}
    for listing in (client.list_jobs, client.list_chains):
        with pytest.raises(InvalidArgument, match=keyword):
            await listing(**options)


# Cursors


def forged(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "*",
        "ünïcode",
        "\0",
        7,
        b"\xff",
        ["a"],
        forged("jobs"),
        forged("jobs:asc"),
        base64.urlsafe_b64encode(b"jobs:asc:\xff").decode(),
        forged("other:asc:x"),
        forged("jobs:up:x"),
        forged("jobs:asc:x")[:-1],
    ],
    ids=short,
)
async def test_garbage_is_no_cursor(client: Client[Any], cursor: Any) -> None:
    for listing in (client.list_jobs, client.list_chains):
        with pytest.raises(InvalidCursor, match="cursor"):
            await listing(cursor=cursor)


@pytest.mark.parametrize("index", ["x", "", "-1", "1.5", "٣", "1e3"])
async def test_garbage_is_no_place_in_a_chain(client: Client[Any], index: str) -> None:
    chain = await start(client, Greet())
    with pytest.raises(InvalidCursor):
        await client.list_chain_jobs(chain, cursor=forged(f"chain-jobs:asc:{index}"))


async def test_a_place_far_beyond_the_end_of_a_chain_is_empty_or_refused(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    beyond = forged("chain-jobs:asc:" + "9" * 18)
    assert (await client.list_chain_jobs(chain, cursor=beyond)).items == []
    for digits in (19, 20, 5000):
        with pytest.raises(InvalidCursor, match="not a position in a chain"):
            await client.list_chain_jobs(chain, cursor=forged("chain-jobs:asc:" + "9" * digits))


async def test_a_cursor_belongs_to_its_listing_and_order(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    jobs = (await client.list_jobs(limit=1)).next_cursor
    chains = (await client.list_chains(limit=1)).next_cursor
    by_status = (await client.list_chains(limit=1, status="pending")).next_cursor
    assert jobs is not None
    assert chains is not None
    assert by_status is not None
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_chains(cursor=jobs)
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_jobs(cursor=chains)
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_chains(cursor=by_status)
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_chains(cursor=chains, status="pending")
    with pytest.raises(InvalidCursor, match="keep the filters and the order"):
        await client.list_jobs(cursor=jobs, order="desc")
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_chain_jobs(greetings[0], cursor=jobs)
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_blocked_jobs(greetings[0], cursor=jobs)


async def test_a_cursor_is_opaque_and_safe_in_a_url(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    cursor = (await client.list_jobs(limit=1)).next_cursor
    assert cursor is not None
    assert greetings[0].id not in cursor
    assert all(character.isalnum() or character in "-_=" for character in cursor)


# Filters


async def one_of_each(client: Client[Any]) -> dict[str, str]:
    """A chain in every status: status → chain id."""
    found: dict[str, str] = {}
    failed = await start(client, Greet())
    await fail(client, failed)
    expired = await start(client, Greet())
    (claimed,) = await claim(client, "greet")
    await end(client, claimed.job, "expired")
    done = await start(client, Greet())
    await complete(client, done, "hi")
    cancelled = await start(client, Greet())
    async with client.transaction() as tx:
        await client.cancel(tx, cancelled)
    running = await start(client, Greet())
    await claim(client, "greet")
    pending = await start(client, Greet())
    blocked = await start(client, After(greeting=pending))
    for chain, status in zip(
        (failed, expired, done, cancelled, running, pending, blocked),
        ("failed", "expired", "completed", "cancelled", "running", "pending", "blocked"),
        strict=True,
    ):
        found[status] = chain.id
    return found


async def test_by_status(client: Client[Any]) -> None:
    by_status = await one_of_each(client)
    assert set(by_status) == set(STATUSES)
    for status, chain_id in by_status.items():
        name = "after" if status == "blocked" else "greet"
        for order in ("asc", "desc"):
            options: Any = {"status": status, "order": order}
            assert flat(await pages(client.list_jobs, **options)) == [chain_id]
            assert flat(await pages(client.list_chains, **options)) == [chain_id]
            assert flat(await pages(client.list_jobs, name, **options)) == [chain_id]
            assert flat(await pages(client.list_chains, name, **options)) == [chain_id]
            assert flat(await pages(client.list_jobs, Nothing, **options)) == []
            assert flat(await pages(client.list_chains, Nothing, **options)) == []
            assert flat(await pages(client.list_chains, name, ids=[chain_id], **options)) == [chain_id]
            assert flat(await pages(client.list_jobs, name, ids=[chain_id], **options)) == [chain_id]
            assert flat(await pages(client.list_chains, ids=["other"], **options)) == []


async def test_by_type(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        chains: list[Chain[Any]] = await client.start_many(tx, [Greet(), Rate(), Greet(), Nothing()])
    ids = [chain.id for chain in chains]
    assert flat(await pages(client.list_jobs, Greet, limit=1)) == [ids[0], ids[2]]
    assert flat(await pages(client.list_chains, Greet, limit=1, order="desc")) == [ids[2], ids[0]]
    assert flat(await pages(client.list_jobs, "rate")) == [ids[1]]
    assert flat(await pages(client.list_jobs, "nobody")) == []
    assert [record.job for record in (await client.list_jobs(Greet)).items] == [Greet(), Greet()]


async def test_a_chain_is_listed_under_its_first_type_a_job_under_its_own(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    second = (await client.list_jobs(Charge)).items[0]
    assert second.chain_id == order.id
    assert flat(await pages(client.list_chains, Reserve)) == [order.id]
    assert flat(await pages(client.list_chains, "charge")) == []
    assert flat(await pages(client.list_chains, Reserve, status="pending")) == [order.id]
    assert flat(await pages(client.list_chains, Reserve, status="completed")) == []
    # The first job is completed, its chain is not.
    assert flat(await pages(client.list_jobs, Reserve, status="completed")) == [order.id]
    assert flat(await pages(client.list_jobs, status="pending")) == [second.id]


async def test_chains_by_status_come_in_the_order_of_their_current_jobs(client: Client[Any]) -> None:
    first = await start(client, Reserve(order_id=1))
    second = await start(client, Reserve(order_id=2))
    await complete(client, second, Charge(order_id=2, amount=Decimal(1)))
    await complete(client, first, Charge(order_id=1, amount=Decimal(1)))
    assert flat(await pages(client.list_chains, limit=1)) == [first.id, second.id]
    assert flat(await pages(client.list_chains, limit=1, status="pending")) == [second.id, first.id]
    assert flat(await pages(client.list_chains, limit=1, status="pending", order="desc")) == [first.id, second.id]
    for chain in (first, second):
        await complete(client, chain, Send(order_id=1, payment_id="p"))
        await complete(client, chain, Receipt("p"))
    assert flat(await pages(client.list_chains, limit=1, status="completed")) == [first.id, second.id]


async def test_by_ids(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    ids = [chain.id for chain in greetings]
    wanted = [ids[5], ids[1], "unknown", ids[1]]
    for listing in (client.list_jobs, client.list_chains):
        assert flat(await pages(listing, ids=wanted, limit=1)) == [ids[1], ids[5]]
        assert flat(await pages(listing, ids=wanted, order="desc")) == [ids[5], ids[1]]
        assert flat(await pages(listing, ids=[])) == []
        assert flat(await pages(listing, ids=(each for each in wanted))) == [ids[1], ids[5]]
        assert flat(await pages(listing, ids=wanted, status="failed")) == []


async def test_by_time_both_ends_excluded(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    ids = [chain.id for chain in greetings]
    second, fourth = START + timedelta(seconds=2), START + timedelta(seconds=4)
    for listing in (client.list_jobs, client.list_chains):
        assert flat(await pages(listing, created_after=second, limit=1)) == ids[3:]
        assert flat(await pages(listing, created_before=fourth, limit=1)) == ids[:4]
        assert flat(await pages(listing, created_after=second, created_before=fourth)) == [ids[3]]
        assert flat(await pages(listing, created_after=fourth, created_before=second)) == []
        assert flat(await pages(listing, Greet, created_after=second, status="pending", order="desc")) == ids[:2:-1]


async def test_a_chain_was_created_when_its_first_job_was(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    world.pass_time(100)
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    later = START + timedelta(seconds=50)
    assert flat(await pages(client.list_chains, created_before=later)) == [order.id]
    assert flat(await pages(client.list_chains, created_before=later, status="pending")) == [order.id]
    assert flat(await pages(client.list_chains, created_after=later)) == []
    assert len(flat(await pages(client.list_jobs, created_after=later))) == 1


async def test_extreme_moments(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    earliest, latest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    beyond = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
    for listing in (client.list_jobs, client.list_chains):
        assert len((await listing(created_after=earliest, created_before=latest)).items) == len(greetings)
        with pytest.raises(InvalidArgument, match="created_before must lie between"):
            await listing(created_before=beyond)


async def test_root_only_leaves_out_what_others_wait_for(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=1))
    rate = await start(client, Rate())
    alone = await start(client, Rate())
    books = await start(client, Close(day="mon", order=order, rates=[rate]))
    assert flat(await pages(client.list_chains, root_only=True, limit=1)) == [alone.id, books.id]
    assert flat(await pages(client.list_chains, Rate, root_only=True)) == [alone.id]
    assert flat(await pages(client.list_chains, root_only=True, status="pending")) == [alone.id]
    assert flat(await pages(client.list_chains, root_only=True, ids=[order.id, books.id])) == [books.id]
    await complete(client, rate, 1.0)
    # It is a blocker still, though nobody waits for it any more.
    assert flat(await pages(client.list_chains, Rate, root_only=True)) == [alone.id]


# The jobs of a chain, and those that wait for it


async def test_list_chain_jobs(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=1))
    for amount in range(12):
        await complete(client, order, Charge(order_id=1, amount=Decimal(amount)))
    page = await client.list_chain_jobs(order, limit=100)
    assert [job.chain_index for job in page.items] == list(range(13))
    assert [job.continued_to for job in page.items[:-1]] == [job.id for job in page.items[1:]]
    ids = [job.id for job in page.items]
    assert flat(await pages(client.list_chain_jobs, order.id, limit=5)) == ids
    assert flat(await pages(client.list_chain_jobs, order.id, limit=4, order="desc")) == ids[::-1]
    # Asked by the id of a later job, there is no such chain.
    assert (await client.list_chain_jobs(ids[3])).items == []


async def test_list_blocked_jobs(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    waiting = [await start(client, After(greeting=greeting)) for _ in range(5)]
    ids = [chain.id for chain in waiting]
    assert flat(await pages(client.list_blocked_jobs, greeting, limit=2)) == ids
    assert flat(await pages(client.list_blocked_jobs, greeting.id, limit=2, order="desc")) == ids[::-1]
    await complete(client, greeting, "hi")
    page = await client.list_blocked_jobs(greeting)
    assert {job.status for job in page.items} == {"pending"}
    assert flat(await pages(client.list_blocked_jobs, waiting[0])) == []


# iter_chains and iter_jobs


@pytest.mark.parametrize("name", ["iter_jobs", "iter_chains"])
@pytest.mark.parametrize("page_size", [1, 3, 7, 1000])
async def test_iterating_gives_everything_once(
    client: Client[Any], greetings: list[Chain[Greet]], name: str, page_size: int
) -> None:
    ids = [chain.id for chain in greetings]
    iterate = getattr(client, name)
    assert [each.id async for each in iterate(page_size=page_size)] == ids
    assert [each.id async for each in iterate(page_size=page_size, order="desc")] == ids[::-1]
    assert [each.id async for each in iterate(Greet, page_size=page_size, ids=ids[2:5])] == ids[2:5]
    assert [each.id async for each in iterate("rate", page_size=page_size)] == []


async def test_iterating_takes_the_filters_of_the_listing(client: Client[Any], greetings: list[Chain[Greet]]) -> None:
    ids = [chain.id for chain in greetings]
    await complete(client, greetings[1], "hi")
    await start(client, After(greeting=greetings[3]))
    later = START + timedelta(seconds=2.5)

    assert [each.id async for each in client.iter_chains(status="completed")] == [ids[1]]
    assert [each.id async for each in client.iter_jobs(Greet, status="completed")] == [ids[1]]
    assert [each.id async for each in client.iter_chains(Greet, created_after=later, page_size=2)] == ids[3:]
    assert [each.id async for each in client.iter_jobs(Greet, created_before=later, page_size=2)] == ids[:3]
    roots = [each.id async for each in client.iter_chains(Greet, root_only=True, page_size=2)]
    assert roots == [*ids[:3], *ids[4:]]


async def test_what_was_received_may_be_deleted_while_iterating(
    client: Client[Any], greetings: list[Chain[Greet]]
) -> None:
    seen = []
    async for chain in client.iter_chains(page_size=2):
        seen.append(chain.id)
        async with client.transaction() as tx:
            await client.delete(tx, chain)

    assert seen == [chain.id for chain in greetings]
    assert (await client.list_chains()).items == []


async def test_iterating_inside_a_transaction_sees_its_changes(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        chains = await client.start_many(tx, [Greet() for _ in range(5)])
        assert [each.id async for each in client.iter_chains(tx=tx, page_size=2)] == [each.id for each in chains]
        assert [each.id async for each in client.iter_jobs(tx=tx, page_size=2)] == [each.id for each in chains]
        assert [each async for each in client.iter_chains()] == []


async def test_leaving_an_iteration_early_keeps_nothing_open(
    client: Client[Any], greetings: list[Chain[Greet]]
) -> None:
    async for chain in client.iter_chains(page_size=2):
        assert chain == greetings[0]
        break
    async with client.transaction() as tx:
        await client.cancel(tx, greetings)


@pytest.mark.parametrize("name", ["iter_jobs", "iter_chains"])
async def test_wrong_arguments_of_an_iteration(client: Client[Any], name: str) -> None:
    iterate = getattr(client, name)
    for wrong in ({"stauts": "failed"}, {"cursor": None}, {"limit": 5}):
        with pytest.raises(InvalidArgument, match=rf"{name}\(\) has no keyword"):
            iterate(**wrong)
    for wrong in ({"status": "done"}, {"order": "up"}, {"page_size": 0}):
        with pytest.raises(InvalidArgument):
            [each async for each in iterate(**wrong)]
