"""Pruning against everything else at once: it waits for nobody, and deletes nothing that changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, explain, open_scene, pages
from tests.support.postgres import Databases, template

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.records.retention import Pruned, PruneRequest
from queuert_conformance.state.build import HOUR, completed, failed, key, new_job, queue, request, waiting_for
from queuert_conformance.state.prune import keep, short

STEP = PruneRequest(100, exact=True)
ALL = PruneRequest(1000, exact=True, lap_every=0.0, restart=True)


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        await scene.run(scene.operations.store_policies([short("a")]))
        yield scene


async def ended(scene: Scene, **fields: Any) -> str:
    (chain_id,) = await scene.new("a", **fields)
    (claim,) = await scene.claim(request(queue("a")))
    await scene.settle(failed(claim))
    return chain_id


async def prune(scene: Scene, step: PruneRequest = STEP) -> Pruned:
    """At once: it may not wait for the transaction that is open."""
    async with asyncio.timeout(45):
        return await scene.run(scene.operations.prune(step))


async def test_a_chain_that_is_being_retried(scene: Scene) -> None:
    """The retry has its row: the step passes it by. Once it has run again and ended, it goes."""
    other = await ended(scene)
    chain_id = await ended(scene)
    session = await scene.session()
    await session.begin()
    await session.run(scene.operations.retry([chain_id]))
    assert (await prune(scene)).deleted == 1
    await session.commit()
    assert (await prune(scene, ALL)).deleted == 0
    assert await scene.statuses(chain_id, other) == ["pending"]
    (claim,) = await scene.claim(request(queue("a")))
    await scene.settle(completed(claim))
    assert (await prune(scene, ALL)).deleted == 1


async def test_a_chain_that_gets_a_dependent(scene: Scene) -> None:
    """The start has not committed, so the step cannot see the edge; but it sees that the chain is locked."""
    chain_id = await ended(scene)
    session = await scene.session()
    await session.begin()
    dependent = new_job("b", blockers=waiting_for(chain_id, chain_type="a"))
    await session.start(dependent)
    assert (await prune(scene)).deleted == 0
    await session.commit()
    assert (await prune(scene, ALL)).deleted == 0
    assert await scene.statuses(chain_id, dependent.id) == ["failed", "blocked"]


async def test_a_start_waits_for_a_step_and_finds_the_chain_gone(scene: Scene) -> None:
    chain_id = await ended(scene)
    pruner, starter = await scene.sessions(2)
    await pruner.begin()
    assert (await pruner.run(scene.operations.prune(STEP))).deleted == 1
    starting = scene.go(starter.run_alone(scene.operations.create_jobs(
        [new_job("b", blockers=waiting_for(chain_id, chain_type="a"))]
    )))  # fmt: skip
    await scene.blocked(starter, by=pruner)
    await pruner.commit()
    with pytest.raises(Exception, match="does not exist"):
        await starting


@pytest.mark.parametrize("window", [None, HOUR])
async def test_a_key_that_is_being_taken_over(scene: Scene, window: float | None) -> None:
    """Another start has locked the key: the chain is left for later, and never a deadlock."""
    chain_id = await ended(scene, dedup=key("k", scope="any", window=window))
    session = await scene.session()
    await session.begin()
    following = new_job("a", dedup=key("k", exclude=[chain_id]))
    await session.start(following)
    assert (await prune(scene)).deleted == 0
    await session.commit()
    assert (await prune(scene, ALL)).deleted == 1
    (found,) = await scene.start(new_job("a", dedup=key("k")))
    assert found.chain_id == following.id


async def test_a_key_that_is_locked_keeps_what_its_chain_needs(scene: Scene) -> None:
    """The failed dependent stays because of its key, so it can be retried, so its blocker has to stay with it."""
    (blocker,) = await scene.new("a")
    dependent = new_job("a", dedup=key("k"), blockers=waiting_for(blocker, chain_type="a"))
    await scene.start(dependent)
    for settlement in (completed, failed):
        (claim,) = await scene.claim(request(queue("a")))
        await scene.settle(settlement(claim))
    session = await scene.session()
    await session.begin()
    await session.start(new_job("a", dedup=key("k", exclude=[dependent.id])))
    assert (await prune(scene)).deleted == 0
    await session.rollback()
    assert await scene.statuses(blocker, dependent.id) == ["completed", "failed"]
    assert (await prune(scene, ALL)).deleted == 2


async def test_a_key_that_is_locked_keeps_no_others(scene: Scene) -> None:
    locked = await ended(scene, dedup=key("locked"))
    others = [await ended(scene, dedup=key(f"other {number}")) for number in range(3)]
    session = await scene.session()
    await session.begin()
    await session.start(new_job("a", dedup=key("locked", exclude=[locked])))
    assert (await prune(scene)).deleted == 3
    assert await scene.statuses(locked, *others) == ["failed"]
    await session.rollback()
    assert (await prune(scene, ALL)).deleted == 1
    assert scene.watch("SELECT count(*) FROM queuert_key") == [0]


async def test_a_window_that_ends_while_its_key_is_locked(scene: Scene) -> None:
    """Whoever has locked it may give up. The key is deleted by a later step."""
    await ended(scene, dedup=key("k", scope="any", window=HOUR))
    assert (await prune(scene)).deleted == 1
    scene.watch("UPDATE queuert_key SET until = now()")
    scene.watch("UPDATE queuert_kept SET due_at = now()")
    session = await scene.session()
    await session.begin()
    await session.start(new_job("a", dedup=key("k")))
    await prune(scene)
    await session.rollback()
    assert scene.watch("SELECT count(*) FROM queuert_kept") == [1]
    scene.watch("UPDATE queuert_kept SET due_at = now()")
    await prune(scene)
    assert scene.watch("SELECT (SELECT count(*) FROM queuert_kept) + (SELECT count(*) FROM queuert_key)") == [0]


async def test_a_key_that_an_older_version_has_taken_over(scene: Scene) -> None:
    """It changes only the chain of the row, and leaves the rest as the chain before had it."""
    chain_id = await ended(scene, dedup=key("k", scope="any", window=HOUR))
    scene.watch("UPDATE queuert_key SET window_chain = gen_random_uuid(), ended = 'failed'")
    assert (await prune(scene)).deleted == 1
    assert scene.watch("SELECT count(*) FROM queuert_key") == [0]
    assert await scene.statuses(chain_id) == []


async def test_policies_that_are_being_stored(scene: Scene) -> None:
    """The step passes by their types, and waits for none. Then the walk begins anew, whatever it had found."""
    await ended(scene)
    session = await scene.session()
    await session.begin()
    await session.run(scene.operations.store_policies([keep("a", failed=HOUR), short("b")]))
    assert (await prune(scene)).deleted == 0
    await session.rollback()
    assert (await prune(scene)).deleted == 1


async def test_the_clock_is_set_back(scene: Scene) -> None:
    """What is noted is looked at by the clock as it is now."""
    (chain_id,) = await scene.new("a")
    assert (await prune(scene)).deleted == 0
    (claim,) = await scene.claim(request(queue("a")))
    await scene.settle(failed(claim))
    scene.watch("UPDATE queuert_pruning SET noted_until = now() + interval '1 year'")
    scene.watch("UPDATE queuert_kept SET due_at = now()")
    assert (await prune(scene)).deleted == 1
    assert await scene.statuses(chain_id) == []


async def test_an_edge_that_is_being_deleted(scene: Scene) -> None:
    """A deletion by hand has the edge, and wants the chain next: the step must not wait for the edge."""
    blocker = await ended(scene)
    dependent = new_job("b", blockers=waiting_for(blocker, chain_type="a"))
    await scene.start(dependent)
    session = await scene.session()
    await session.begin()
    await session.delete(dependent.id)
    assert (await prune(scene)).deleted == 0
    assert len((await session.delete(blocker)).chains) == 1
    await session.commit()
    assert await scene.statuses(blocker) == []
    assert await scene.deadlocks() == 0


async def test_an_old_snapshot(scene: Scene) -> None:
    """Another session keeps a snapshot: what is deleted stays on the pages. Each step costs the same."""
    await scene.run(scene.operations.store_policies([keep("a", completed=0.0, failed=HOUR)]))
    holder = await scene.session()
    await holder.begin("repeatable_read")
    costs = list[int]()
    with psycopg.connect(scene.url, autocommit=True) as connection:
        for _ in range(30):
            await scene.start(*(new_job("a") for _ in range(100)))
            claims = await scene.claim(request(queue("a"), limit=100))
            await scene.settle(*(completed(claim) for claim in claims))
            command: Any = next(scene.operations.prune(PruneRequest(200, exact=True)))
            costs.append(pages(explain(connection, command.text, command.values)))
    await holder.commit()
    assert scene.watch("SELECT count(*) FROM queuert_job") == [0]
    assert max(costs[20:]) < 1.5 * sorted(costs[5:15])[5], costs


@pytest.fixture
def connection(postgres: Databases) -> Iterator[psycopg.Connection[Any]]:
    with (
        postgres.fresh(template=template()) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        yield connection


KEPT = """
    INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority,
        created_at, scheduled_at, completed_at, output)
    SELECT each.id, 'a', each.id, 'a', 0, '{}', each.status, nullif(each.status, 'completed'), 100, each.at, each.at,
        each.at, 'null'
    FROM (
        SELECT CASE WHEN mod(n, 2) = 0 THEN 'completed' ELSE 'failed' END AS status,
            now() - make_interval(secs => n) AS at,
            rpad('0' || to_hex((1000 * (extract(epoch FROM now()) - n))::bigint) || '70008', 32, '0')::uuid AS id
        FROM generate_series(1, %s) AS n
    ) AS each
