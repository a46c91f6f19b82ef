"""How rows are stored: what is updated in place, what listings walk along, and what vacuum leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.adapters.postgres.scenes import Scene, explain, open_scene, pages
from tests.support.postgres import Databases, server, template

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import Lease
from queuert_conformance.state.build import completed, new_job, put_back, queue, request, waiting_for

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
    vacuumed = await scene.run(scene.operations.vacuum())
    assert vacuumed.gained >= full > 0
    assert scene.watch("SELECT pg_relation_size('queuert_ready')") == [0], "it is empty, and small again"
    assert scene.watch("SELECT count(*) FROM queuert_job") == [2_000]


STORED = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"


async def test_an_installation_knows_all_its_tables(scene: Scene) -> None:
    """Those that the migrations have made. Only partitions may come later."""
    known = [name.partition(".")[2].strip('"') for name in OPERATIONS.installation.tables()]
    assert sorted(known) == sorted(scene.watch(f"{STORED} AND relname !~ '_[0-9]{{4}}_[0-9]{{2}}$'".encode()))


async def test_vacuum_and_the_doctor_include_all_tables(scene: Scene) -> None:
    scene.watch(
        "CREATE TABLE queuert_archive_2001_01 PARTITION OF queuert_archive "
        "FOR VALUES FROM ('2001-01-01') TO ('2001-02-01')"
    )
    scene.watch(
        "INSERT INTO queuert_archive SELECT gen_random_uuid(), 'a', 'completed', at, at, at, 'here' FROM "
        "generate_series(timestamptz '2001-01-02', '2001-02-02', '1 minute') AS at"
    )
    stored = sorted(scene.watch(f"{STORED} AND relkind = 'r'".encode()))
    around = await scene.run(scene.operations.surroundings(full=False))
    assert [table.name for table in around.tables] == stored
    scene.watch("DELETE FROM queuert_archive")
    vacuumed = await scene.run(scene.operations.vacuum())
    assert vacuumed.gained > 0, "the partitions count"
    scene.watch.flush_statistics()
    counted = "SELECT relname FROM pg_stat_user_tables WHERE vacuum_count > 0 ORDER BY relname"
    assert sorted(scene.watch(counted)) == stored


async def test_vacuum_begins_with_the_tables_that_have_few_rows(scene: Scene) -> None:
    scene.watch(
        "INSERT INTO queuert_audit (at, action, target) "
        "SELECT now(), 'pause', n::text FROM generate_series(1, 500) AS n"
    )
    scene.watch.flush_statistics()
    await scene.run(scene.operations.vacuum())
    scene.watch.flush_statistics()
    order = scene.watch("SELECT relname FROM pg_stat_user_tables WHERE vacuum_count > 0 ORDER BY last_vacuum")
    assert order[-1] == "queuert_audit"


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


MIDDLE = "80000000-0000-0000-0000-000000000000"
SOME = tuple(f"{number:08x}-0000-0000-0000-000000000000" for number in range(40))

START = datetime(2030, 1, 1, tzinfo=UTC)

JOB_FILTERS: dict[str, JobFilter] = {
    "none": JobFilter(),
    "ids": JobFilter(job_ids=SOME),
    "chains": JobFilter(chain_ids=SOME),
    "type": JobFilter(types=("t1",)),
    "types": JobFilter(types=("t1", "t2")),
    "blocked": JobFilter(statuses=("blocked",)),
    "failed": JobFilter(statuses=("failed",)),
    "cancelled": JobFilter(statuses=("cancelled",)),
    "expired": JobFilter(statuses=("expired",)),
    "type and failed": JobFilter(types=("t1",), statuses=("failed",)),
    "types and statuses": JobFilter(types=("t1", "t2"), statuses=("failed", "expired")),
    "chain type and failed": JobFilter(chain_types=("t1",), statuses=("failed",)),
    "running": JobFilter(statuses=("running",)),
    "pending": JobFilter(statuses=("pending",)),
    "failed and running": JobFilter(statuses=("failed", "running")),
}

CHAIN_FILTERS: dict[str, ChainFilter] = {
    "none": ChainFilter(),
    "ids": ChainFilter(chain_ids=SOME),
    "jobs": ChainFilter(job_ids=SOME),
    "type": ChainFilter(chain_types=("t1",)),
    "types": ChainFilter(chain_types=("t1", "t2")),
    "failed": ChainFilter(statuses=("failed",)),
    "type and failed": ChainFilter(chain_types=("t1",), statuses=("failed",)),
    "current type and failed": ChainFilter(types=("t1",), statuses=("failed",)),
    "running": ChainFilter(statuses=("running",)),
}

TESTED: dict[str, JobFilter] = {
    "jobs by chain type": JobFilter(chain_types=("none",)),
    "jobs by creation": JobFilter(created_from=START),
    "jobs by end": JobFilter(ended_before=START),
    "completed jobs by end": JobFilter(statuses=("completed",), ended_before=START),
    "completed jobs by type and creation": JobFilter(types=("t1", "t2"), statuses=("completed",), created_from=START),
    "failed jobs by error": JobFilter(statuses=("failed",), errors=("none",)),
    "jobs by error": JobFilter(errors=("none",)),
    "completed chains by type": ChainFilter(statuses=("completed",), chain_types=("none",)),
    "chains by creation": ChainFilter(created_from=START),
    "chains by type and creation": ChainFilter(chain_types=("t1",), created_from=START),
    "chains by end": ChainFilter(ended_before=START),
    "chains by the type of their current jobs": ChainFilter(types=("t1",)),
    "failed chains by creation": ChainFilter(statuses=("failed",), created_from=START),
}


def indexes(plan: dict[str, Any]) -> set[str]:
    found = {plan["Index Name"]} if "Index Name" in plan else set()
    return found.union(*(indexes(below) for below in plan.get("Plans", ())))


def scans(plan: dict[str, Any]) -> set[str]:
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return found.union(*(scans(below) for below in plan.get("Plans", ())))


def _listing(where: JobFilter, page: PageRequest) -> Any:
    return OPERATIONS.list_chains(where, page) if isinstance(where, ChainFilter) else OPERATIONS.list_jobs(where, page)


def plans(connection: psycopg.Connection[Any], where: JobFilter, page: PageRequest) -> Iterator[dict[str, Any]]:
    """The plan for these values, and the one that a prepared statement has for all values."""
    command = next(_listing(where, page))
    yield explain(connection, command.text, command.values)
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute(f"PREPARE listing AS {command.text}".encode())
    values = sql.SQL(", ").join(map(sql.Literal, command.values))
    call = sql.SQL("EXECUTE listing") + (sql.SQL("({})").format(values) if command.values else sql.SQL(""))
    yield explain(connection, call.as_string(connection))
    connection.execute("DEALLOCATE listing")
    connection.execute("RESET plan_cache_mode")


WALKS = {
    "typed_jobs": "ARRAY['{}']",
    "first_jobs": "ARRAY['{}']",
    "resting_jobs": "ARRAY['{}']",
    "resting_types": "ARRAY['{}'], ARRAY['failed']",
    "resting_chains": "ARRAY['{}'], ARRAY['failed']",
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_for_what_is_not_there_reads_nothing(
    crowded: psycopg.Connection[Any], name: str, descending: bool
) -> None:
    """Its index has no such rows. Along another one, it would read all of them."""
    function = OPERATIONS.installation.words()[name]
    for value in ("none", "failed" if name == "resting_jobs" else "t1"):
        call = f"SELECT * FROM {function}({WALKS[name].format(value)}, '{MIDDLE}', {descending}, 50)"
        explain(crowded, call)  # the catalogue is read once
        plan = explain(crowded, call)
        assert plan["Actual Rows"] == (0 if value == "none" else 50)
        assert pages(plan) < (20 if value == "none" else 80)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_jobs_by_type_are_found_by_either_index(postgres: Databases, order: Any) -> None:
    """A large table keeps the index of all jobs, instead of the one without first jobs."""
    with postgres.fresh(template=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, priority, "
            "created_at, scheduled_at) SELECT gen_random_uuid(), 't' || n % 2, gen_random_uuid(), 't0', n % 3, '{}', "
            "'pending', 100, now(), now() FROM generate_series(1, 300) AS n"
        )
        names = [name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relkind = 'i'")]
        assert "queuert_job_next" in names
        assert "queuert_job_type" not in names

        def found() -> list[str]:
            ids: list[str] = []
            after = None
            while True:
                command = next(OPERATIONS.list_jobs(JobFilter(types=("t1",)), PageRequest(7, after, order)))
                rows = psycopg.RawCursor(connection).execute(command.text, command.values).fetchall()
                if not rows:
                    return ids
                ids += [str(row[2]) for row in rows]
                after = ids[-1]

        new = found()
        connection.execute("DROP INDEX queuert_job_next")
        connection.execute("CREATE INDEX queuert_job_type ON queuert_job (type_name, id)")
        assert found() == new
    assert len(new) == 150
    assert new == sorted(new, reverse=order == "desc")


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", JOB_FILTERS)
def test_jobs_are_listed_along_an_index(crowded: psycopg.Connection[Any], name: str, order: Any) -> None:
    where = JOB_FILTERS[name]
    for after in (None, f"{MIDDLE}/0" if where.by_chain else MIDDLE):
        for plan in plans(crowded, where, PageRequest(50, after, order)):
            assert "queuert_job" not in scans(plan)
            assert pages(plan) < 50 * 10, "a page of fifty costs fifty jobs"


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", CHAIN_FILTERS)
def test_chains_are_listed_along_an_index(crowded: psycopg.Connection[Any], name: str, order: Any) -> None:
    where = CHAIN_FILTERS[name]
    for after in (None, MIDDLE):
        for plan in plans(crowded, where, PageRequest(50, after, order)):
            assert "queuert_job" not in scans(plan)
            assert pages(plan) < 50 * 20, "a page of fifty costs fifty chains"


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("name", TESTED)
def test_a_page_without_matches_reads_so_many_rows_at_most(
    crowded: psycopg.Connection[Any], name: str, order: Any
) -> None:
    for after in (None, MIDDLE):
        for plan in plans(crowded, TESTED[name], PageRequest(50, after, order, examine=300)):
            assert "queuert_job" not in scans(plan)
            assert pages(plan) < 300 * 15, "three hundred rows, each with what is tested beside it"


@pytest.fixture(scope="module")
def backlog() -> Iterator[psycopg.Connection[Any]]:
    """Twenty thousand pending jobs, whose ids are between those of older and of newer jobs that have ended. What the
    planner knows is from before."""
    with server().fresh(template=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("""
            INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, priority,
                created_at, scheduled_at, lane)
            SELECT id, type_name, id, type_name, 0, '{}', status, 100, now(), now(),
                CASE WHEN status = 'pending' AND n % 10 = 0 THEN 'l' END
            FROM (
                SELECT n, lpad(to_hex(n), 32, '0')::uuid AS id,
                    CASE WHEN n = 25000 THEN 'rare' ELSE 't' || n % 3 END AS type_name,
                    CASE WHEN n BETWEEN 10001 AND 30000 THEN 'pending' ELSE 'completed' END AS status
                FROM generate_series(1, 40000) AS n
            ) AS made
        """)
        where = "FROM queuert_job WHERE status = 'pending' AND ('x' || right(id::text, 8))::bit(32)::integer % 10"
        connection.execute(
            f"INSERT INTO queuert_later SELECT type_name, scheduled_at, id, priority {where} = 1".encode()
        )
        connection.execute(
            f"INSERT INTO queuert_line SELECT lane, priority, scheduled_at, id, type_name {where} = 0".encode()
        )
        connection.execute(
            f"INSERT INTO queuert_ready SELECT type_name, priority, scheduled_at, id {where} > 1".encode()
        )
        connection.execute(
            "INSERT INTO queuert_running SELECT id, 1, 't0', 'w', now(), now() FROM queuert_job LIMIT 10"
        )
        yield connection


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize(
    "more", [{}, {"types": ("t1",)}, {"types": ("rare",)}, {"types": ("none", "t1", "t2")}], ids=str
)
@pytest.mark.parametrize("statuses", [("pending",), ("pending", "failed", "running")], ids=str)
@pytest.mark.parametrize("kind", [JobFilter, ChainFilter])
def test_a_page_of_pending_jobs_does_not_read_all_of_them(
    backlog: psycopg.Connection[Any], kind: Any, statuses: Any, more: dict[str, Any], order: Any
) -> None:
    where = kind(statuses=statuses, **more)
    for number in (None, 20_000):
        after = None if number is None else f"{0:08x}-0000-0000-0000-{number:012x}"
        for plan in plans(backlog, where, PageRequest(50, after, order)):
            assert "queuert_job" not in scans(plan)
            assert pages(plan) < 50 * 20, "a page of fifty costs fifty jobs"
            if "rare" not in more.get("types", ()):
                assert plan["Actual Rows"] == 50


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pending_jobs_of_all_tables_and_types_are_in_order(backlog: psycopg.Connection[Any], order: Any) -> None:
    command = next(OPERATIONS.list_jobs(JobFilter(statuses=("pending",)), PageRequest(50, None, order)))
    rows = psycopg.RawCursor(backlog).execute(command.text, command.values).fetchall()
    expected = [10_001 + number if order == "asc" else 30_000 - number for number in range(50)]
    assert [int(str(row[2]).replace("-", ""), 16) for row in rows] == expected


@pytest.fixture(scope="module")
def million() -> Iterator[psycopg.Connection[Any]]:
    """A million jobs whose ids are in the order of their creation. One type is rare, and so is one status."""
    with server().fresh(template=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("""
            INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority,
                created_at, scheduled_at, completed_at, last_error)
            SELECT id, type_name, id, type_name, 0, '{}', status,
                CASE WHEN status NOT IN ('pending', 'completed') THEN status END, 100, made, made,
                CASE WHEN status NOT IN ('pending', 'blocked') THEN made END,
                CASE WHEN status = 'failed' THEN '{"code": "E"}'::json END
            FROM (
                SELECT lpad(to_hex(n), 32, '0')::uuid, CASE WHEN n % 100000 = 0 THEN 'rare' ELSE 't' || n % 4 END,
                    CASE WHEN n % 50000 = 7 THEN 'expired' WHEN n % 50 = 3 THEN 'failed' ELSE 'completed' END,
                    '2020-01-01Z'::timestamptz + n * interval '1 second'
                FROM generate_series(1, 1000000) AS n
            ) AS made (id, type_name, status, made)
        """)
        connection.execute("VACUUM (ANALYZE)")
        yield connection


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_no_filter_reads_a_million_jobs(million: psycopg.Connection[Any], order: Any) -> None:
    """Whatever is asked for: also what is rare, or not there at all."""
    some = f"{500_000:032x}"
    middle = f"{some[:8]}-{some[8:12]}-{some[12:16]}-{some[16:20]}-{some[20:]}"
    names: list[tuple[str, ...] | None] = [None, ("t1",), ("rare",), ("none",), ("t1", "t2", "rare")]
    statuses: list[Any] = [None, ("completed",), ("failed",), ("expired",), ("cancelled",), ("failed", "expired")]
    tested: list[dict[str, Any]] = [
        {}, {"errors": ("F",)}, {"created_from": START}, {"ended_before": datetime(2020, 1, 1, tzinfo=UTC)},
        {"chain_types": ("rare",)}, {"job_ids": (middle,)}, {"chain_ids": (middle,)},
    ]  # fmt: skip
    most: dict[str, int] = {}
    for types, status, more, after in product(names, statuses, tested, (None, middle)):
        for kind in (JobFilter, ChainFilter):
            where = kind(types=types, statuses=status, **more)
            place = f"{after}/0" if after is not None and kind is JobFilter and where.by_chain else after
            if next(_listing(where, PageRequest(50)), None) is None:
                continue  # nothing can match
            for plan in plans(million, where, PageRequest(50, place, order)):
                most[f"{where} after {after}"] = pages(plan)
                assert "queuert_job" not in scans(plan), where
    worst = sorted(most, key=lambda each: most[each])[-5:]
    # Two thousand rows are read at most. For each there is a look into the index, one at the job, and
    # one at what is tested beside it.
    assert most[worst[-1]] < 2_000 * 12, {each: most[each] for each in worst}


def test_figures_do_not_look_at_completed_jobs(crowded: psycopg.Connection[Any]) -> None:
    command = next(PostgresOperations().stats())
    plan = explain(crowded, command.text, command.values)
    assert "queuert_job" not in scans(plan)
    assert indexes(plan) & {"queuert_job_resting", "queuert_job_resting_type", "queuert_job_resting_chain"}
