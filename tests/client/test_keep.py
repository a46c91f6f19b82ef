"""Keep: what is declared, what is refused, and what prune deletes, as a client sees it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.worlds import World, start

from queuert import Chain, Dedup, EntryJob, InvalidArgument, InvalidJobType, Job, Keep
from queuert.client.client import Client
from queuert.jobs.registry import Registry
from queuert.records.retention import policy_of

DAY = 86400.0


class Plain(EntryJob[int], name="plain"):
    pass


class Brief(EntryJob[int], name="brief", keep=Keep(completed=timedelta(hours=1), failed=None)):
    pass


class Gone(EntryJob[int], name="gone", keep=Keep(completed=0)):
    pass


def engine_of(client: Client[Any]) -> Any:
    return client.sessions.engine


async def store(client: Client[Any], *types: str) -> None:
    """As a worker does that handles these types."""
    jobs = engine_of(client).jobs
    await drive(client, engine_of(client).state.store_policies([policy_of(jobs.keep_of(name), name) for name in types]))


async def drive(client: Client[Any], program: Any) -> Any:
    answer = client.sessions.run(program)
    return await answer


async def complete(client: Client[Any], chain: Chain[Any]) -> None:
    async with client.transaction() as tx, client.take_over(tx, chain) as taken:
        await taken.settle(1)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ({"completed": -1}, "completed must be finite and not below 0"),
        ({"failed": float("inf")}, "failed must be finite"),
        ({"expired": timedelta(days=40000)}, "100 years at most"),
        ({"cancelled": "1 day"}, "must be a timedelta or seconds"),
    ],
)
def test_times_that_cannot_be_meant(keep: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Keep(**keep)


def test_which_keep_applies() -> None:
    """That of the class, then that of the client, then the default."""
    jobs = Registry([Plain, Brief], keep=Keep(completed=5))
    assert jobs.keep_of("plain") == Keep(completed=5)
    assert jobs.keep_of("brief") == Keep(completed=timedelta(hours=1), failed=None)
    keep = Registry([Plain]).keep_of("plain")
    assert keep is not None
    policy = policy_of(keep, "plain")
    assert policy.completed == 7 * DAY
    assert {policy.failed, policy.cancelled, policy.expired} == {90 * DAY}


def test_keep_belongs_to_the_beginning_of_a_chain() -> None:
    with pytest.raises(InvalidJobType, match="which is an EntryJob"):

        class Next(Job[int], name="next", keep=Keep()):
            pass

    with pytest.raises(InvalidJobType, match=r"takes a Keep\(…\)"):

        class Wrong(EntryJob[int], name="wrong", keep=7):  # type: ignore[arg-type]
            pass

    with pytest.raises(InvalidArgument, match=r"takes a Keep\(…\)"):
        Registry([Plain], keep=7)  # type: ignore[arg-type]


def test_nobody_can_have_a_discarded_chain_as_a_blocker() -> None:
    class Waits(EntryJob[int], name="waits"):
        chains: list[Chain[Gone]]

    class Other(EntryJob[int], name="other"):
        chain: Chain[Plain] | Chain[Brief]

    with pytest.raises(InvalidJobType, match="'chains': chains of 'gone' are deleted when they are completed"):
        Registry([Waits])
    Registry([Other])
    with pytest.raises(InvalidJobType, match="chains of 'plain' are deleted"):
        Registry([Other], keep=Keep(completed=0))


async def test_nobody_can_wait_for_a_discarded_chain(world: World) -> None:
    """Whether the type is known from the chain, from the call, or only from what is stored."""
    async with world.client([Gone, Plain]) as client:
        chain = await start(client, Gone())
        calls: list[Any] = [(chain,), (chain.id, Gone), (chain.id, "gone"), (chain.id,)]
        for call in calls:
            with pytest.raises(InvalidArgument, match="they cannot be waited for"):
                await client.wait(*call, timeout=45)


async def test_a_discarded_chain_is_gone_when_it_is_completed(world: World) -> None:
    async with world.client([Gone, Plain]) as client:
        chain, keyed = await start(client, Gone()), await start(client, Gone().set(dedup="key"))
        for each in (chain, keyed):
            await complete(client, each)
        assert await client.get_chain(chain) is None
        found = await client.get_chain(keyed)
        assert found is not None
        assert found.status == "completed"
        await store(client, "gone")
        world.pass_time(1)
        assert (await client.prune(full=True)).chains == {"gone": 1}


async def test_prune_deletes_what_is_due(world: World) -> None:
    async with world.client([Plain, Brief]) as client:
        await store(client, "plain", "brief")
        chains = [await start(client, job) for job in (Plain(), Plain(), Brief(), Brief())]
        for chain in chains[1:]:
            await complete(client, chain)
        world.pass_time(3599)
        assert (await client.prune(full=True)).deleted == 0
        world.pass_time(2)
        pruned = await client.prune(full=True)
        assert (pruned.chains, pruned.jobs, pruned.busy, pruned.more) == ({"brief": 2}, 2, False, False)
        world.pass_time(7 * DAY)
        assert (await client.prune(full=True)).chains == {"plain": 1}
        assert [each.id for each in (await client.list_chains()).items] == [chains[0].id]


async def test_prune_takes_as_many_steps_as_are_needed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuert.features.retention.pruning.AT_ONCE", 2)
    async with world.client([Brief]) as client:
        await store(client, "brief")
        for _ in range(5):
            await complete(client, await start(client, Brief()))
        world.pass_time(3601)
        assert (await client.prune(full=True)).chains == {"brief": 5}


async def test_a_window_matches_a_chain_that_was_pruned(world: World) -> None:
    async with world.client([Brief]) as client:
        await store(client, "brief")
        key = Dedup("key", scope="any", window=DAY)
        chain = await start(client, Brief().set(dedup=key))
        await complete(client, chain)
        world.pass_time(3601)
        assert (await client.prune(full=True)).deleted == 1
        again = await start(client, Brief().set(dedup=key))
        assert (again.id, again.deduplicated, again.status) == (chain.id, True, "completed")
        assert await client.get_chain(again) is None
        other = await start(client, Brief().set(dedup=Dedup("key", scope="any")))
        assert (other.deduplicated, other.status) == (False, "pending")


async def test_who_prunes_is_recorded_once_with_the_first_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuert.features.retention.pruning.AT_ONCE", 2)
    async with world.client([Brief]) as client:
        await store(client, "brief")
        for _ in range(5):
            await complete(client, await start(client, Brief()))
        world.pass_time(3601)
        assert (await client.prune(full=True, by="ada", reason="the disk is full")).deleted == 5
        await client.prune()
        (record,) = (await client.list_audit()).items
        assert (record.action, record.target, record.by, record.reason) == (
            "prune", "ended chains", "ada", "the disk is full",
        )  # fmt: skip
        assert record.details == {"full": True}
        with pytest.raises(InvalidArgument, match="say who does it"):
            await client.prune(reason="x")
