"""Pauses on PostgreSQL: what a claim pays for them, and that nobody waits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, explain, open_scene, pages
from tests.support.postgres import Databases

from queuert.ports.program import Program
from queuert.records.model import When
from queuert.records.pauses import PauseTarget
from queuert_conformance.state.build import queue, request

REQUESTS = {
    "one type": request(queue("a"), limit=10),
    "two types": request(queue("a", "b"), limit=10),
    "capped": request(queue("a", "b", max_concurrency=9), limit=10, cluster_cap=9),
}
TASKS = PauseTarget("type", "a")

BLOCKS = """
    SELECT (SELECT sum(pg_stat_get_xact_blocks_fetched(found::regclass)) FROM unnest(%s::text[]) AS found),
        (SELECT sum(pg_stat_get_xact_numscans(found::regclass)) FROM unnest(%s::text[]) AS found)
"""
TABLE = ["queuert_pause", "queuert_pause_pkey"]


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


def looks(scene: Scene, program: Program[object]) -> tuple[int, int]:
    """The pages of pauses that an operation reads, and how often it looks; it is undone."""
    command = next(program)
    with psycopg.connect(scene.url) as connection:
        seen: list[tuple[int, int]] = []
        for _ in range(2):  # the first time it also reads where the table is
            psycopg.RawCursor(connection).execute(command.text, command.values)
            seen += connection.execute(BLOCKS, [TABLE, TABLE]).fetchall()
        connection.rollback()
    return int(seen[1][0] - seen[0][0]), int(seen[1][1] - seen[0][1])


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_claim_looks_once_at_an_empty_table(scene: Scene, name: str) -> None:
    await scene.new(*["a", "b"] * 10)
    read, scans = looks(scene, scene.operations.claim(REQUESTS[name]))
    assert (read <= 1, scans) == (True, 1), (read, scans)


async def test_so_does_who_asks_what_is_available(scene: Scene) -> None:
    read, scans = looks(scene, scene.operations.next_available_in(["a", "b"], ["x", "x"]))
    assert (read <= 1, scans) == (True, 1), (read, scans)


async def test_pauses_of_others_cost_a_few_pages(scene: Scene) -> None:
    """Fifty pauses that are in nobody's way, and fifty that have ended."""
    for number in range(50):
        await scene.run(scene.operations.pause(PauseTarget("type", f"other-{number}"), reason="x" * 100))
        await scene.run(scene.operations.pause(PauseTarget("queue", f"other-{number}"), until=When(after=1e-6)))
    await scene.new(*["a"] * 10)
    read, _ = looks(scene, scene.operations.claim(REQUESTS["one type"]))
    assert read < 12, read
    assert len(await scene.claim(REQUESTS["one type"])) == 10


async def test_what_is_paused_is_not_read(scene: Scene) -> None:
    """Thousands of jobs of a paused type make a claim of another type no dearer."""
    await scene.new(*["b"] * 10)
    wanted = request(queue("a", "b", limit=20), limit=10)

    def cost() -> int:
        command = next(scene.operations.claim(wanted))
        found = 0
        with psycopg.connect(scene.url) as connection:
            for _ in range(2):
                found = pages(explain(connection, command.text, command.values))
                connection.rollback()
        return found

    await scene.run(scene.operations.pause(TASKS))
    before = cost()
    await scene.new(*["a"] * 3000, priority=1)
    scene.watch("VACUUM (ANALYZE) queuert_ready")
    assert cost() < before + 20
    assert [each.job.type_name for each in await scene.claim(wanted)] == ["b"] * 10


@pytest.mark.parametrize("name", REQUESTS)
async def test_no_claim_waits_for_a_pause_and_the_next_one_heeds_it(scene: Scene, name: str) -> None:
    await scene.new(*["a"] * 20)
    user = await (await scene.session()).begin()
    await user.run(scene.operations.pause(TASKS))
    assert len(await scene.claim(REQUESTS[name])) > 0
    await user.commit()
    assert await scene.claim(REQUESTS[name]) == []


async def test_a_claim_behind_an_old_snapshot_heeds_it_on_both_sides(scene: Scene) -> None:
    """A claim that begins at a mark looks again from the beginning: pauses are read again, too."""
    keeper = await (await scene.session()).begin("repeatable_read")
    scene.watch(
        "INSERT INTO queuert_ready SELECT 'a', 100, now() - interval '1 hour', gen_random_uuid() "
        "FROM generate_series(1, 12000)"
    )
    scene.watch("DELETE FROM queuert_ready")
    await scene.new(*["a"] * 12)
    assert len(await scene.claim(REQUESTS["one type"])) == 10
    assert scene.operations.positions
    await scene.run(scene.operations.pause(TASKS))
    assert await scene.claim(REQUESTS["one type"]) == []
    await scene.run(scene.operations.resume(TASKS))
    assert len(await scene.claim(REQUESTS["one type"])) == 2
    await keeper.rollback()


async def test_two_pauses_of_one_target_at_once(scene: Scene) -> None:
    """The second waits for the first, and its values count."""
    first, second = await scene.sessions(2)
    await first.begin()
    one = await first.run(scene.operations.pause(TASKS, reason="one"))
    waiting = scene.go(second.run_alone(scene.operations.pause(TASKS, reason="two")))
    await scene.blocked(second, by=first)
    await first.commit()
    two = await waiting
    assert (two.since, two.reason) == (one.since, "two")
