"""Why a job is not running, on PostgreSQL: one snapshot, and a bounded number of pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.adapters.postgres.test_claim_cost import KINDS, OPERATIONS, carry_out, connection, cost, fill
from tests.support.postgres import Databases

from queuert.features.why.finding import explain
from queuert.why import InLine, Running
from queuert_conformance.state.build import completed, new_job, queue, request, waiting_for
from queuert_conformance.state.registry import about

__all__ = ["connection"]

Connection = psycopg.Connection[Any]


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as found:
        yield found


async def test_it_is_one_snapshot(scene: Scene) -> None:
    """What is committed while it reads is not seen, in no part of it."""
    operations = scene.operations
    await scene.run(operations.register_worker("one", about=about("a")))
    (job_id,) = await scene.new("a")
    (claimed,) = await scene.claim(request(queue("a"), limit=1, worker="one"))
    other, reader = await (await scene.session()).begin(), await scene.session()
    await other.connection.execute("LOCK TABLE queuert_last_handled")  # it is read last
    reading = scene.go(reader.run_alone(operations.circumstances(job_id)))
    await scene.blocked(reader, by=other)
    await other.run(operations.settle([completed(claimed)]))
    await other.run(operations.forget_worker("one"))
    await other.commit()
    (reason,) = explain(await reading).reasons
    assert isinstance(reason, Running)
    assert (reason.worker_id, reason.state) == ("one", "alive")


# What it costs


def many_ready(connection: Connection, number: int) -> None:
    fill(connection, number)
    connection.execute(
        "INSERT INTO queuert_ready (type_name, priority, scheduled_at, id) "
        "SELECT type_name, priority, scheduled_at, id FROM queuert_job WHERE status = 'pending' ON CONFLICT DO NOTHING"
    )


def many_workers_gone(connection: Connection, number: int) -> None:
    connection.execute(
        f"INSERT INTO queuert_last_handled SELECT 'type-' || n, now() FROM generate_series(1, {number}) AS n".encode()
    )


AROUND: dict[str, Callable[[Connection, int], None]] = {
    **KINDS,
    "ready, of its type": many_ready,
    "types that were handled": many_workers_gone,
}


def measure(connection: Connection, ids: dict[str, str]) -> dict[str, int]:
    connection.execute("VACUUM (ANALYZE)")
    return {name: cost(connection, OPERATIONS.circumstances(chain_id)) for name, chain_id in ids.items()}


def check(connection: Connection, number: int, levels: int, fill_kind: Callable[[Connection, int], None]) -> None:
    """With nothing around it, and with very much."""
    carry_out(connection, OPERATIONS.register_worker("one", about=about("a", "b")))
    blockers = [new_job("b") for _ in range(3)]
    due, running = [new_job("a") for _ in range(150)], new_job("c")
    blocked = new_job("a", blockers=waiting_for(*(job.id for job in blockers), chain_type="b"))
    for jobs in (blockers, due, [blocked, running]):
        carry_out(connection, OPERATIONS.create_jobs(jobs))
    carry_out(connection, OPERATIONS.claim(request(queue("c"), limit=1, worker="one")))
    ids = {"due": due[-1].id, "blocked": blocked.id, "running": running.id}
    before = measure(connection, ids)
    fill_kind(connection, number)
    after = measure(connection, ids)
    allowed = 20 * levels  # each time that an index is gone down
    assert {name: after[name] for name in after if after[name] > before[name] + allowed} == {}, before
    carry_out(connection, OPERATIONS.register_worker("one"))  # filling takes long
    why = explain(carry_out(connection, OPERATIONS.circumstances(ids["due"])))
    assert [type(reason) for reason in why.reasons] == [InLine]


@pytest.mark.parametrize("fill_kind", AROUND.values(), ids=AROUND)
def test_ten_thousand_other_jobs(connection: Connection, fill_kind: Callable[[Connection, int], None]) -> None:
    check(connection, 10_000, 1, fill_kind)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fill_kind", AROUND.values(), ids=AROUND)
def test_a_million_other_jobs(connection: Connection, fill_kind: Callable[[Connection, int], None]) -> None:
    check(connection, 1_000_000, 2, fill_kind)