"""


def test_the_cost_does_not_depend_on_what_is_kept(connection: psycopg.Connection[Any]) -> None:
    """Counted in pages: a step that finds nothing, and one that deletes ten, beside few and beside many that stay."""
    operations = PostgresOperations()

    def run(program: Any) -> Any:
        command = next(program)
        return psycopg.RawCursor(connection).execute(command.text, command.values).fetchall()

    run(operations.store_policies([keep("a", completed=HOUR, failed=None), keep("b", completed=0.0)]))
    found: dict[int, list[int]] = {}
    for number in (1000, 20000):
        connection.execute("TRUNCATE queuert_job, queuert_kept")
        connection.execute("UPDATE queuert_retention SET walked = NULL")
        connection.execute(KEPT, [number])
        connection.execute("VACUUM (ANALYZE)")
        for _ in range(100):  # what is older than an hour
            rows = run(operations.prune(PruneRequest(1000, exact=True)))
            if not any(row[0] == "more" for row in rows):
                break
        connection.execute("VACUUM (ANALYZE)")
        costs = found[number] = []
        for jobs in (0, 10):
            run(operations.prune(PruneRequest(1000, exact=True)))  # on a slow machine, more has become due
            run(operations.create_jobs([new_job("b") for _ in range(jobs)]) if jobs else operations.stats())
            connection.execute(
                "UPDATE queuert_job SET status = 'completed', completed_at = now() WHERE type_name = 'b'"
            )
            command: Any = next(operations.prune(PruneRequest(100, exact=True)))
            plan: dict[str, Any] = {}
            for _ in range(3):
                with connection.transaction(force_rollback=True):
                    plan = explain(connection, command.text, command.values)
            costs.append(pages(plan))
    small, large = found[1000], found[20000]
    # Time goes on meanwhile: a few chains more may have become due.
    assert all(after <= before + 100 for before, after in zip(small, large, strict=True)), found


def test_completions_stay_in_place(connection: psycopg.Connection[Any]) -> None:
    """No index has a column that completion changes."""
    columns = connection.execute(
        "SELECT DISTINCT a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid "
        "WHERE i.indrelid = 'queuert_job'::regclass"
    ).fetchall()
    changed = {"status", "output", "completed_at", "completed_by", "attempt", "last_attempt_at", "last_error"}
    assert not {name for (name,) in columns} & changed
