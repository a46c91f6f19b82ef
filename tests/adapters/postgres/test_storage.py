"""How rows are stored: what is updated in place, what listings walk along, and what vacuum leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, explain, open_scene, pages, template
from tests.support.postgres import Databases, server

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.conformance.state.build import completed, new_job, put_back, queue, request, waiting_for
from queuert.model import ChainFilter, JobFilter, Lease, PageRequest

OPERATIONS = PostgresOperations()

FIGURES = """
    SELECT pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_hot_updated(c.oid), pg_stat_get_tuples_inserted(c.oid)
    FROM pg_class AS c WHERE c.relname = %s
"""


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


async def figures(scene: Scene, table: str) -> Any:
    """Rows updated, rows updated in place, rows inserted: told when all other connections are gone."""
    await scene.deadlocks()
    return scene.watch(FIGURES, table)[0]


async def test_a_job_is_written_when_it_is_created_and_in_place_when_it_ends(scene: Scene) -> None:
    await scene.start(*(new_job("a") for _ in range(500)))
    for _ in range(5):
        claimed = await scene.claim(request(queue("a"), limit=100))
        await scene.settle(*(completed(each, b'{"total": 12345}') for each in claimed))
    updated, in_place, inserted = await figures(scene, "queuert_job")
    assert (updated, in_place, inserted) == (500, 500, 500)


async def test_putting_back_waiting_and_renewing_are_updates_in_place_too(scene: Scene) -> None:
    await scene.start(*(new_job("a") for _ in range(100)))
    claimed = await scene.claim(request(queue("a")))
    for _ in range(3):
        leases = [Lease(each.job.id, each.job.token or 0, 60.0) for each in claimed]
        assert await scene.run(scene.operations.renew(leases)) == []
    await scene.start(*(new_job("b", blockers=waiting_for(each.job.id, chain_type="a")) for each in claimed))
    await scene.settle(*(put_back(each) for each in claimed))
    updated, in_place, _ = await figures(scene, "queuert_job")
    assert updated == 200
    assert in_place >= 100, "a page has room for each job twice; it was freed of the first ones, if nobody needed them"
    updated, in_place, _ = scene.watch(FIGURES, "queuert_running")[0]
    assert updated == 300
    assert in_place >= 200, "as far as the page has room: half of each is kept free"


async def test_a_claim_leaves_the_job_alone(scene: Scene) -> None:
    await scene.start(*(new_job("a") for _ in range(50)))
    before = scene.watch("SELECT (xmin, xmax, ctid)::text FROM queuert_job ORDER BY id")
    assert len(await scene.claim(request(queue("a", "b")))) == 50
    assert scene.watch("SELECT (xmin, xmax, ctid)::text FROM queuert_job ORDER BY id") == before


async def test_vacuum(scene: Scene) -> None:
    await scene.start(*(new_job("a") for _ in range(2_000)))
    while claimed := await scene.claim(request(queue("a"), limit=500)):
        await scene.settle(*(completed(each) for each in claimed))
    full = scene.watch("SELECT pg_relation_size('queuert_ready')")[0]
    await scene.run(scene.operations.vacuum())
    assert full > 0
    assert scene.watch("SELECT pg_relation_size('queuert_ready')") == [0], "it is empty, and small again"
    assert scene.watch("SELECT count(*) FROM queuert_job") == [2_000]


def test_tables_say_how_they_want_to_be_kept(postgres: Databases) -> None:
    with postgres.fresh(template=template()) as url, psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT relname, array_to_string(reloptions, ' ') FROM pg_class WHERE relname LIKE 'queuert%' "
            "AND relkind = 'r' AND reloptions IS NOT NULL"
        ).fetchall()
    options: dict[str, str] = dict(found)
    assert "fillfactor=40" in options["queuert_job"]
    assert "fillfactor=50" in options["queuert_running"]
    for table in ("queuert_ready", "queuert_running"):
        assert "autovacuum_vacuum_scale_factor=0 " in options[table] + " ", "by number, not by share: they are small"


@pytest.fixture(scope="module")
def crowded() -> Iterator[psycopg.Connection[Any]]:
    """Thirty thousand jobs: most completed, some of each other status."""
    with server().fresh(template=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("""
            INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority,
                created_at, scheduled_at)
            SELECT id, type_name, id, type_name, 0, '{}', status,
                CASE WHEN status NOT IN ('pending', 'completed') THEN status END, 100, now(), now()
            FROM (
                SELECT md5(n::text)::uuid AS id, 't' || n / 60 % 3 AS type_name,
                    (ARRAY['blocked', 'failed', 'cancelled', 'expired', 'pending'])[n % 60 - 54] AS status
                FROM generate_series(1, 30000) AS n
            ) AS made (id, type_name, given) CROSS JOIN LATERAL (SELECT coalesce(given, 'completed')) AS said (status)
        """)
        connection.execute(
            "INSERT INTO queuert_running SELECT id, 1, type_name, 'w', now(), now() FROM queuert_job "
            "WHERE status = 'pending'"
        )
        connection.execute("VACUUM (ANALYZE)")
        yield connection


SOME = tuple(f"{number:08x}-0000-0000-0000-000000000000" for number in range(40))

JOB_FILTERS: dict[str, tuple[JobFilter, str]] = {
    "none": (JobFilter(), "queuert_job_pkey"),
    "ids": (JobFilter(ids=SOME), "queuert_job_pkey"),
    "type": (JobFilter(type_name="t1"), "queuert_job_type"),
    "blocked": (JobFilter(status="blocked"), "queuert_job_resting"),
    "failed": (JobFilter(status="failed"), "queuert_job_resting"),
    "cancelled": (JobFilter(status="cancelled"), "queuert_job_resting"),
    "expired": (JobFilter(status="expired"), "queuert_job_resting"),
    "type and failed": (JobFilter(type_name="t1", status="failed"), "queuert_job_resting_type"),
    "running": (JobFilter(status="running"), "queuert_running_pkey"),
}

CHAIN_FILTERS: dict[str, tuple[ChainFilter, str]] = {
    "none": (ChainFilter(), "queuert_job_chain"),
    "ids": (ChainFilter(ids=SOME), "queuert_job_pkey"),
    "type": (ChainFilter(type_name="t1"), "queuert_job_first"),
    "failed": (ChainFilter(status="failed"), "queuert_job_resting"),
    "type and failed": (ChainFilter(type_name="t1", status="failed"), "queuert_job_resting_chain"),
    "running": (ChainFilter(status="running"), "queuert_running_pkey"),
}


def indexes(plan: dict[str, Any]) -> set[str]:
    found = {plan["Index Name"]} if "Index Name" in plan else set()
    return found.union(*(indexes(below) for below in plan.get("Plans", ())))


def scans(plan: dict[str, Any]) -> set[str]:
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return found.union(*(scans(below) for below in plan.get("Plans", ())))


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", JOB_FILTERS)
def test_jobs_are_listed_along_an_index(crowded: psycopg.Connection[Any], name: str, order: Any) -> None:
    where, index = JOB_FILTERS[name]
    for after in (None, "80000000-0000-0000-0000-000000000000"):
        command = next(OPERATIONS.list_jobs(where, PageRequest(50, after, order)))
        plan = explain(crowded, command.text, command.values)
        assert index in indexes(plan)
        assert "queuert_job" not in scans(plan)
        assert pages(plan) < 50 * 10, "a page of fifty costs fifty jobs"


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", CHAIN_FILTERS)
def test_chains_are_listed_along_an_index(crowded: psycopg.Connection[Any], name: str, order: Any) -> None:
    where, index = CHAIN_FILTERS[name]
    for after in (None, "80000000-0000-0000-0000-000000000000"):
        command = next(OPERATIONS.list_chains(where, PageRequest(50, after, order)))
        plan = explain(crowded, command.text, command.values)
        assert index in indexes(plan)
        assert "queuert_job" not in scans(plan)
        assert pages(plan) < 50 * 20, "a page of fifty costs fifty chains"


def test_figures_do_not_look_at_completed_jobs(crowded: psycopg.Connection[Any]) -> None:
    command = next(PostgresOperations().stats())
    plan = explain(crowded, command.text, command.values)
    assert "queuert_job" not in scans(plan)
    assert indexes(plan) & {"queuert_job_resting", "queuert_job_resting_type", "queuert_job_resting_chain"}
