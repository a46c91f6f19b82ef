"""Somebody keeps an old snapshot, so the entries of claimed jobs stay: claims must not pay for them for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, Session, explain, open_scene, pages
from tests.behaviour.steps import eventually
from tests.support.postgres import Databases

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.ports.program import Program
from queuert.records.model import Claimed, ClaimRequest
from queuert_conformance.state.build import cancelled, later, queue, request

DEAD = 12_000
ONE = request(queue("a"), limit=10)
TWO = request(queue("a", "b"), limit=10)
CAPPED = request(queue("a", "b", max_concurrency=1000), limit=10)
REQUESTS = {"one type": ONE, "two types": TWO, "capped": CAPPED}


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    """Without autovacuum: its ANALYZE could begin before a test deletes rows, and set their counts back afterwards.
    Where it has been, new versions of a row are looked for in other pages.
    """
    async with open_scene(postgres) as scene:
        tables = scene.watch(
            "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE 'queuert@_%' ESCAPE '@' AND relkind = 'r'"
        )
        for table in tables:
            scene.watch(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield scene


async def pile_up(scene: Scene, *types: str) -> Session:
    """Entries of jobs that are gone, before all others; they stay until this session ends its transaction."""
    # An ANALYZE of its own that began before the DELETE would set the counts of rows back.
    scene.watch("ALTER TABLE queuert_ready SET (autovacuum_enabled = off)")
    keeper = await scene.session()
    await keeper.begin("repeatable_read")
    for name in types:
        scene.watch(
            f"INSERT INTO queuert_ready SELECT '{name}', 100, now() - interval '1 hour', gen_random_uuid() "
            f"FROM generate_series(1, {DEAD})"
        )
    scene.watch("DELETE FROM queuert_ready WHERE scheduled_at < now() - interval '30 minutes'")
    await told(scene, "dead")
    return keeper


async def told(scene: Scene, more: str) -> None:
    """Until the server has counted more rows of one kind, "dead" or "live", than of the other."""
    numbers = "pg_stat_get_dead_tuples('queuert_ready'::regclass) - pg_stat_get_live_tuples('queuert_ready'::regclass)"
    sign = 1 if more == "dead" else -1

    def is_so() -> bool:
        scene.watch.flush_statistics()
        return bool(scene.watch(f"SELECT sign({numbers}) = {sign}")[0])

    await eventually(is_so)


async def marked(scene: Scene, wanted: ClaimRequest = ONE) -> list[Claimed]:
    """A claim that goes through all of them, and remembers it."""
    await pile_up(scene, "a")
    await scene.new(*["a"] * 10)
    return await claim(scene, wanted)


async def claim(scene: Scene, wanted: ClaimRequest = ONE) -> list[Claimed]:
    """A claim whose marks are good for as long as the test takes."""
    claimed = await scene.claim(wanted)
    assert scene.operations.positions
    until(scene, "1 hour")
    return claimed


def until(scene: Scene, delay: str, again: str = "1 hour") -> None:
    """The marks are good for so long, and everything is read again after `again`."""
    moments = [*scene.watch("SELECT unnest(ARRAY[now() + %s::interval, now() + %s::interval])::text", delay, again)]
    positions = scene.operations.positions
    for name, mark in positions.items():
        positions[name] = msgspec.Raw(json.dumps([*json.loads(bytes(mark))[:4], *moments]))


def ids(claimed: list[Claimed]) -> list[str]:
    return [each.job.id for each in claimed]


def cost(scene: Scene, wanted: ClaimRequest) -> int:
    """The pages that a claim touches, with the marks there are; it is undone."""
    return cost_of(scene, lambda: scene.operations.claim(wanted))


def cost_of(scene: Scene, program: Callable[[], Program[Any]]) -> int:
    command = next(program())
    found = 0
    with psycopg.connect(scene.url) as connection:
        for _ in range(2):  # the first time it also reads the catalogue
            found = pages(explain(connection, command.text, command.values))
            connection.rollback()
    return found


@pytest.mark.parametrize("wanted", REQUESTS.values(), ids=REQUESTS)
async def test_only_one_claim_in_many_steps_over_the_dead(scene: Scene, wanted: ClaimRequest) -> None:
    await scene.new(*["a"] * 60, *["b"] * 60)
    before = cost(scene, wanted)
    await pile_up(scene, "a", "b")
    assert cost(scene, wanted) > before + 100
    for _ in range(3):
        assert len(await claim(scene, wanted)) == 10
        assert cost(scene, wanted) <= before + 20


async def test_an_ordinary_claim_leaves_no_mark(scene: Scene) -> None:
    """Then the order is the order, whatever comes in."""
    await scene.new(*["a"] * 1000)
    for _ in range(50):
        assert len(await scene.claim(ONE)) == 10
    assert scene.operations.positions == {}


async def test_nothing_waits_while_there_is_room(scene: Scene) -> None:
    await marked(scene)
    behind = await scene.new(*["a"] * 4)
    before = [*await scene.new("a", priority=1), *await scene.new("a", schedule=later(-1800))]
    due = await scene.new("a", schedule=later(0.001))
    scene.watch("SELECT pg_sleep(0.002)")
    assert sorted(ids(await scene.claim(ONE))) == sorted([*behind, *before, *due])


@pytest.mark.parametrize("how", ["given back", "held by somebody at first", "not due yet at first"])
async def test_nothing_is_lost_before_a_mark(scene: Scene, how: str) -> None:
    if how == "not due yet at first":
        (lost,) = await scene.new("a", schedule=later())
        await marked(scene)
        for table in ("later", "job"):
            scene.watch(f"UPDATE queuert_{table} SET scheduled_at = now() - interval '1 minute' WHERE id = '{lost}'")
    elif how == "given back":
        claimed = await marked(scene)
        lost = claimed[0].job.id
        scene.watch("UPDATE queuert_running SET leased_until = now() WHERE job_id = %s", lost)
        await scene.run(scene.operations.reap(["a"], [], 1, b"{}"))
    else:
        (lost,) = await scene.new("a", schedule=later(-60))
        user = await (await scene.session()).begin()
        await user.lock(lost)
        await marked(scene)
        await user.rollback()
    assert lost in ids(await scene.claim(ONE))


async def test_what_falls_due_together_is_not_forgotten(scene: Scene) -> None:
    """A claim moves a thousand of them; the mark that it leaves must not say that there are no more."""
    await pile_up(scene, "a")
    await scene.new(*["a"] * 20)
    await scene.new(*["a"] * 1500, schedule=later(0.001))
    scene.watch("SELECT pg_sleep(0.002)")
    for left in (500, 0):
        await claim(scene)
        assert scene.watch("SELECT count(*) FROM queuert_later") == [left]


@pytest.mark.parametrize("waiting", [0, 1], ids=["nothing", "one"])
async def test_more_is_told_truly(scene: Scene, waiting: int) -> None:
    await marked(scene)
    await scene.new(*["a"] * 10)
    before = [await scene.new("a", priority=1) for _ in range(waiting)]
    result = await scene.run(scene.operations.claim(ONE))
    assert (len(result.jobs), result.more) == (10, bool(before))


async def test_what_is_urgent_waits_ten_seconds_at_most(scene: Scene) -> None:
    await pile_up(scene, "a")
    await scene.new(*["a"] * 40)
    await scene.claim(ONE)
    (mark,) = scene.operations.positions.values()
    *_, since, end, _ = json.loads(bytes(mark))
    assert scene.watch("SELECT %s::timestamptz - %s::timestamptz <= '10 s'", end, since) == [True]
    until(scene, "1 hour")
    (urgent,) = await scene.new("a", priority=1)
    assert urgent not in ids(await scene.claim(ONE))
    until(scene, "0 s")
    assert urgent in ids(await scene.claim(ONE))


async def test_old_marks_are_not_renewed_over_a_job_before_them(scene: Scene) -> None:
    """Also if a time has moved it there with this claim."""
    await pile_up(scene, "a")
    await scene.new(*["a"] * 40)
    await claim(scene)
    urgent = [*await scene.new("a", priority=1), *await scene.new("a", priority=2, schedule=later(0.001))]
    scene.watch("SELECT pg_sleep(0.002)")
    until(scene, "0 s")
    assert set(urgent) <= set(ids(await scene.claim(ONE)))


async def test_when_the_snapshot_is_gone_so_are_the_marks(scene: Scene) -> None:
    keeper = await pile_up(scene, "a")
    await scene.new(*["a"] * 30)
    await scene.claim(ONE)
    assert scene.operations.positions
    await keeper.rollback()
    scene.watch("VACUUM queuert_ready")
    until(scene, "0 s", again="0 s")
    await scene.claim(ONE)
    assert scene.operations.positions == {}


@pytest.mark.parametrize("wanted", REQUESTS.values(), ids=REQUESTS)
async def test_old_marks_are_renewed_by_reading_the_table(scene: Scene, wanted: ClaimRequest) -> None:
    """Each page of it once, and not the index, with a look at the table for each of its entries."""
    await scene.new(*["a"] * 60, *["b"] * 60)
    before = cost(scene, wanted)
    await pile_up(scene, "a", "b")
    everything = cost(scene, wanted)
    (size,) = scene.watch("SELECT pg_relation_size('queuert_ready') / 8192")
    assert everything > 10 * size
    await claim(scene, wanted)
    until(scene, "0 s")
    assert cost(scene, wanted) <= before + size + 40
    await scene.claim(wanted)
    for mark in scene.operations.positions.values():
        *_, end, again = json.loads(bytes(mark))
        found = scene.watch("SELECT %s::timestamptz > now(), %s::timestamptz > now() + interval '50 min'", end, again)
        assert found == [(True, True)]
    until(scene, "1 hour", again="0 s")
    assert cost(scene, wanted) > 10 * size


async def test_a_table_of_mostly_live_rows_is_not_read(scene: Scene) -> None:
    """Then the index is read, as far as it has to be."""
    await marked(scene)
    scene.watch(
        "INSERT INTO queuert_ready SELECT 'other', 100, now(), gen_random_uuid() FROM generate_series(1, 60000)"
    )
    await told(scene, "live")
    (size,) = scene.watch("SELECT pg_relation_size('queuert_ready') / 8192")
    await scene.new(*["a"] * 12)
    until(scene, "0 s")
    before = cost(scene, ONE)
    scene.watch("DELETE FROM queuert_ready WHERE type_name = 'other'")
    await told(scene, "dead")
    assert abs(cost(scene, ONE) - before) > size / 2


async def test_a_claim_that_is_not_filled_reads_the_table_once(scene: Scene) -> None:
    await marked(scene)
    await scene.new(*["a"] * 4)
    (size,) = scene.watch("SELECT pg_relation_size('queuert_ready') / 8192")
    assert cost(scene, ONE) <= 150 + size
    assert len(await scene.claim(ONE)) == 4


async def test_whether_something_is_ready_is_seen_at_the_other_end(scene: Scene) -> None:
    await scene.new("a")
    before = cost_of(scene, lambda: scene.operations.next_available_in(["a"]))
    await pile_up(scene, "a")
    assert cost_of(scene, lambda: scene.operations.next_available_in(["a"])) <= before + 5


async def test_a_horizon_is_moved_where_it_is(scene: Scene) -> None:
    """All versions of the row stay. By its id, each of them would be looked at."""
    await scene.run(scene.operations.register_worker("w"))
    keeper = await scene.session()
    await keeper.begin("repeatable_read")

    assert await scene.run(scene.operations.move_horizon("w", 1))
    before = cost_of(scene, lambda: scene.operations.move_horizon("w", 10_000))
    for number in range(2, 400):
        assert await scene.run(scene.operations.move_horizon("w", number))
    assert cost_of(scene, lambda: scene.operations.move_horizon("w", 10_000)) <= before + 1
    await scene.run(scene.operations.register_worker("w"))
    assert await scene.run(scene.operations.move_horizon("w", 500))
    assert scene.watch("SELECT horizon FROM queuert_worker") == [500]


async def test_limits_hold_on_both_sides_of_a_mark(scene: Scene) -> None:
    """Three may run: one does, one is claimed from behind the mark, and of the two before it one."""
    capped = request(queue("a", max_concurrency=3), limit=10)
    await pile_up(scene, "a")
    (running,) = await scene.new("a")
    assert ids(await scene.claim(capped)) == [running]
    assert scene.operations.positions
    (behind,) = await scene.new("a")
    before = await scene.new("a", "a", priority=1)
    assert sorted(ids(await scene.claim(capped))) == sorted([behind, min(before)])
    assert await scene.claim(capped) == []


async def test_nothing_is_claimed_twice(scene: Scene) -> None:
    """Eight workers, each with its own marks, while jobs of all priorities come in."""
    await pile_up(scene, "a", "b")
    created = await scene.new(*["a", "b"] * 50)
    seen: list[str] = []

    async def work(number: int) -> None:
        mine = PostgresOperations()
        for turn in range(12):
            created.extend(await scene.new("a", "b", priority=50 + 10 * ((number + turn) % 8)))
            found = await scene.run(mine.claim(request(queue("a", "b"), limit=4)))
            seen.extend(ids(found.jobs))

    await asyncio.gather(*(work(number) for number in range(8)))
    while found := await scene.claim(TWO):
        seen.extend(ids(found))
    assert sorted(seen) == sorted(created)


async def test_caps_are_exact_while_somebody_sees_the_jobs_of_before(scene: Scene) -> None:
    """Two services without a common type. For the old snapshot, thousands of jobs of the queue are still running."""
    claims = [request(queue(name, name="x", max_concurrency=3), limit=2, worker=name) for name in ("a", "b")]
    await scene.new(*["a", "b"] * 3)
    assert [len(await scene.claim(each)) for each in claims] == [2, 1]
    scene.watch(
        "INSERT INTO queuert_running (job_id, token, type_name, queue, worker, leased_until, started_at) "
        "SELECT gen_random_uuid(), 1, 'a', 'x', 'gone', now(), now() FROM generate_series(1, 3000)"
    )
    keeper = await (await scene.session()).begin("repeatable_read")
    scene.watch("DELETE FROM queuert_running WHERE worker = 'gone'")
    assert [len(await scene.claim(each)) for each in claims] == [0, 0]
    (running,) = scene.watch("SELECT job_id::text FROM queuert_running WHERE type_name = 'b'")
    await scene.settle(cancelled(running))
    assert [len(await scene.claim(each)) for each in claims[::-1]] == [1, 0]
    assert scene.watch("SELECT count(*) FROM queuert_running") == [3]
    await keeper.rollback()


async def test_all_caps_together_read_the_running_jobs_once(scene: Scene) -> None:
    """However many queues have one; and a claim without a cap does not read them at all."""
    scene.watch(
        "INSERT INTO queuert_running (job_id, token, type_name, queue, worker, leased_until, started_at) "
        "SELECT gen_random_uuid(), 1, 'z', 'x', 'other', now(), now() FROM generate_series(1, 5000)"
    )
    (size,) = scene.watch("SELECT pg_relation_size('queuert_running') / 8192")
    names = ("a", "b", "c", "d")
    without = cost(scene, request(*(queue(name, name=name) for name in names), limit=2))
    capped = [queue(name, name=name, max_concurrency=2) for name in names]
    assert without < 60 < size
    for each in (request(capped[0]), request(*capped), request(*capped, cluster_cap=9000)):
        assert cost(scene, each) < size + 60
    scene.watch("DELETE FROM queuert_running")


async def test_reaping_and_registering_read_the_table_of_claims_once(scene: Scene) -> None:
    """Along its index they would come to a page again and again."""
    await scene.run(scene.operations.register_worker("w"))
    keeper = await scene.session()
    await keeper.begin("repeatable_read")
    scene.watch(
        "INSERT INTO queuert_running (job_id, token, type_name, queue, worker, leased_until, started_at) "
        f"SELECT gen_random_uuid(), 1, 'a', 'x', 'w', now(), now() FROM generate_series(1, {DEAD})"
    )
    scene.watch("DELETE FROM queuert_running")
    (size,) = scene.watch("SELECT pg_relation_size('queuert_running') / 8192")
    assert 10 * size < DEAD
    assert cost_of(scene, lambda: scene.operations.reap(["a"], [], 10, b"{}")) <= size + 40
    assert cost_of(scene, lambda: scene.operations.register_worker("w")) <= size + 60
