"""put_schedule and the rest, as a client does them, and firing as a worker does it, by a clock that stands still."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.jobs import After as Waiting
from tests.support.jobs import Greet
from tests.support.schedules import fire, rewrite
from tests.support.worlds import START, World, claim, end, run, start

from queuert import After, Cron, EntryJob, Every, Limit, Schedule
from queuert.client.client import Client
from queuert.errors import (
    InvalidArgument,
    InvalidCursor,
    QueuertError,
    ScheduleNotFound,
    TransactionRequired,
    UnknownJobType,
)
from queuert.features.schedules.stored import State, encode
from queuert.records.limits import lane_of

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOURLY = Every(HOUR)

pytestmark = pytest.mark.drivers


class Unknown(EntryJob[None], name="unknown"):
    pass


async def put(client: Client[Any], name: str = "s", times: Any = HOURLY, job: Any = None, **options: Any) -> Schedule:
    async with client.transaction() as tx:
        return await client.put_schedule(tx, name, times, job or Greet(who="me"), **options)


async def fired_at(client: Client[Any]) -> list[datetime | None]:
    chains = await client.list_chains(limit=1000)
    return [chain.tick for chain in chains.items]


async def get(client: Client[Any], name: str = "s") -> Schedule:
    found = await client.get_schedule(name)
    assert found is not None
    return found


async def test_a_schedule_commits_with_the_transaction(client: Client[Any], world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            made = await client.put_schedule(tx, "s", HOURLY, Greet(who="me"))
            assert await client.get_schedule("s", tx=tx) == made
            raise ZeroDivisionError
    assert await client.get_schedule("s") is None
    assert world.heard == []
    made = await put(client, overlap="skip", catch_up="all", catch_up_max=7, within=HOUR)
    assert world.heard == [("schedule_changed", "s")]
    assert await get(client) == made
    assert (made.name, made.times, made.job_type, made.input) == ("s", HOURLY, "greet", {"who": "me"})
    assert (made.overlap, made.catch_up, made.catch_up_max, made.within) == ("skip", "all", 7, HOUR)
    assert (made.status, made.next_at, made.created_at, made.declared) == ("active", START + HOUR, START, False)


async def test_it_fires_with_its_job_and_its_options(client: Client[Any], world: World) -> None:
    await put(client, job=Greet(who="you").set(priority=3, deadline=10 * MINUTE))
    await fire(client)
    assert await fired_at(client) == []
    world.pass_time(3600)
    world.heard.clear()
    fired = await fire(client)
    assert fired.seen == 1
    (chain,) = (await client.list_chains()).items
    assert chain.tick == START + HOUR
    job = await client.get_job(chain.id, Greet)
    assert job is not None
    assert (job.job.who, job.priority, job.deadline) == ("you", 3, START + HOUR + 10 * MINUTE)
    schedule = await get(client)
    assert (schedule.last_tick, schedule.last_chain_ids) == (START + HOUR, (chain.id,))
    assert (schedule.next_at, schedule.status) == (START + 2 * HOUR, "active")
    assert (await fire(client)).seen == 0
    of_chain = await client.schedule_of(chain)
    assert of_chain is not None
    assert of_chain.name == "s"


async def test_a_chain_without_a_schedule(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    assert chain.tick is None
    assert await client.schedule_of(chain) is None
    assert (await client.why(chain)).schedule is None


async def test_putting_the_same_changes_nothing(client: Client[Any], world: World) -> None:
    first = await put(client, times=Cron("0 3 * * *", tz="Europe/Berlin"))
    world.heard.clear()
    world.pass_time(5)
    before = world.snapshot()
    again = await put(client, times=Cron("0  3 * * *", tz="Europe/Berlin"))
    assert world.heard == []
    assert world.snapshot() == before
    assert again.next_at == first.next_at


async def test_another_expression_counts_from_now(client: Client[Any], world: World) -> None:
    await put(client, catch_up="all")
    world.pass_time(5 * 3600)
    await put(client, times=Every(2 * HOUR), catch_up="all")
    assert (await fire(client)).seen == 0
    assert (await get(client)).next_at == START + 6 * HOUR


async def test_another_input_keeps_the_next_tick(client: Client[Any], world: World) -> None:
    await put(client)
    world.pass_time(3601)
    await put(client, job=Greet(who="another"))
    await fire(client)
    (chain,) = (await client.list_chains()).items
    assert (chain.tick, chain.input) == (START + HOUR, {"who": "another"})


async def test_a_tick_fires_once_although_its_schedule_was_put_back(client: Client[Any], world: World) -> None:
    """As from an old backup of the schedules: an id that exists counts as fired."""
    await put(client)
    world.pass_time(3600)
    await fire(client)
    state = encode(State(created_at=START, horizon=START))
    await rewrite(client, "s", due_at=START, next_at=START + HOUR, state=state)
    assert (await fire(client)).seen == 1
    assert await fired_at(client) == [START + HOUR]
    assert (await get(client)).next_at == START + 2 * HOUR


async def test_a_deleted_chain_does_not_fire_again(client: Client[Any], world: World) -> None:
    await put(client)
    world.pass_time(3600)
    await fire(client)
    (chain,) = (await client.list_chains()).items
    async with client.transaction() as tx:
        await client.delete(tx, chain)
    world.pass_time(60)
    await fire(client)
    assert await fired_at(client) == []
    async with client.transaction() as tx:
        assert await client.backfill(tx, "s", START, START + 10 * HOUR) == 2
    await fire(client)
    assert await fired_at(client) == [START, START + HOUR]


async def test_made_anew_it_fires_anew(client: Client[Any], world: World) -> None:
    world.pass_time(-1)
    for _ in range(2):
        await put(client)
        world.pass_time(1)
        await fire(client)
        world.pass_time(-1)
        async with client.transaction() as tx:
            gone = await client.delete_schedule(tx, "s")
            assert gone is not None
            assert await client.delete_schedule(tx, "s") is None
    assert await fired_at(client) == [START, START]
    (chain, _) = (await client.list_chains()).items
    assert await client.schedule_of(chain) is None
    assert chain.tick == START


async def test_pausing(client: Client[Any], world: World) -> None:
    await put(client, catch_up="all")
    async with client.transaction() as tx:
        paused = await client.pause_schedule(tx, "s")
        assert (paused.status, paused.paused_until) == ("paused", None)
    world.pass_time(2 * 3600 + 60)
    assert (await fire(client)).seen == 0
    world.heard.clear()
    async with client.transaction() as tx:
        resumed = await client.resume_schedule(tx, "s")
    assert world.heard == [("schedule_changed", "s")]
    assert (resumed.status, resumed.next_at) == ("active", START + 3 * HOUR)
    async with client.transaction() as tx:
        assert await client.resume_schedule(tx, "s") == resumed
        paused = await client.pause_schedule(tx, "s", until=2 * HOUR)
        assert paused.paused_until == world.now + 2 * HOUR
    world.pass_time(3 * 3600)
    await fire(client)
    assert await fired_at(client) == [START + 5 * HOUR]
    assert (await get(client)).status == "active"


async def test_a_paused_schedule_that_is_changed_stays_paused(client: Client[Any], world: World) -> None:
    await put(client)
    async with client.transaction() as tx:
        await client.pause_schedule(tx, "s")
    assert (await put(client, times=Every(MINUTE))).status == "paused"
    world.pass_time(600)
    assert (await fire(client)).seen == 0


async def test_triggering(client: Client[Any], world: World) -> None:
    await put(client, overlap="skip")
    async with client.transaction() as tx:
        await client.pause_schedule(tx, "s")
    async with client.transaction() as tx:
        one = await client.trigger_schedule(tx, "s")
        two = await client.trigger_schedule(tx, "s")
    assert one is not None
    assert two is not None
    assert (one.chain_type, one.input, one.tick) == ("greet", {"who": "me"}, START)
    assert two.tick == START + timedelta(milliseconds=1)
    assert (await get(client)).last_tick is None
    of_chain = await client.schedule_of(two)
    assert of_chain is not None


async def test_what_is_triggered_at_a_tick_is_not_the_tick(client: Client[Any], world: World) -> None:
    await put(client)
    world.pass_time(3600)
    async with client.transaction() as tx:
        await client.trigger_schedule(tx, "s")
    await fire(client)
    assert await fired_at(client) == [START + HOUR] * 2


async def test_overlap_skip_and_why(client: Client[Any], world: World) -> None:
    await put(client, overlap="skip")
    world.pass_time(3600)
    await fire(client)
    (chain,) = (await client.list_chains()).items
    why = await client.why(chain)
    assert (why.schedule, why.tick) == ("s", START + HOUR)
    assert "started by schedule s, for 01:00:00 UTC (0 s ago)" in str(why)
    assert "until it has ended, ticks of s are skipped (a blocked chain counts as running)" in str(why)
    world.pass_time(3600)
    await fire(client)
    schedule = await get(client)
    assert (schedule.skips, schedule.skipped_at, schedule.last_tick) == (1, START + 2 * HOUR, START + HOUR)
    assert "1 skipped" in str(schedule)
    await complete(client)
    world.pass_time(3600)
    await fire(client)
    assert await fired_at(client) == [START + HOUR, START + 3 * HOUR]


async def complete(client: Client[Any], type_name: str = "greet") -> None:
    for claimed in await claim(client, type_name):
        await end(client, claimed.job, "completed", output=b'"x"')


async def test_overlap_cancel(client: Client[Any], world: World) -> None:
    await put(client, overlap="cancel")
    for _ in range(3):
        world.pass_time(3600)
        await fire(client)
    statuses = [chain.status for chain in (await client.list_chains()).items]
    assert statuses == ["cancelled", "cancelled", "pending"]
    assert (await get(client)).next_at == START + 4 * HOUR
    assert (await fire(client)).seen == 0, "it is not looked at before its next tick"


async def test_overlap_queue(client: Client[Any], world: World) -> None:
    await put(client, overlap="queue")
    for _ in range(3):
        world.pass_time(3600)
        await fire(client)
    schedule = await get(client)
    assert (schedule.queued, schedule.skips, schedule.status) == (START + 2 * HOUR, 1, "waiting")
    await complete(client)
    world.pass_time(60)
    await fire(client)
    assert await fired_at(client) == [START + HOUR, START + 2 * HOUR]


@pytest.mark.parametrize("end", ["completed", "cancelled", "deleted"])
async def test_after_goes_on_however_its_chain_ended(client: Client[Any], world: World, end: str) -> None:
    await put(client, times=After(HOUR))
    await fire(client)
    (chain,) = (await client.list_chains()).items
    world.pass_time(1800)
    await fire(client)
    assert (await get(client)).status == "waiting"
    if end == "completed":
        await complete(client)
    else:
        async with client.transaction() as tx:
            await (client.cancel(tx, chain) if end == "cancelled" else client.delete(tx, chain))
    world.pass_time(60)
    await fire(client)
    counted = START + (30 if end != "deleted" else 31) * MINUTE + HOUR
    assert (await get(client)).next_at == counted
    world.pass_time(3600)
    await fire(client)
    assert (await fired_at(client))[-1] == counted


async def test_backfill(client: Client[Any], world: World) -> None:
    await put(client, overlap="skip")
    world.pass_time(3600)
    await fire(client)
    world.pass_time(60)
    async with client.transaction() as tx:
        assert await client.backfill(tx, "s", START - 3 * HOUR, START + 100 * HOUR) == 5
        assert await client.backfill(tx, "s", START + MINUTE, START + 2 * MINUTE) == 0
    await fire(client)
    assert await fired_at(client) == [START + number * HOUR for number in range(-3, 2)]
    schedule = await get(client)
    assert (schedule.last_tick, schedule.next_at) == (START + HOUR, START + 2 * HOUR)


async def test_a_tick_that_is_due_and_backfilled_at_once(client: Client[Any], world: World) -> None:
    await put(client)
    world.pass_time(3600)
    async with client.transaction() as tx:
        assert await client.backfill(tx, "s", START, START + 2 * HOUR) == 2
    await fire(client)
    assert await fired_at(client) == [START, START + HOUR]
    assert (await get(client)).next_at == START + 2 * HOUR


async def test_what_was_due_before_a_pause_fires_after_it(client: Client[Any], world: World) -> None:
    """No worker ran. What passes during the pause does not fire."""
    await put(client, catch_up="all")
    world.pass_time(2.5 * 3600)
    async with client.transaction() as tx:
        await client.pause_schedule(tx, "s")
    world.pass_time(2 * 3600)
    await fire(client)
    assert await fired_at(client) == []
    async with client.transaction() as tx:
        schedule = await client.resume_schedule(tx, "s")
    assert (schedule.status, schedule.next_at) == ("active", START + HOUR)
    world.pass_time(2 * 3600)
    await fire(client)
    assert await fired_at(client) == [START + number * HOUR for number in (1, 2, 5, 6)]
    assert (await get(client)).next_at == START + 7 * HOUR


async def test_preview(client: Client[Any]) -> None:
    await put(client, times=Cron("30 2 * * *", tz="Europe/Berlin"))
    ticks = await client.preview("s", 2)
    assert [tick.local.isoformat() for tick in ticks] == ["2030-01-01T02:30:00+01:00", "2030-01-02T02:30:00+01:00"]
    assert ticks[0].schedule == "s"
    assert len(await client.preview("s")) == 10
    await put(client, name="after", times=After(HOUR))
    with pytest.raises(InvalidArgument, match="not known in advance"):
        await client.preview("after")


async def test_listing(client: Client[Any]) -> None:
    for name in "cab":
        await put(client, name=name)
    first = await client.list_schedules(limit=2)
    assert [each.name for each in first.items] == ["a", "b"]
    second = await client.list_schedules(limit=2, cursor=first.next_cursor)
    assert [each.name for each in second.items] == ["c"]
    assert second.next_cursor is None
    with pytest.raises(InvalidCursor):
        await client.list_schedules(cursor="x")


@pytest.mark.parametrize("method", ["pause_schedule", "resume_schedule", "trigger_schedule", "backfill", "preview"])
async def test_schedules_that_do_not_exist(client: Client[Any], method: str) -> None:
    async with client.transaction() as tx:
        args = {"backfill": (tx, "x", START, START + HOUR), "preview": ("x", 1)}.get(method, (tx, "x"))
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'x'"):
            await getattr(client, method)(*args)


BAD: list[tuple[str, dict[str, Any], type[QueuertError], str]] = [
    ("no name", {"name": ""}, InvalidArgument, "name of a schedule must not be empty"),
    ("no times", {"times": "0 * * * *"}, InvalidArgument, "takes a Cron, an Every or an After"),
    ("an unknown class", {"job": Unknown()}, UnknownJobType, "unknown"),
    ("an id", {"job": Greet().set(id="0190a5b0-0000-7000-8000-000000000000")}, InvalidArgument, "takes no id"),
    ("a delay", {"job": Greet().set(after=5)}, InvalidArgument, "takes no id, at, after or dedup"),
    ("a key", {"job": Greet().set(dedup="k")}, InvalidArgument, "overlap="),
    ("a fixed deadline", {"job": Greet().set(deadline=START)}, InvalidArgument, "give a timedelta"),
    ("overlap", {"overlap": "maybe"}, InvalidArgument, "overlap must be one of allow, skip, queue, cancel"),
    ("catch_up", {"catch_up": 7}, InvalidArgument, "catch_up must be one of none, last, all"),
    ("maximum", {"catch_up_max": 0}, InvalidArgument, "from 1 to 10000"),
    ("within", {"within": -1}, InvalidArgument, "within"),
    ("within none", {"within": 5, "catch_up": "none"}, InvalidArgument, "needs catch_up"),
    ("an unknown option", {"overlaps": "skip"}, InvalidArgument, "no option 'overlaps'"),
    ("after", {"times": After(HOUR), "overlap": "skip"}, InvalidArgument, "its runs never overlap"),
]


@pytest.mark.parametrize(("values", "error", "text"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
async def test_bad_input(client: Client[Any], values: dict[str, Any], error: type[QueuertError], text: str) -> None:
    with pytest.raises(error, match=text):
        await put(client, **values)
    assert (await client.list_schedules()).items == []


async def test_a_job_that_waits_for_chains(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    with pytest.raises(InvalidArgument, match="cannot wait for chains"):
        await put(client, job=Waiting(greeting=greeting))


async def test_a_transaction_is_needed(client: Client[Any]) -> None:
    with pytest.raises(TransactionRequired):
        await client.put_schedule("s", HOURLY, Greet(), ())  # type: ignore[arg-type]


async def test_more_ticks_than_can_be_backfilled(client: Client[Any]) -> None:
    await put(client, times=Every(timedelta(seconds=1)))
    async with client.transaction() as tx:
        with pytest.raises(InvalidArgument, match="more than 10000 ticks"):
            await client.backfill(tx, "s", START - 3 * HOUR, START)
        with pytest.raises(InvalidArgument, match="a start before its end"):
            await client.backfill(tx, "s", START, START)
        with pytest.raises(InvalidArgument, match="time zone"):
            await client.backfill(tx, "s", datetime(2030, 1, 1), START)  # noqa: DTZ001


async def test_a_job_class_that_only_another_program_knows(client: Client[Any], world: World) -> None:
    """The stored input is enough to start it."""
    async with world.client([Unknown]) as other:
        await put(other, job=Unknown())
    world.pass_time(3600)
    await fire(client)
    (chain,) = (await client.list_chains()).items
    assert (chain.chain_type, chain.tick) == ("unknown", START + HOUR)


async def test_what_this_version_cannot_read_stops_nothing(client: Client[Any], world: World) -> None:
    await put(client, name="a")
    await put(client, name="b")
    await put(client, name="c")
    await rewrite(client, "a", definition=b'{"times":{"kind":"lunar"}}')
    await rewrite(client, "b", state=b'{"created_at":7}')
    world.pass_time(3600)
    fired = await fire(client)
    assert set(fired.failed) == {"a", "b"}
    assert await fired_at(client) == [START + HOUR]
    assert (await fire(client)).seen == 0


async def test_jobs_have_the_key_and_the_weight_of_their_limit(world: World) -> None:
    class Copy(EntryJob[None], name="copy", limit=Limit(by="files", concurrency=1, weight="files")):
        files: int

    async with world.client([Copy]) as client:
        await put(client, job=Copy(files=3))
        async with client.transaction() as tx:
            await client.trigger_schedule(tx, "s")
        (chain,) = (await client.list_chains()).items
        (row,) = await run(client, client._engine.state.get_jobs([chain.id]))
        assert row is not None
        assert row.lane == lane_of("copy", "3")
        if world.database == "memory":
            assert world.store.committed.weights == {chain.id: 3.0}
