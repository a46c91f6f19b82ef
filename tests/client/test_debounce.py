"""Debounce, throttle and the scope "waiting", as a client has them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.jobs import After, Greet, Rate
from tests.support.worlds import START, World, claim, run, start

from queuert import Debounce, Dedup, EntryJob, Limit, Throttle
from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.chain import Chain
from queuert.records.limits import lane_of


class Index(EntryJob[None], name="index"):
    ids: list[int]


class Copy(EntryJob[None], name="copy", limit=Limit(by="files", concurrency=1, weight="files")):
    files: int


def both(waiting: Index, new: Index) -> Index:
    return Index(ids=[*waiting.ids, *new.ids])


async def due(client: Client[Any], chain: Chain[Any]) -> float:
    """Seconds from the beginning until the chain is due."""
    job = await client.get_job(chain.id)
    assert job is not None
    return (job.scheduled_at - START).total_seconds()


async def test_a_burst_of_starts_is_one_chain(client: Client[Any], world: World) -> None:
    debounce = Debounce[Any]("k", wait=5, at_most=timedelta(seconds=12))
    first = await start(client, Greet(who="a"), dedup=debounce)
    assert (first.deduplicated, first.replaced, await due(client, first)) == (False, False, 5)
    world.pass_time(4)
    second = await start(client, Greet(who="b"), dedup=debounce, priority=3)
    assert (second, second.deduplicated, second.replaced, second.input) == (first, True, True, {"who": "b"})
    assert await due(client, first) == 9
    world.pass_time(4)
    kept = await start(client, Greet(who="c"), dedup=Debounce("k", wait=5, at_most=12, keep="first"))
    assert (kept, kept.deduplicated, kept.replaced, kept.input) == (first, True, False, {"who": "b"})
    assert await due(client, first) == 12
    world.pass_time(4)
    # It has waited for as long as it may.
    following = await start(client, Greet(who="d"), dedup=debounce)
    assert (following.deduplicated, following == first) == (False, False)
    (claimed,) = await claim(client, "greet")
    assert (claimed.job.id, claimed.job.input, claimed.job.priority) == (first.id, b'{"who":"b"}', 3)


async def test_workers_are_told_of_a_chain_that_may_be_due_earlier(client: Client[Any], world: World) -> None:
    await start(client, Greet(), dedup=Debounce("k", wait=60, at_most=60))
    world.heard.clear()
    chain = await start(client, Greet(), dedup=Debounce("k", wait=1, at_most=60))
    assert world.heard == [("job_scheduled", "greet")]
    assert await due(client, chain) == 1


async def test_inputs_are_merged(world: World) -> None:
    debounce = Debounce("k", wait=5, at_most=60, merge=both)
    async with world.client([Index]) as client:
        first = await start(client, Index(ids=[1]), dedup=debounce)
        assert (first.deduplicated, first.input) == (False, {"ids": [1]})
        again = await start(client, Index(ids=[2]), dedup=debounce)
        assert (again, again.replaced, again.input) == (first, True, {"ids": [1, 2]})
        async with client.transaction() as tx:
            jobs = [Index(ids=[number]).set(dedup=debounce) for number in (3, 4, 5)]
            chains = await client.start_many(tx, [*jobs, Index(ids=[9]).set(dedup="k")])
        assert chains == [first] * 4
        assert [chain.replaced for chain in chains] == [True, True, True, False]
        job = await client.get_job(first.id, Index)
        assert job is not None
        assert job.job == Index(ids=[1, 2, 3, 4, 5])
        assert world.count() == 1


async def test_a_merged_job_has_the_key_and_the_weight_of_what_was_merged(world: World) -> None:
    debounce = Debounce("k", wait=5, at_most=60, merge=lambda waiting, new: Copy(files=waiting.files + new.files))
    async with world.client([Copy]) as client:
        first = await start(client, Copy(files=1), dedup=debounce)
        await start(client, Copy(files=2), dedup=debounce)
        (row,) = await run(client, client._engine.state.get_jobs([first.id]))
        assert row is not None
        assert (row.input, row.lane) == (b'{"files":3}', lane_of("copy", "3"))
        if world.database == "memory":
            assert world.store.committed.weights == {first.id: 3.0}


async def test_submitted_jobs_are_merged(world: World) -> None:
    async with world.client([Index]) as client:
        debounce = Debounce("k", wait=5, at_most=60, merge=both)
        first = await client.submit(Index(ids=[1]), dedup=debounce)
        again = await client.submit_many([Index(ids=[2]).set(dedup=debounce), Index(ids=[3]).set(dedup=debounce)])
        assert again == [first, first]
        assert again[1].input == {"ids": [1, 2, 3]}


async def test_a_merge_that_fails_changes_nothing(world: World) -> None:
    async with world.client([Index, Greet]) as client:
        first = await start(client, Index(ids=[1]), dedup=Debounce("k", wait=5, at_most=60))
        before = world.snapshot()

        def broken(waiting: Index, new: Index) -> Index:
            raise ZeroDivisionError

        for merge, error in [
            (broken, ZeroDivisionError),
            (lambda waiting, new: None, InvalidArgument),
            (lambda waiting, new: Greet(), InvalidArgument),
        ]:
            debounce = Debounce[Any]("k", wait=5, at_most=60, merge=merge)
            async with client.transaction() as tx:
                with pytest.raises(error):
                    await client.start_many(tx, [Greet(), Index(ids=[2]).set(dedup=debounce)])
                with pytest.raises(error):
                    await client.start(tx, Index(ids=[2]), dedup=debounce)
            assert world.snapshot() == before
        assert (await start(client, Index(ids=[3]), dedup=Debounce("k", wait=5, at_most=60))) == first


async def test_an_input_that_cannot_be_read_is_left_alone(world: World) -> None:
    class Older(EntryJob[None], name="index"):
        numbers: list[int]

    async with world.client([Older]) as client:
        old = await start(client, Older(numbers=[1]), dedup=Debounce("k", wait=5, at_most=60))
    async with world.client([Index]) as client:
        debounce = Debounce("k", wait=5, at_most=60, merge=both)
        new = await start(client, Index(ids=[2]), dedup=debounce)
        assert (new == old, new.deduplicated) == (False, False)
        assert (await start(client, Index(ids=[3]), dedup=debounce)).input == {"ids": [2, 3]}
        found = await client.get_chain(old.id)
        assert found is not None
        assert found.input == {"numbers": [1]}


async def test_many_keys_are_one_call(world: World) -> None:
    """And the keys that are in it twice take turns."""
    async with world.client() as client, client.transaction() as tx:
        jobs = [Greet(who=str(number)).set(dedup=Debounce(f"k{number % 4}", wait=5, at_most=60)) for number in range(6)]
        chains = await client.start_many(tx, [*jobs, Rate()])
    assert [chain.replaced for chain in chains] == [False] * 4 + [True] * 2 + [False]
    assert chains[4:6] == chains[:2]
    assert world.count() == 5


async def test_a_throttled_start_waits_for_the_next_period(client: Client[Any], world: World) -> None:
    throttle = Throttle("k", per=timedelta(seconds=10))
    first = await start(client, Greet(who="a"), dedup=throttle)
    assert await due(client, first) == 0
    world.pass_time(3)
    second = await start(client, Greet(who="b"), dedup=throttle)
    assert (second.deduplicated, await due(client, second)) == (False, 10)
    third = await start(client, Greet(who="c"), dedup=throttle)
    assert (third, third.replaced, third.input) == (second, True, {"who": "c"})
    world.pass_time(12)
    fourth = await start(client, Greet(who="d"), dedup=throttle)
    assert (fourth.deduplicated, await due(client, fourth)) == (False, 20)
    world.pass_time(30)
    assert await due(client, await start(client, Greet(who="e"), dedup=throttle)) == 45


async def test_without_trailing_a_start_is_dropped(client: Client[Any], world: World) -> None:
    throttle = Throttle("k", per=10, trailing=False)
    first = await start(client, Greet(who="a"), dedup=throttle)
    world.pass_time(9)
    again = await start(client, Greet(who="b"), dedup=throttle)
    assert (again, again.deduplicated, again.replaced, again.input) == (first, True, False, {"who": "a"})
    world.pass_time(1)
    assert not (await start(client, Greet(who="c"), dedup=throttle)).deduplicated


async def test_a_running_chain_is_not_waiting(client: Client[Any]) -> None:
    """An outbox: what is written while the handler runs needs another run."""
    first = await start(client, Greet(), dedup=Dedup("k", scope="waiting"))
    assert (await start(client, Greet(), dedup=Dedup("k", scope="waiting"))) == first
    await claim(client, "greet")
    assert (await start(client, Greet(), dedup=Dedup("k"))) == first
    second = await start(client, Greet(), dedup=Dedup("k", scope="waiting"))
    assert (second.deduplicated, second == first) == (False, False)


@pytest.mark.parametrize(
    "dedup", [Debounce("k", wait=1, at_most=2), Throttle("k", per=1)], ids=["debounce", "throttle"]
)
async def test_what_a_debounced_job_cannot_have(client: Client[Any], world: World, dedup: Any) -> None:
    greeting = await start(client, Greet())
    before = world.snapshot()
    name = type(dedup).__name__
    with pytest.raises(InvalidArgument, match=f"a job with {name} takes no at= or after="):
        await start(client, Greet(), after=5, dedup=dedup)
    with pytest.raises(InvalidArgument, match=f"waits for other chains cannot have {name}"):
        await start(client, After(greeting=greeting), dedup=dedup)
    assert world.snapshot() == before


async def test_a_throttled_job_that_is_dropped_may_have_blockers(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    chain = await start(client, After(greeting=greeting), dedup=Throttle("k", per=1, trailing=False))
    assert chain.status == "blocked"
