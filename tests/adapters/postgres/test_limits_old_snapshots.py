"""Jobs with a limit while somebody keeps an old snapshot: positions, and what must not depend on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import msgspec
import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, Session, explain, open_scene, pages
from tests.support.postgres import Databases

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.postgres.operations.base import Reached
from queuert.conformance.state.build import completed, given_back, new_job, queue, request
from queuert.limit_records import ALIVE_FOR, DeclaredLimit, LimitRule, lane_of
from queuert.model import Claimed, ClaimRequest, NewJob, TypeLimit

NAME = "per tenant"


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        await declare(scene, LimitRule(2))
        yield scene


@pytest.fixture
def connection(scene: Scene) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(scene.url, autocommit=True) as connection:
        yield connection


async def declare(scene: Scene, rule: LimitRule) -> None:
    limit = DeclaredLimit(NAME, rule, ("a", "b"))
    await scene.run(scene.operations.declare_limits(["a"], [limit], alive_for=ALIVE_FOR))


def job(key: str, type_name: str = "a", **fields: Any) -> NewJob:
    return new_job(type_name, lane=lane_of(NAME, key), **fields)


def limited(number: int, *types: str) -> ClaimRequest:
    return request(queue(*(TypeLimit(name, 1_000_000, 60.0, (NAME,)) for name in types or ("a",))), limit=number)


async def take(scene: Scene, number: int, *types: str) -> list[Claimed]:
    return list(await scene.claim(limited(number, *types)))


async def take_and_complete(scene: Scene, number: int) -> list[str]:
    claimed = await take(scene, number)
    await scene.settle(*map(completed, claimed))
    return [each.job.id for each in claimed]


async def start(scene: Scene, number: int, keys: int) -> None:
    for first in range(0, number, 1000):
        await scene.start(*(job(f"k{n % keys}") for n in range(first, min(number, first + 1000))))


def cost(scene: Scene, connection: psycopg.Connection[Any]) -> int:
    """The pages of a claim with the positions there are; it is undone. At first, a session reads the catalogue."""
    command = next(scene.operations.claim(limited(10)))
    found = 0
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            found = pages(explain(connection, command.text, command.values))
    return found


def end(scene: Scene, delay: str = "1 hour") -> None:
    """Positions are good for so long."""
    for found in scene.operations.reached.values():
        found.until = moment(scene, delay)


def look(scene: Scene, delay: str) -> None:
    """News is not looked for until then, if there are enough turns."""
    for found in scene.operations.reached.values():
        found.look_at = moment(scene, delay)


def moment(scene: Scene, delay: str) -> str:
    (found,) = scene.watch("SELECT to_json(now() + %s::interval) #>> '{}'", delay)
    return str(found)


def position(scene: Scene, operations: PostgresOperations | None = None) -> Reached:
    """Positions from now on, for as long as the test takes. No dead rows are needed."""
    found = Reached(until=moment(scene, "1 hour"), types=msgspec.Raw(b"null"), tag="-Infinity")
    (operations or scene.operations).reached[NAME] = found
    return found


def place(scene: Scene, key: str) -> Any:
    """The last place in line of this key that a position knows."""
    found = scene.operations.reached[NAME].lanes.get(lane_of(NAME, key))
    return found and msgspec.json.decode(found)[2:]


async def keep(scene: Scene) -> Session:
    keeper = await scene.session()
    return await keeper.begin("repeatable_read")


@pytest.mark.parametrize("number", [2000, pytest.param(12_000, marks=pytest.mark.soak)])
async def test_claims_do_not_read_what_others_have_taken(
    scene: Scene, connection: psycopg.Connection[Any], number: int
) -> None:
    """Claims of ten, 40 keys, all jobs were started before. Nothing that was deleted can be removed."""
    await start(scene, number + 400, 40)
    await take_and_complete(scene, 10)
    await keep(scene)
    before = cost(scene, connection)
    for _ in range(number // 10):
        assert len(await take_and_complete(scene, 10)) == 10
        end(scene)
    look(scene, "1 hour")
    after = cost(scene, connection)
    look(scene, "-1 hour")
    looking = cost(scene, connection)
    scene.operations.reached.clear()
    without = cost(scene, connection)
    found = (before, after, looking, without)
    assert after < 2 * before, found
    assert looking < 4 * before, found
    assert without > 4 * before, found


async def test_a_new_lane_opens_while_there_are_enough_turns(scene: Scene) -> None:
    """The look for news is left out for a while, and then it comes."""
    position(scene)
    await start(scene, 100, 5)
    await take_and_complete(scene, 1)
    await scene.start(job("new"))
    look(scene, "1 hour")
    await take_and_complete(scene, 1)
    assert lane_of(NAME, "new") not in scene.watch("SELECT lane FROM queuert_turn")
    look(scene, "-1 s")
    await take_and_complete(scene, 1)
    assert lane_of(NAME, "new") in scene.watch("SELECT lane FROM queuert_turn")
    look_at = scene.operations.reached[NAME].look_at
    assert scene.watch("SELECT %s::timestamptz <= now() + interval '1 s'", look_at) == [True]


async def test_an_ordinary_claim_leaves_no_position(scene: Scene) -> None:
    await start(scene, 1000, 40)
    for _ in range(80):
        assert len(await take_and_complete(scene, 10)) == 10
    assert scene.operations.reached == {}


async def test_positions_end_after_ten_seconds(scene: Scene) -> None:
    await start(scene, 3000, 40)
    await keep(scene)
    while not scene.operations.reached:
        await take_and_complete(scene, 10)
    (found,) = scene.operations.reached.values()
    assert scene.watch("SELECT %s::timestamptz <= now() + interval '10 s'", found.until) == [True]
    end(scene)
    while len(found.lanes) < 40:
        await take_and_complete(scene, 10)
        (found,) = scene.operations.reached.values()
    end(scene, "0 s")
    await take_and_complete(scene, 10)
    assert all(not each.lanes for each in scene.operations.reached.values())


async def test_a_job_that_joins_before_the_place_waits_until_the_position_ends(scene: Scene) -> None:
    position(scene)
    await start(scene, 40, 2)
    await take_and_complete(scene, 2)
    assert place(scene, "k0")
    urgent = job("k0", priority=1)
    await scene.start(urgent)
    assert urgent.id not in await take_and_complete(scene, 2)
    result = await scene.run(scene.operations.claim(limited(0)))
    assert result.more or (result.next_in or 0) <= 3600
    end(scene, "0 s")
    assert urgent.id in await take_and_complete(scene, 2)


async def test_a_late_commit_is_taken_when_the_position_ends(scene: Scene) -> None:
    position(scene)
    late = await (await scene.session()).begin()
    first = job("k0")
    await late.start(first)
    await start(scene, 40, 2)
    await take_and_complete(scene, 2)
    await late.commit()
    assert first.id not in await take_and_complete(scene, 2)
    end(scene, "0 s")
    assert first.id in await take_and_complete(scene, 2)


async def test_a_lane_is_not_closed_as_empty_by_a_look_from_a_place(scene: Scene) -> None:
    """The last job behind the place is taken. The urgent one before it keeps its lane open, and is next."""
    position(scene)
    jobs = [job("x"), job("x")]
    await scene.start(*jobs)
    assert await take_and_complete(scene, 1) == [jobs[0].id]
    urgent = job("x", priority=1)
    await scene.start(urgent)
    assert await take_and_complete(scene, 1) == [jobs[1].id]
    scene.check()
    assert scene.watch("SELECT count(*) FROM queuert_turn") == [1]
    # Nothing is behind the place: the lane gives nothing, and its place is forgotten.
    found = [each for _ in range(2) for each in await take_and_complete(scene, 1)]
    assert found == [urgent.id]
    assert scene.watch("SELECT count(*) FROM queuert_turn") == [0]


async def test_a_claim_with_positions_that_is_not_filled_is_repeated(scene: Scene) -> None:
    """So nothing waits for longer than the position lasts, also if no other job is started."""
    position(scene)
    await scene.start(job("x"))
    result = await scene.run(scene.operations.claim(limited(10)))
    assert len(result.jobs) == 1
    assert result.next_in is not None
    assert result.next_in <= 3600


@pytest.mark.parametrize("how", ["after", "before", "long before"])
async def test_claims_that_end_in_late_transactions_are_counted_at_once(scene: Scene, how: str) -> None:
    """News is exact: whatever a position leaves out was read. Also of a transaction that is older than it."""
    position(scene)
    await scene.start(*(job("x") for _ in range(9)))
    first, second = await take(scene, 2)
    settling = await (await scene.session()).begin()
    if how != "after":
        await settling.settle(completed(first))
    if how == "long before":
        for _ in range(1100):
            scene.watch("SELECT pg_current_xact_id()::text")
    await scene.settle(completed(second))
    (third,) = await take(scene, 2)
    assert await take(scene, 2) == []
    if how == "after":
        await settling.settle(completed(first))
    await settling.commit()
    (fourth,) = await take(scene, 2)
    scene.check()
    await scene.settle(completed(third), completed(fourth))
    assert len(await take(scene, 2)) == 2
    scene.check()


async def test_a_claim_and_what_ends_it_in_one_transaction(scene: Scene) -> None:
    """News of the claim's own transaction comes after the position, whatever others do in between."""
    position(scene)
    await scene.start(*(job("x") for _ in range(9)))
    own = await (await scene.session()).begin()
    first, second = (await own.run(scene.operations.claim(limited(2)))).jobs
    for _ in range(3):
        scene.watch("SELECT pg_current_xact_id()::text")
    await own.settle(completed(first), completed(second))
    await own.commit()
    assert len(await take(scene, 5)) == 2
    scene.check()


