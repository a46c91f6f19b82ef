"""Claims: nobody waits, no job twice, caps exact, and what somebody holds is in nobody's way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.support.postgres import Databases

from queuert.records.model import ClaimRequest, JobRow, TypeLimit, new_token
from queuert_conformance.state.build import cancelled, completed, later, new_job, queue, request, waiting_for

TYPES = ("a", "b", "c", "d")


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


ONE = request(queue("a"), limit=10)
MANY = request(queue("a", "b"), limit=10)
CAPPED = request(queue("a", "b", max_concurrency=100), limit=10, cluster_cap=100)


@pytest.mark.parametrize("wanted", [ONE, MANY, CAPPED], ids=["one", "many", "capped"])
@pytest.mark.parametrize("held", ["taken over", "cancelled", "triggered", "deleted", "named as a blocker"])
async def test_a_claim_never_waits_for_a_job_that_an_open_transaction_holds(
    scene: Scene, wanted: ClaimRequest, held: str
) -> None:
    first, second, third = await scene.new("a", "a", "a")
    user = await (await scene.session()).begin()
    if held == "taken over":
        await user.take_over(first)
    elif held == "cancelled":
        await user.settle(cancelled(first))
    elif held == "triggered":
        await user.run(scene.operations.trigger([first]))
    elif held == "deleted":
        await user.delete(first)
    else:
        await user.start(new_job("z", blockers=waiting_for(first, chain_type="a")))
    async with asyncio.timeout(45):
        claimed = await scene.claim(wanted)
    expected = [first, second, third] if held == "named as a blocker" else [second, third]
    assert [each.job.id for each in claimed] == expected, "a start behind it does not keep a job from being claimed"
    await user.rollback()
    if held != "named as a blocker":
        assert [each.job.id for each in await scene.claim(wanted)] == [first]


async def test_a_claim_never_waits_for_a_job_that_is_being_promoted_or_triggered(scene: Scene) -> None:
    (due,) = await scene.new("a", schedule=later(0.01))
    await scene.new("a", schedule=later(0.01))
    user = await (await scene.session()).begin()
    await user.take_over(due)
    await asyncio.to_thread(scene.watch, "SELECT pg_sleep(0.02)")
    async with asyncio.timeout(45):
        assert len(await scene.claim(MANY)) == 1
    await user.rollback()
    assert [each.job.id for each in await scene.claim(MANY)] == [due]


@pytest.mark.parametrize("limits", [1_000_000, 3], ids=["free", "limited"])
@pytest.mark.parametrize("capped", [False, True])
async def test_thousands_of_held_jobs_slow_nobody_down_and_starve_nobody(
    scene: Scene, capped: bool, limits: int
) -> None:
    held = [new_job("a") for _ in range(2_000)]
    await scene.start(*held)
    free = await scene.new(*["a"] * 5, *["b"] * 5)
    user = await (await scene.session()).begin()
    await user.lock(*(job.id for job in held))
    wanted = request(queue("a", "b", limit=limits, max_concurrency=1000 if capped else None), limit=10)
    async with asyncio.timeout(45):  # a second look at each of them would take minutes
        claimed = await scene.claim(wanted)
    ids = [each.job.id for each in claimed]
    assert ids == (free if limits > 3 else [*free[:3], *free[5:8]])
    await user.rollback()


async def test_a_held_job_makes_no_claim_say_that_there_is_more(scene: Scene) -> None:
    held, _ = await scene.new("a", "a")
    user = await (await scene.session()).begin()
    await user.take_over(held)
    for wanted in (request(queue("a"), limit=1), request(queue("a", "b"), limit=1)):
        result = await scene.run(scene.operations.claim(wanted))
        assert not result.more, "it would ask again at once, and find nothing"
        assert result.next_in is None
    await user.rollback()


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_sixteen_claimers_share_all_jobs_and_none_gets_one_twice(scene: Scene, size: int) -> None:
    number = {1: 300, 7: 1_000, 100: 5_000}[size]
    jobs = [new_job(TYPES[place % 4], priority=place % 3) for place in range(number)]
    await scene.start(*jobs)
    sessions = await scene.sessions(16)
    got: list[list[JobRow]] = []

    async def work(place: int) -> None:
        # Half of them with one type first: that is another path through the claim.
        requests = [request(queue(*TYPES), limit=size, worker=f"w{place}")]
        if place % 2:
            requests.insert(0, request(queue(TYPES[place % 4]), limit=size, worker=f"w{place}"))
        for wanted in requests:
            misses = 0
            while misses < 3:
                anew = replace(wanted, first_token=new_token())
                found = (await sessions[place].run_alone(scene.operations.claim(anew))).jobs
                misses = 0 if found else misses + 1
                got.append([each.job for each in found])

    await asyncio.gather(*(work(place) for place in range(16)))
    claims = Counter(job.id for batch in got for job in batch)
    assert set(claims) == {job.id for job in jobs}
    assert max(claims.values()) == 1
    assert max(len(batch) for batch in got) <= size
    tokens = [job.token for batch in got for job in batch]
    assert len(set(tokens)) == number
    for batch in got:
        keys = [(job.priority, job.scheduled_at, job.id) for job in batch]
        assert all(one < two for one, two in pairwise(keys)), "in their order"


async def test_an_order_across_queues_types_and_priorities(scene: Scene) -> None:
    wanted = []
    for queue_priority in (0, 1):
        for priority in (1, 50, 100):
            for name in ("x", "y"):
                (job_id,) = await scene.new(f"{name}{queue_priority}", priority=priority)
                wanted.append((queue_priority, priority, job_id))
    ask = request(queue("x1", "y1", name="later", priority=1), queue("x0", "y0", name="first", priority=0), limit=7)
    ids = [each.job.id for each in await scene.claim(ask)] + [each.job.id for each in await scene.claim(ask)]
    assert ids == [job_id for _, _, job_id in sorted(wanted)]


async def test_limits_of_types_and_queues_hold_where_some_jobs_are_held(scene: Scene) -> None:
    held = await scene.new("a", "b", "c")
    free = {name: await scene.new(*[name] * 4) for name in ("a", "b", "c")}
    user = await (await scene.session()).begin()
    await user.lock(*held)
    ask = request(
        queue(TypeLimit("a", 1, 60), TypeLimit("b", 9, 60), name="q", max_concurrency=3),
        queue(TypeLimit("c", 2, 60), name="r", priority=1),
        limit=10,
    )
    # Chosen first, and found to be held: what they would have used up of the limits goes to the next.
    assert [each.job.id for each in await scene.claim(ask)] == [free["a"][0], *free["b"][:2], *free["c"][:2]]
    await user.rollback()


@pytest.mark.parametrize(("cap", "cluster"), [(3, None), (None, 4), (3, 5)])
async def test_caps_are_exact_with_eight_claimers(scene: Scene, cap: int | None, cluster: int | None) -> None:
    await scene.start(*(new_job(TYPES[place % 2]) for place in range(160)))
    sessions = await scene.sessions(8)
    ceiling = min(each for each in (cap, cluster) if each is not None)
    most = 0
    done = 0

    async def work(place: int) -> None:
        nonlocal most, done
        wanted = request(
            queue("a", "b", name="narrow", max_concurrency=cap), limit=2, worker=f"w{place}", cluster_cap=cluster
        )
        while done < 160:
            found = (await sessions[place].run_alone(scene.operations.claim(wanted))).jobs
            most = max(most, await sessions[place].connection.fetchval("SELECT count(*) FROM queuert_running"))
            if found:
                await sessions[place].run_alone(scene.operations.settle([completed(each) for each in found]))
                done += len(found)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(place) for place in range(8)))
    assert most == ceiling
    assert done == 160


async def test_claims_under_one_cap_queue_up_and_others_go_past(scene: Scene) -> None:
    await scene.new(*["a"] * 10, *["b"] * 10)
    first, second, third = await scene.sessions(3)
    narrow = request(queue("a", name="narrow", max_concurrency=4), limit=3)
    wide = request(queue("b", name="wide", max_concurrency=4), limit=3)
    await first.begin()
    assert len((await first.run(scene.operations.claim(narrow))).jobs) == 3
    waiting = scene.go(second.run_alone(scene.operations.claim(narrow)))
    await scene.blocked(second, by=first)
    assert len((await third.run_alone(scene.operations.claim(wide))).jobs) == 3, "another cap"
    uncapped = request(queue("a", name="narrow"), limit=2)
    assert len((await third.run_alone(scene.operations.claim(uncapped))).jobs) == 2, "no cap"
    await first.commit()
    assert len((await waiting).jobs) == 0, "three of the first claim and two of an uncapped one fill four places"


async def test_a_cap_counts_what_is_committed_when_its_turn_comes(scene: Scene) -> None:
    await scene.new(*["a"] * 10)
    narrow = request(queue("a", name="narrow", max_concurrency=4), limit=4)
    first, second = await scene.sessions(2)
    await first.begin()
    assert len((await first.run(scene.operations.claim(narrow))).jobs) == 4
    waiting = scene.go(second.run_alone(scene.operations.claim(narrow)))
    await scene.blocked(second, by=first)
    await first.rollback()
    assert len((await waiting).jobs) == 4


async def test_more_jobs_fall_due_at_once_than_are_moved_at_once(scene: Scene) -> None:
    await scene.start(*(new_job("a", schedule=later(0.01)) for _ in range(2_500)))
    await asyncio.to_thread(scene.watch, "SELECT pg_sleep(0.02)")
    claimed = await scene.claim(request(queue("a"), limit=2_000))
    assert len(claimed) == 2_000, "a claim gets all it asks for"
    assert len(await scene.claim(request(queue("a"), limit=2_000))) == 500


async def test_renewal_and_reaping_pass_over_what_is_held(scene: Scene) -> None:
    await scene.new(*["a"] * 4)
    mine = await scene.claim(request(queue("a", lease=0.0)))
    user, starter = await scene.sessions(2)
    await user.begin()
    await user.take_over(mine[0].job.id)
    # A start that names a chain as a blocker holds the row of its current job for as long as its transaction is open.
    await starter.begin()
    await starter.start(new_job("z", blockers=waiting_for(mine[1].job.id, chain_type="a")))
    async with asyncio.timeout(45):
        reaped = await scene.run(scene.operations.reap(["a"], [], 1, b'{"code":"LEASE_EXPIRED"}'))
        assert [job.id for job in reaped] == [mine[2].job.id], "one at a time, and none stands in the way of the others"
        reaped = await scene.run(scene.operations.reap(["a"], [], 10, b'{"code":"LEASE_EXPIRED"}'))
        assert [job.id for job in reaped] == [mine[3].job.id]
    await user.rollback()
    await starter.rollback()
    reaped = await scene.run(scene.operations.reap(["a"], [], 10, b'{"code":"LEASE_EXPIRED"}'))
    assert [job.id for job in reaped] == [each.job.id for each in mine[:2]]
