"""Deduplication keys, with a worker running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate
from tests.behaviour.working import begin, failure, output, working

from queuert import Attempt, Chain, Dedup, EntryJob, Handlers


class Refresh(EntryJob[int], name="refresh"):
    left: int = 0


async def test_a_second_start_finds_the_running_chain_and_a_later_one_does_not(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    ran: list[str] = []

    @handlers.handles(Refresh)
    async def refresh(attempt: Attempt[Refresh]) -> int:
        ran.append(attempt.chain_id)
        await gate()
        return attempt.job.left

    async with working(setting, [Refresh], handlers, concurrency=3) as client:
        first = await begin(client, Refresh(left=1), dedup="key")
        await gate.arrival()
        second = await begin(client, Refresh(left=2), dedup="key")
        assert (second.id, second.deduplicated, second.status) == (first.id, True, "running")
        gate.open()
        assert await output(client, second) == 1
        third = await begin(client, Refresh(left=3), dedup="key")
        assert (third.id != first.id, third.deduplicated) == (True, False)
        assert await output(client, third) == 3
        assert ran == [first.id, third.id]


async def test_scope_any_finds_an_ended_chain(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Refresh, max_attempts=1)
    async def refresh(attempt: Attempt[Refresh]) -> int:
        if attempt.job.left:
            raise RuntimeError("no")
        return 0

    async with working(setting, [Refresh], handlers) as client:
        for left in (0, 1):
            key = Dedup(f"key {left}", scope="any")
            first = await begin(client, Refresh(left=left), dedup=key)
            if left:
                await failure(client, first)
            else:
                await output(client, first)
            again = await begin(client, Refresh(), dedup=key)
            assert (again.id, again.deduplicated) == (first.id, True)


async def test_a_chain_replaces_itself_from_within_its_handler(setting: Setting) -> None:
    """Without `exclude`, the chain would find itself: it has not ended yet."""
    handlers = Handlers[Any]()
    chains: list[str] = []
    found: list[Chain[Any]] = []

    @handlers.handles(Refresh)
    async def refresh(attempt: Attempt[Refresh]) -> int:
        chains.append(attempt.chain_id)
        left = attempt.job.left
        async with attempt.complete() as tx:
            found.append(await attempt.client.start(tx, Refresh(left=left), dedup="key"))
            if left:
                key = Dedup("key", exclude=[attempt.chain_id])
                found.append(await attempt.client.start(tx, Refresh(left=left - 1), dedup=key))
            return left

    async with working(setting, [Refresh], handlers) as client:
        first = await begin(client, Refresh(left=2), dedup="key")
        assert await output(client, first) == 2
        assert (found[0].id, found[0].deduplicated) == (first.id, True)
        assert await output(client, found[1]) == 1
        assert await output(client, found[3]) == 0
        assert chains == [first.id, found[1].id, found[3].id]
        assert len(set(chains)) == 3


@pytest.mark.drivers
async def test_a_key_taken_in_an_attempt_that_fails_is_free_again(setting: Setting) -> None:
    handlers = Handlers[Any]()
    started: list[Chain[Any]] = []

    @handlers.handles(Refresh)
    async def refresh(attempt: Attempt[Refresh]) -> int:
        if attempt.job.left == 0:
            return 0
        async with attempt.complete() as tx:
            started.append(await attempt.client.start(tx, Refresh(), dedup="other"))
        if attempt.number == 1:
            raise RuntimeError("after complete()")
        return 1

    async with working(setting, [Refresh], handlers) as client:
        assert await output(client, await begin(client, Refresh(left=1))) == 1
        lost, kept = started
        assert not kept.deduplicated
        assert await client.get_chain(lost) is None
        assert await output(client, kept) == 0


@pytest.mark.drivers
async def test_many_starts_of_one_key_at_once_make_one_chain(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Refresh)
    async def refresh(attempt: Attempt[Refresh]) -> int:
        await gate()
        return 0

    async with working(setting, [Refresh], handlers, concurrency=5) as client:
        chains = await asyncio.gather(*(begin(client, Refresh(), dedup="key") for _ in range(20)))
        assert len({chain.id for chain in chains}) == 1
        assert [chain.deduplicated for chain in chains].count(False) == 1
        gate.open()
        assert await output(client, chains[0]) == 0