async def test_an_ordered_lane_uses_no_place(scene: Scene) -> None:
    await declare(scene, LimitRule(1, ordered=True))
    position(scene)
    jobs = [job("x") for _ in range(4)]
    await scene.start(*jobs)
    assert await take_and_complete(scene, 1) == [jobs[0].id]
    urgent = job("x", priority=1)
    await scene.start(urgent)
    assert [each for _ in range(4) for each in await take_and_complete(scene, 1)] == [
        urgent.id,
        *(each.id for each in jobs[1:]),
    ]


async def test_places_are_of_the_types_that_were_asked_for(scene: Scene) -> None:
    """A worker that asks for other types of the same lane reads it from the beginning."""
    position(scene)
    other = job("x", "b")
    await scene.start(other)
    await scene.start(*(job("x") for _ in range(3)))
    await take_and_complete(scene, 1)
    assert place(scene, "x")
    assert [each.job.id for each in await take(scene, 1, "a", "b")] == [other.id]


async def test_a_job_that_is_held_is_not_passed(scene: Scene) -> None:
    position(scene)
    jobs = [job(key) for key in "xy" for _ in range(3)]
    await scene.start(*jobs)
    await take_and_complete(scene, 2)
    cancelling = await (await scene.session()).begin()
    await cancelling.lock(jobs[1].id)
    await take_and_complete(scene, 2)
    await cancelling.rollback()
    assert jobs[1].id in await take_and_complete(scene, 2)


