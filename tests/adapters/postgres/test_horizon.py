"""Ordinals and horizons on PostgreSQL: each way through a claim, and a server that may have lost a move."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec.structs import replace
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.support.postgres import Databases

from queuert.records.model import Claimed, ClaimRequest, TypeLimit
from queuert_conformance.state.build import WORKER, cancelled, queue, request

ONE = request(queue("a"), limit=10)
MANY = request(queue("a", "b"), limit=10)
CAPPED = request(queue("a", "b", max_concurrency=100), limit=10, cluster_cap=100)
REQUESTS = pytest.mark.parametrize("wanted", [ONE, MANY, CAPPED], ids=["one", "many", "capped"])


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


def stored(scene: Scene) -> dict[str, int | None]:
    text: str = "SELECT json_object_agg(job_id, ordinal)::text FROM queuert_running"
    (found,) = scene.watch(text)
    ordinals: dict[str, int | None] = json.loads(found)
    return ordinals


def returned(jobs: list[Claimed]) -> dict[str, int | None]:
    return {each.job.id: each.ordinal for each in jobs}


@REQUESTS
async def test_what_is_returned_is_what_is_stored(scene: Scene, wanted: ClaimRequest) -> None:
    await scene.new("a", "a", "a", "a")
    jobs = await scene.claim(replace(wanted, at_once=1, first_ordinal=7))
    assert [each.ordinal for each in jobs] == [None, 8, 9, 10]
    assert stored(scene) == returned(jobs)


@REQUESTS
async def test_also_where_jobs_are_locked(scene: Scene, wanted: ClaimRequest) -> None:
    first, *_ = await scene.new("a", "a", "a", "a")
    user = await (await scene.session()).begin()
    await user.settle(cancelled(first))
    jobs = await scene.claim(replace(wanted, at_once=1, first_ordinal=7))
    assert [each.ordinal for each in jobs] == [None, 8, 9]
    assert stored(scene) == returned(jobs)
    await user.rollback()


@REQUESTS
async def test_also_where_a_claim_starts_in_the_middle_and_begins_again(scene: Scene, wanted: ClaimRequest) -> None:
    """Then it takes the jobs behind a scan position first. Ordinals are in the order in which the jobs are returned:
    handlers begin in this order, and a worker lets the first ones begin by their highest ordinal.
    """
    ids = await scene.new(*["a"] * 5)
    (mark,) = scene.watch(
        "SELECT json_build_array(priority, scheduled_at, id, now(), later.at, later.at)::text "
        "FROM queuert_ready, (SELECT now() + interval '1 hour') AS later (at) WHERE id = %s",
        ids[2],
    )
    scene.operations.positions["a"] = msgspec.Raw(mark.encode())
    jobs = await scene.claim(replace(wanted, at_once=1, first_ordinal=7))
    assert sorted(each.job.id for each in jobs) == sorted(ids)
    assert stored(scene) == returned(jobs)
    assert [each.ordinal for each in jobs] == [None, 8, 9, 10, 11]


async def test_also_where_a_job_was_found_after_others(scene: Scene) -> None:
    """The second job is left out at first: the limit of its type is reached by a job that turns out to be locked."""
    ids = await scene.new("a", "a", "b", "b", "b")
    user = await (await scene.session()).begin()
    await user.settle(cancelled(ids[0]))
    jobs = await scene.claim(request(queue(TypeLimit("a", 1, 60), "b"), limit=10, at_once=1))
    assert [each.job.id for each in jobs] == ids[1:]
    assert [each.ordinal for each in jobs] == [None, 2, 3, 4]
    assert stored(scene) == returned(jobs)
    await user.rollback()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_server_that_was_restarted_may_have_lost_a_move(scene: Scene, restarted: bool) -> None:
    """Then all attempts count, until the worker has registered again."""
    await scene.run(scene.operations.register_worker(WORKER))
    await scene.new("a")
    await scene.claim(request(queue("a", lease=0), at_once=0))
    if restarted:
        scene.watch("UPDATE queuert_worker SET server_started = server_started - interval '1 second'")
    (row,) = await scene.run(scene.operations.reap(["a"], [], 10, b'{"code":"GONE"}'))
    assert (row.attempt, row.last_attempt_at is not None, row.last_error is not None) == (
        restarted,
        restarted,
        restarted,
    )
    scene.watch("UPDATE queuert_worker SET server_started = server_started - interval '1 second'")
    await scene.run(scene.operations.register_worker(WORKER, horizon=4))
    await scene.claim(request(queue("a", lease=0), at_once=0, first_ordinal=5))
    (row,) = await scene.run(scene.operations.reap(["a"], [], 10, b'{"code":"GONE"}'))
    assert row.attempt == restarted


async def test_a_row_of_an_older_version_counts(scene: Scene) -> None:
    """Its functions store no ordinal."""
    await scene.run(scene.operations.register_worker(WORKER))
    await scene.new("a")
    await scene.claim(request(queue("a", lease=0), at_once=0))
    scene.watch("UPDATE queuert_running SET ordinal = NULL")
    (row,) = await scene.run(scene.operations.reap(["a"], [], 10, b'{"code":"GONE"}'))
    assert row.attempt == 1


async def test_a_move_does_not_wait_for_the_disk(scene: Scene) -> None:
    """Only its own transaction: the connection is not changed for others."""
    await scene.run(scene.operations.register_worker(WORKER))
    session = await (await scene.session()).begin()
    assert await session.run(scene.operations.move_horizon(WORKER, 5))
    assert await session.connection.fetchval("SHOW synchronous_commit") == "off"
    await session.commit()
    assert await session.connection.fetchval("SHOW synchronous_commit") == "on"


async def test_a_claim_does_not_touch_the_row_of_its_worker(scene: Scene) -> None:
    """It is locked by a move, and by others who look for dead workers: no claim waits for that."""
    await scene.run(scene.operations.register_worker(WORKER))
    session = await (await scene.session()).begin()
    await session.run(scene.operations.move_horizon(WORKER, 5))
    await scene.new("a")
    assert len(await scene.claim(request(queue("a"), at_once=0))) == 1
    await session.rollback()
