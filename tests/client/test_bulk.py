"""Bulk operations, as a client starts them and as their pages do them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.support.bulk import page, pages, step_in
from tests.support.jobs import After, Charge, Greet, Rate, Reserve
from tests.support.worlds import START, World, claim, complete, end, fail, start

from queuert import Chain, EntryJob, Filter, InvalidArgument, InvalidJobType
from queuert.client.client import Client
from queuert.features.bulk import pages as bulk
from queuert.features.bulk.jobs import BulkResult
from queuert.features.bulk.plan import BulkPlan


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)


async def begin(client: Client[Any], action: str, where: Any, *args: Any, **options: Any) -> Chain[Any]:
    async with client.transaction() as tx:
        method: Any = getattr(client, f"bulk_{action}")
        operation: Chain[Any] = await method(tx, where, *args, **options)
    return operation


async def result(client: Client[Any], operation: Chain[Any]) -> BulkResult:
    found = await client.get_chain(operation)
    assert found is not None
    assert found.status == "completed"
    output: BulkResult = found.output
    return output


async def done(client: Client[Any], action: str, where: Any, *args: Any, **options: Any) -> BulkResult:
    """Start an operation, and do all its pages."""
    operation = await begin(client, action, where, *args, **options)
    await pages(client)
    return await result(client, operation)


async def statuses(client: Client[Any], *chains: Chain[Any]) -> list[str | None]:
    found = [await client.get_chain(chain.id) for chain in chains]
    return [None if chain is None else chain.status for chain in found]


async def failures(client: Client[Any], number: int) -> list[Chain[Any]]:
    chains = [await start(client, Greet(who=str(each))) for each in range(number)]
    for chain in chains:
        await fail(client, chain)
    return chains


# What is done


@pytest.mark.drivers
async def test_failed_chains_are_retried_a_page_at_a_time(client: Client[Any], world: World) -> None:
    chains = await failures(client, 5)
    other = await start(client, Greet())
    world.heard.clear()
    operation = await begin(client, "retry", Filter(status="failed", type=Greet))
    assert (operation.chain_type, operation.status) == ("queuert.bulk-retry", "pending")
    assert world.heard == [("job_scheduled", "queuert.bulk-retry")]
    world.heard.clear()
    first = await page(client)
    assert (first.chain_id, first.next_in) == (operation.id, 0)
    assert await statuses(client, *chains) == ["pending"] * 2 + ["failed"] * 3
    assert world.heard == [("job_scheduled", "greet")], "and not the next page"
    assert await pages(client) == 2
    assert await statuses(client, *chains, other) == ["pending"] * 6
    assert await result(client, operation) == BulkResult(changed=5, unchanged=0)
    assert world.heard[-1] == ("job_scheduled", "greet")
    assert ("chain_ended", operation.id) in world.heard
    assert await client.wait(operation, timeout=45) == BulkResult(5, 0)
    assert [each.job.attempt for each in await claim(client, "greet", limit=9)] == [1] * 6


@pytest.mark.drivers
async def test_open_chains_are_cancelled(client: Client[Any], world: World) -> None:
    running = await start(client, Greet())
    await claim(client, "greet")
    waiting = [await start(client, Greet()), await start(client, Greet(), after=60)]
    ended = (await failures_of(client, Rate()))[0]
    other = await start(client, Reserve(order_id=1))
    assert await done(client, "cancel", "type:greet,rate") == BulkResult(3, 0)
    assert await statuses(client, running, *waiting) == ["cancelled"] * 3
    assert await statuses(client, ended, other) == ["failed", "pending"]
    assert ("ownership_lost", running.id) in world.heard


async def failures_of(client: Client[Any], *jobs: EntryJob[Any, Any]) -> list[Chain[Any]]:
    chains = [await start(client, job) for job in jobs]
    for chain in chains:
        await fail(client, chain)
    return chains


@pytest.mark.parametrize("cascade", [False, True])
async def test_cancelling_with_what_waits(client: Client[Any], world: World, cascade: bool) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    assert await done(client, "cancel", "type:greet", cascade=cascade) == BulkResult(1, 0, int(cascade))
    assert await statuses(client, greeting, after) == ["cancelled", "cancelled" if cascade else "blocked"]


@pytest.mark.drivers
async def test_chains_are_deleted_the_latest_first(client: Client[Any], world: World) -> None:
    """So a chain is gone before those that it waits for are looked at."""
    greetings = await failures(client, 3)
    waiting = [await start(client, After(greeting=greeting)) for greeting in greetings]
    assert await done(client, "delete", Filter(type=["greet", "after"])) == BulkResult(6, 0)
    assert await statuses(client, *greetings, *waiting) == [None] * 6


async def test_what_others_need_is_not_deleted(client: Client[Any], world: World) -> None:
    greetings = await failures(client, 4)
    waiting = await start(client, After(greeting=greetings[1]))
    assert await done(client, "delete", "status:failed") == BulkResult(3, 1)
    assert await statuses(client, *greetings, waiting) == [None, "failed", None, None, "blocked"]


async def test_deleting_with_what_was_waited_for(client: Client[Any], world: World) -> None:
    free, held = await failures(client, 2)
    first = await start(client, After(greeting=free))
    second = await start(client, After(greeting=held))
    third = await start(client, After(greeting=held))
    where = Filter(chain=[first, second])
    assert await done(client, "delete", where, cascade=True) == BulkResult(1, 1, 1)
    assert await statuses(client, free, first) == [None, None]
    assert await statuses(client, held, second, third) == ["failed", "blocked", "blocked"]


@pytest.mark.drivers
async def test_chains_that_wait_are_triggered(client: Client[Any], world: World) -> None:
    due = await start(client, Greet())
    waiting = [await start(client, Greet(), after=60) for _ in range(3)]
    assert await done(client, "trigger", "type:greet") == BulkResult(3, 1)
    assert sorted(each.job.id for each in await claim(client, "greet", limit=9)) == sorted(
        chain.id for chain in (due, *waiting)
    )


@pytest.mark.drivers
async def test_priorities(client: Client[Any], world: World) -> None:
    ready = await start(client, Greet())
    urgent = [await start(client, Rate()), await start(client, Rate(), after=60)]
    blocked = await start(client, After(greeting=ready))
    running = await start(client, Reserve(order_id=1))
    await claim(client, "reserve")
    assert await done(client, "set_priority", "type:rate,after,reserve", 7) == BulkResult(3, 0)
    assert await done(client, "set_priority", "type:rate", 7) == BulkResult(0, 2), "again"
    jobs = [await client.get_job(chain.id) for chain in (*urgent, blocked, ready, running)]
    assert [job and job.priority for job in jobs] == [7, 7, 7, 100, 100]
    assert [each.job.type_name for each in await claim(client, "greet", "rate", limit=9)] == ["rate", "greet"]


# What matched at the start


async def test_only_what_had_failed_before(client: Client[Any], world: World) -> None:
    """What fails, or is created, while the operation runs is left as it is."""
    chains = await failures(client, 3)
    late = await start(client, Greet())
    world.pass_time(1)
    operation = await begin(client, "retry", "status:failed")
    world.pass_time(1)
    await fail(client, late)
    later = (await failures(client, 1))[0]
    await page(client)
    again = await claim(client, "greet")
    await end(client, again[0].job, "failed", error=b"{}")
    await pages(client)
    assert await statuses(client, *chains, late, later) == ["failed", "pending", "pending", "failed", "failed"]
    assert await result(client, operation) == BulkResult(3, 2)


async def test_what_no_longer_matches_under_the_lock(client: Client[Any], world: World) -> None:
    """Another transaction has changed a chain after the page was read."""
    chains = await failures(client, 2)
    operation = await begin(client, "cancel", "status:pending")
    fresh = [await start(client, Greet(who="x")), await start(client, Greet(who="y"))]
    state, locked = client._engine.state, client._engine.state.get_chains

    def get_chains(ids: Any, *, lock: bool = False) -> Any:
        if lock:
            yield from state.settle([])
            yield from state.cancel_chains([fresh[0].id], cascade=False)
        return (yield from locked(ids, lock=lock))

    object.__setattr__(state, "get_chains", get_chains)
    try:
        await pages(client)
    finally:
        del state.get_chains
    assert await result(client, operation) == BulkResult(1, 1)
    assert await statuses(client, *chains, *fresh) == ["failed", "failed", "cancelled", "cancelled"]


async def test_a_chain_is_not_visited_again_with_its_next_job(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1), after=60)
    others = [await start(client, Greet(), after=60) for _ in range(3)]
    world.pass_time(1)
    operation = await begin(client, "trigger", "status:pending")
    await page(client)
    world.pass_time(1)
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)).set(after=60))
    await pages(client)
    found = await client.get_chain(order)
    assert found is not None
    job = await client.get_job(found.current_job_id or "")
    assert job is not None
    assert job.scheduled_at == START + timedelta(seconds=62), "the next job waits for its own time"
    assert await result(client, operation) == BulkResult(4, 1)
    assert len(await claim(client, "greet", limit=9)) == len(others)


async def test_a_chain_that_moves_on_is_still_cancelled(client: Client[Any], world: World) -> None:
    others = [await start(client, Greet()) for _ in range(3)]
    order = await start(client, Reserve(order_id=1))
    world.pass_time(1)
    operation = await begin(client, "cancel", "status:pending")
    await page(client)
    world.pass_time(1)
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    late = await start(client, Greet())
    await pages(client)
    assert await statuses(client, *others, order, late) == ["cancelled"] * 4 + ["pending"]
    assert await result(client, operation) == BulkResult(4, 1)


async def test_durations_count_from_the_start(client: Client[Any], world: World) -> None:
    """The filter is the one of the call, however long its pages take."""
    operation = await begin(client, "cancel", Filter(created=(START, START + timedelta(seconds=5))))
    record = await client.get_job(operation.id)
    assert record is not None
    assert record.input["filter"] == "created:2030-01-01T00:00:00Z..2030-01-01T00:00:05Z"


@pytest.mark.parametrize("where", [{"created": (None, START)}, {"chain_type": "greet"}, {"key": ["a", "b"]}])
async def test_along_other_indexes(client: Client[Any], world: World, where: dict[str, Any]) -> None:
    chains = [await start(client, Greet(), dedup=key) for key in ("a", "b")]
    world.now = START - timedelta(seconds=1)
    chains += [await start(client, Greet()) for _ in range(3)]
    world.now = START + timedelta(seconds=1)
    matching = {"created": chains[2:], "chain_type": chains, "key": chains[:2]}[next(iter(where))]
    assert await done(client, "delete", Filter(**where)) == BulkResult(len(matching), 0)
    left = [chain for chain in chains if chain not in matching]
    assert [chain.id async for chain in client.iter_chains()] == [chain.id for chain in left]


# How it goes on


async def test_it_can_be_cancelled_in_the_middle(client: Client[Any], world: World) -> None:
    chains = await failures(client, 5)
    operation = await begin(client, "retry", "status:failed")
    await page(client)
    async with client.transaction() as tx:
        (cancelled,) = await client.cancel(tx, operation)
    assert cancelled.id == operation.id
    assert await pages(client) == 0
    assert await statuses(client, operation, *chains) == ["cancelled", "pending", "pending", *["failed"] * 3]


async def test_a_page_that_is_rolled_back_is_done_again(client: Client[Any], world: World) -> None:
    chains = await failures(client, 3)
    operation = await begin(client, "retry", "status:failed")
    world.heard.clear()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="power failure"):
            await interrupted(client)
    assert world.heard == []
    assert await statuses(client, operation, *chains) == ["pending", *["failed"] * 3]
    await pages(client)
    assert await result(client, operation) == BulkResult(3, 0)


async def interrupted(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await step_in(client, tx)
        raise RuntimeError("power failure")


@pytest.mark.parametrize(("rate", "delays"), [(1.0, [1, 1]), (2, [1]), (0.5, [2, 2]), (1000, [0.002])])
async def test_so_many_per_second(client: Client[Any], world: World, rate: float, delays: list[float]) -> None:
    """The next page is due when as much time has passed as its chains may take."""
    await failures(client, 3)
    operation = await begin(client, "retry", "status:failed", per_second=rate)
    for delay in delays:
        step = await page(client)
        assert step.next_in == delay
        assert (await page(client)).chain_id is None, "too early"
        world.pass_time(delay)
    while await pages(client):
        world.pass_time(10)
    assert await result(client, operation) == BulkResult(3, 0)


async def test_two_operations_at_once(client: Client[Any], world: World) -> None:
    chains = await failures(client, 5)
    first = await begin(client, "retry", "status:failed")
    second = await begin(client, "retry", "status:failed")
    await pages(client)
    assert await statuses(client, *chains) == ["pending"] * 5
    counts = [await result(client, operation) for operation in (first, second)]
    assert sum(each.changed for each in counts) == 5


# Hidden


@pytest.mark.drivers
async def test_they_are_hidden_unless_they_are_named(client: Client[Any], world: World) -> None:
    chains = await failures(client, 5)
    operation = await begin(client, "retry", "status:failed", per_second=1)
    await page(client)
    seen = [chain.id async for chain in client.iter_chains()]
    assert seen == [chain.id for chain in chains]
    assert [job.id async for job in client.iter_jobs(page_size=2)] == seen
    assert [job.id async for job in client.iter_jobs(status="pending")] == [chains[0].id]
    assert [each.job_type for each in await client.stats()] == ["greet"]
    named = await client.list_chains("queuert.bulk-retry")
    assert [(chain.id, chain.status) for chain in named.items] == [(operation.id, "pending")]
    assert len((await client.list_jobs("queuert.bulk-retry")).items) == 2
    assert [chain.id for chain in (await client.list_chains(ids=[operation.id])).items] == [operation.id]
    assert [chain.id for chain in (await client.list_chains(where=Filter(chain=operation))).items] == [operation.id]


async def test_pages_are_full_although_some_are_hidden(client: Client[Any], world: World) -> None:
    for _ in range(4):
        await begin(client, "retry", "status:failed")
    chains = [await start(client, Greet()) for _ in range(3)]
    first = await client.list_chains(limit=2)
    assert [chain.id for chain in first.items] == [chain.id for chain in chains[:2]]
    second = await client.list_chains(limit=2, cursor=first.next_cursor)
    assert ([chain.id for chain in second.items], second.next_cursor) == ([chains[2].id], None)
    latest = await client.list_jobs(limit=3, order="desc")
    assert [job.id for job in latest.items] == [chain.id for chain in chains[::-1]]


async def test_they_never_match_a_bulk_filter(client: Client[Any], world: World) -> None:
    waiting = await begin(client, "retry", "status:failed", per_second=1)
    chain = await start(client, Greet())
    operation = await begin(client, "cancel", "status:pending")
    await pages(client)
    assert await statuses(client, chain) == ["cancelled"]
    assert await result(client, operation) == BulkResult(1, 0)
    assert await result(client, waiting) == BulkResult(0, 0)
    assert await done(client, "delete", Filter(chain=[waiting, operation])) == BulkResult(0, 0)
    with pytest.raises(InvalidArgument, match="leaves out the library's own"):
        await begin(client, "delete", "chain-type:queuert.bulk-retry")


def test_their_names_are_refused() -> None:
    with pytest.raises(InvalidJobType, match=r"begin with 'queuert\.' are the library's own"):

        class Mine(EntryJob[None], name="queuert.mine"):
            pass

    class Near(EntryJob[None], name="queuertly"):
        pass


# Plans


async def plan(client: Client[Any], action: Any, where: Any, **options: Any) -> BulkPlan:
    return await client.plan(action, where, **options)


@pytest.mark.drivers
async def test_a_plan(client: Client[Any], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    chains = await failures(client, 12)
    await failures_of(client, Rate())
    before = world.snapshot()
    found = await plan(client, "retry", "status:failed")
    assert world.snapshot() == before
    assert (found.action, found.filter, found.number, found.more) == ("retry", "status:failed", 13, False)
    assert found.types == {"greet": 12, "rate": 1}
    assert [chain.id for chain in found.sample] == [chain.id for chain in chains[:10]]
    assert [note.text for note in found.notes] == [
        "no worker that is alive has a handler for greet: its jobs wait",
        "no worker that is alive has a handler for rate: its jobs wait",
    ]
    assert str(found).splitlines()[0] == "retry status:failed: 13 chains (12 greet, 1 rate)"


async def test_a_plan_counts_so_many_at_most(
    client: Client[Any], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuert.features.bulk.planning.COUNTED", 3)
    await failures(client, 3)
    assert (await plan(client, "retry", "status:failed")).more is False
    await failures(client, 1)
    found = await plan(client, "retry", "status:failed")
    assert (found.number, found.more, found.counted) == (3, True, "more than 3 chains")


async def test_a_plan_names_what_is_paused(client: Client[Any], world: World) -> None:
    await failures(client, 1)
    async with client.transaction() as tx:
        await client.pause(tx, Greet, reason="PSP down", by="me", until=60)
    found = await plan(client, "retry", "status:failed")
    text = "greet is paused (type greet, by me, until 2030-01-01T00:01:00+00:00, PSP down): its jobs wait"
    assert found.notes[0].text == text


async def test_a_plan_names_what_is_needed_or_left_waiting(client: Client[Any], world: World) -> None:
    greeting, other = await start(client, Greet()), await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    found = await plan(client, "delete", "type:greet")
    assert found.number == 2
    assert [(str(note), note.chains) for note in found.notes] == [
        ("1 chain is still needed by jobs that may run: they stay", (greeting.id,))
    ]
    found = await plan(client, "cancel", "type:greet")
    (note,) = found.notes
    assert note.chains == (greeting.id,)
    assert "blocked for ever" in note.text
    found = await plan(client, "cancel", "type:greet", cascade=True)
    assert (found.number, [chain.id for chain in found.cascaded], found.notes) == (2, [after.id], ())
    assert "also, because of cascade: 1" in str(found)
    found = await plan(client, "delete", "type:after", cascade=True)
    assert ([chain.id for chain in found.cascaded], found.notes) == ([greeting.id], ())
    assert other.id not in [chain.id for chain in found.cascaded]


# Bad input


@pytest.mark.parametrize(
    ("action", "where", "options", "message"),
    [
        ("retry", "", {}, "needs a filter"),
        ("retry", Filter(), {}, "needs a filter"),
        ("retry", None, {}, "needs a filter"),
        ("retry", 7, {}, "takes a Filter or its text"),
        ("retry", "status:completed", {}, "retry changes chains that are failed, and the filter has only status:comp"),
        ("trigger", "status:failed,blocked", {}, "changes chains that are pending"),
        ("retry", "statu:failed", {}, "no word 'statu'"),
        ("retry", "type:queuert.bulk-retry", {}, "library's own"),
        ("retry", "type:a", {"per_second": 0}, "per_second must be a number of 0.001 or more"),
        ("retry", "type:a", {"per_second": 1e-300}, "per_second must be a number of 0.001 or more"),
        ("retry", "type:a", {"per_second": float("nan")}, "per_second"),
        ("retry", "type:a", {"per_second": True}, "per_second"),
        ("retry", "type:a", {"by": ""}, "by must not be empty"),
        ("retry", "type:a", {"reason": "x" * 1001}, "reason"),
        ("retry", "type:a", {"cascade": True}, "has no keyword cascade"),
        ("retry", "type:a", {"speed": 1}, "has no keyword speed"),
        ("set_priority", "type:a", {"priority": 2**40}, "priority must be between"),
        ("set_priority", "type:a", {"priority": True}, "priority must be an integer"),
    ],
)
async def test_bad_input(
    client: Client[Any], world: World, action: str, where: Any, options: dict[str, Any], message: str
) -> None:
    before = world.snapshot()
    with pytest.raises(InvalidArgument, match=message):
        await begin(client, action, where, **options)
    assert world.snapshot() == before


async def test_bad_plans(client: Client[Any], world: World) -> None:
    unknown: Any = "explode"
    with pytest.raises(InvalidArgument, match="one of retry, cancel, delete, trigger, set_priority, not 'explode'"):
        await client.plan(unknown, "status:failed")
    with pytest.raises(InvalidArgument, match="cascade is for cancel and delete"):
        await client.plan("retry", "status:failed", cascade=True)