async def test_turns_go_on_where_they_were(scene: Scene) -> None:
    """If no lane is open, new tags come after those of before: dead rows have these. Other clients follow."""
    position(scene)
    for _ in range(3):
        await scene.start(*(job(key) for key in "xyz" for _ in range(3)))
        for _ in range(3):
            assert len(await take_and_complete(scene, 3)) == 3
        assert scene.watch("SELECT count(*) FROM queuert_turn") == [0]
    top = float(scene.operations.reached[NAME].tag)
    assert top > 5
    await scene.start(*(job(key) for key in "xyz" for _ in range(2)))
    await take_and_complete(scene, 1)
    assert min(scene.watch("SELECT tag FROM queuert_turn")) > top
    other = PostgresOperations()
    await scene.start(job("new"))
    found = (await scene.run(other.claim(limited(4)))).jobs
    assert {each.job.lane for each in found} == {lane_of(NAME, key) for key in ("x", "y", "z", "new")}


async def test_turns_that_others_have_begun_anew(scene: Scene) -> None:
    """Another client has no positions, and begins with the lowest tags when no lane is open."""
    position(scene)
    for _ in range(4):
        await scene.start(*(job(key) for key in "xyz"))
        assert len(await take_and_complete(scene, 3)) == 3
    other = PostgresOperations()
    await scene.start(*(job(key) for key in "xyz" for _ in range(4)))
    (first,) = (await scene.run(other.claim(limited(1)))).jobs
    assert max(scene.watch("SELECT tag FROM queuert_turn")) < float(scene.operations.reached[NAME].tag)
    assert len(await take_and_complete(scene, 3)) == 3
    await scene.settle(completed(first))
    assert len(await take_and_complete(scene, 3)) == 3


@pytest.mark.parametrize("rounds", [60, pytest.param(2000, marks=pytest.mark.soak)])
async def test_everything_at_once_with_positions(scene: Scene, rounds: int) -> None:
    """Five clients with their own positions, which never end: never too many, and all is done in the end."""
    random = Random(rounds)
    clients = [PostgresOperations() for _ in range(5)]
    for each in clients:
        position(scene, each)
    held: list[Claimed] = []
    most = 0

    async def work(operations: PostgresOperations) -> None:
        nonlocal most
        for _ in range(rounds):
            step = random.choice(["start", "claim", "claim", "complete", "complete", "give back", "cancel", "reap"])
            mine = held.pop(random.randrange(len(held))) if held and step not in ("start", "claim") else None
            if step == "start":
                keys = [f"k{random.randrange(4)}" for _ in range(random.randrange(1, 6))]
                await scene.start(*(job(key, priority=random.choice([50, 100])) for key in keys))
            elif step == "claim":
                held.extend((await scene.run(operations.claim(limited(random.randrange(1, 5))))).jobs)
            elif mine is not None and step == "complete":
                await scene.settle(completed(mine))
            elif mine is not None and step == "give back":
                await scene.settle(given_back(mine))
            elif mine is not None and step == "cancel":
                await scene.run(operations.cancel_chains([mine.job.chain_id], cascade=False))
            elif mine is not None:
                await scene.run(operations.reap(["a"], [], 10, b'{"code":"X"}', [mine.job.leased_by or ""]))
            counted = Counter(scene.watch("SELECT lane FROM queuert_running"))
            most = max(most, *counted.values(), 0)

    await asyncio.gather(*map(work, clients))
    assert most <= 2
    await scene.run(scene.operations.reap(["a"], [], 10_000, b'{"code":"X"}', ["worker-1"]))
    idle = 0
    while idle < 3:
        found = [each for operations in clients for each in (await scene.run(operations.claim(limited(3)))).jobs]
        await scene.settle(*map(completed, found))
        idle = 0 if found else idle + 1
    assert scene.watch("SELECT count(*) FROM queuert_line") == [0]
    assert scene.watch("SELECT count(*) FROM queuert_lane WHERE running <> 0") == [0]
