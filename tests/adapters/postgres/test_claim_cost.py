"""What a claim costs depends on what it claims, not on what else is stored. Counted in pages, also inside functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.scenes import explain, pages
from tests.support.postgres import Databases, flush_statistics, template

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.ports.program import Program
from queuert.records.model import Claimed, ClaimRequest, Lease, Settlement
from queuert_conformance.state.build import completed, continued, key, new_job, next_job, queue, request, waiting_for

OPERATIONS = PostgresOperations()

JOBS = """
    INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority,
        created_at, scheduled_at, completed_at, output)
    SELECT gen_random_uuid(), {type_name}, gen_random_uuid(), {type_name}, 0, '{{}}', {status}, {resting}, {priority},
        now(), {time}, CASE WHEN {status} = 'completed' THEN now() END, 'null'
    FROM generate_series(1, {number})
"""


def fill(connection: psycopg.Connection[Any], number: int, **values: str) -> None:
    """Many rows of one kind, past our functions: they would take minutes."""
    given = {"type_name": "'a'", "status": "'pending'", "resting": "NULL", "priority": "100", "time": "now()", **values}
    connection.execute(JOBS.format(number=number, **given).encode())


KINDS: dict[str, Callable[[psycopg.Connection[Any], int], None]] = {}


def kind(name: str) -> Callable[[Any], Any]:
    return lambda function: KINDS.setdefault(name, function)


@kind("completed")
def _completed(connection: psycopg.Connection[Any], number: int) -> None:
    fill(connection, number, status="'completed'")


@kind("future, more urgent")
def _future(connection: psycopg.Connection[Any], number: int) -> None:
    fill(connection, number, priority="1", time="now() + interval '1 day'")
    connection.execute(
        "INSERT INTO queuert_later (type_name, scheduled_at, id, priority) "
        "SELECT type_name, scheduled_at, id, priority FROM queuert_job WHERE scheduled_at > now()"
    )


@kind("blocked")
def _blocked(connection: psycopg.Connection[Any], number: int) -> None:
    fill(connection, number, status="'blocked'", resting="'blocked'", priority="1")


@kind("of foreign types")
def _foreign(connection: psycopg.Connection[Any], number: int) -> None:
    fill(connection, number, type_name="'foreign'", priority="1")
    connection.execute(
        "INSERT INTO queuert_ready (type_name, priority, scheduled_at, id) "
        "SELECT type_name, priority, scheduled_at, id FROM queuert_job WHERE type_name = 'foreign'"
    )


@pytest.fixture
def connection(postgres: Databases) -> Iterator[psycopg.Connection[Any]]:
    with (
        postgres.fresh(template=template()) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        yield connection


def cost(connection: psycopg.Connection[Any], program: Program[Any]) -> int:
    """The pages that the operation touches; it is undone."""
    command = next(program)
    # The first time a session also reads the catalogue; and plans must be those that are kept.
    plan: dict[str, Any] = {}
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            plan = explain(connection, command.text, command.values)
    return pages(plan)


REQUESTS: dict[str, ClaimRequest] = {
    "one type": request(queue("a"), limit=10),
    "two types": request(queue("a", "b"), limit=10),
    "capped": request(queue("a", "b", max_concurrency=50), limit=10, cluster_cap=50),
    "nothing to claim": request(queue("b", "c"), limit=10),
}


def measure(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """The cost of each operation, with the same few jobs ready and running."""
    connection.execute("VACUUM (ANALYZE)")
    found = {f"claim, {name}": cost(connection, OPERATIONS.claim(wanted)) for name, wanted in REQUESTS.items()}
    found["next_available_in"] = cost(connection, OPERATIONS.next_available_in(["a", "b", "c"]))
    for name, ending in {"settle": 10, "settle, mixed": 5, "settle, continued": 0}.items():
        # Without what was tried before: on a page full of that there is no room for a job's new version.
        connection.execute("VACUUM")
        with connection.transaction(force_rollback=True):
            claimed: list[Claimed] = carry_out(connection, OPERATIONS.claim(REQUESTS["one type"])).jobs
            assert len(claimed) == 10
            for _ in range(2):
                nexts = [continued(each, next_job(each.job)) for each in claimed[ending:]]
                settle = next(OPERATIONS.settle([completed(each) for each in claimed[:ending]] + nexts))
                with connection.transaction(force_rollback=True):
                    found[name] = pages(explain(connection, settle.text, settle.values))
    return found


def ready_jobs(connection: psycopg.Connection[Any]) -> None:
    command = next(OPERATIONS.create_jobs([new_job("a") for _ in range(20)]))
    psycopg.RawCursor(connection).execute(command.text, command.values)


def allowed(name: str, empty: int, levels: int) -> int:
    """A page more for each level, each time an index is gone down: for each of ten jobs, and for some types."""
    looks = 6
    if name.startswith("claim") and "nothing" not in name:
        looks += 10  # the job itself
    if name.startswith("settle"):
        looks += 20  # to lock it and to end it
    if name in ("settle, continued", "settle, mixed"):
        looks += 40  # to see that the next id is free, and to enter it into three indexes
    return empty + levels * looks


def check(connection: psycopg.Connection[Any], number: int, levels: int, fill_kind: Callable[..., None]) -> None:
    """`levels`: how many the indexes grow by, from one page to so many entries."""
    ready_jobs(connection)
    before = measure(connection)
    fill_kind(connection, number)
    after = measure(connection)
    assert {name: after[name] for name in after if after[name] > allowed(name, before[name], levels)} == {}, before


@pytest.mark.parametrize("fill_kind", KINDS.values(), ids=KINDS)
def test_ten_thousand_other_jobs(connection: psycopg.Connection[Any], fill_kind: Callable[..., None]) -> None:
    """They take hundreds of pages, and an index of them one level: who reads them all is found out."""
    check(connection, 10_000, 1, fill_kind)


@pytest.mark.soak
@pytest.mark.parametrize("fill_kind", KINDS.values(), ids=KINDS)
def test_a_million_other_jobs(connection: psycopg.Connection[Any], fill_kind: Callable[..., None]) -> None:
    check(connection, 1_000_000, 2, fill_kind)


def test_plans_that_were_made_when_the_tables_were_empty(connection: psycopg.Connection[Any]) -> None:
    """A session keeps them. Without ANALYZE nothing makes it plan again, and a scan would be one for hours."""
    for table in ("job", "ready", "later"):
        connection.execute(f"ALTER TABLE queuert_{table} SET (autovacuum_enabled = off)".encode())
    source = new_job("a")

    def everything() -> dict[str, Program[Any]]:
        ids = [source.id]
        leases = [Lease(source.id, 1, 60.0)]
        return {
            "create": OPERATIONS.create_jobs([new_job("c", dedup=key("k")), new_job("c", blockers=behind)]),
            **{f"claim, {name}": OPERATIONS.claim(wanted) for name, wanted in REQUESTS.items()},
            "renew": OPERATIONS.renew(leases),
            "reap": OPERATIONS.reap(["a"], [], 10, b"{}"),
            "settle": OPERATIONS.settle([Settlement(job_id=source.id, token=1, status="completed", output=b"1")]),
            "settle, continued": OPERATIONS.settle([continuing]),
            "take over": OPERATIONS.settle([completed(source.id)]),
            "trigger": OPERATIONS.trigger(ids),
            "retry": OPERATIONS.retry(ids),
            "get_jobs": OPERATIONS.get_jobs(ids),
            "hold": OPERATIONS.hold(source.id, 1),
            "get_chains": OPERATIONS.get_chains(ids),
            "get_chains, locked": OPERATIONS.get_chains(ids, lock=True),
            "cancel": OPERATIONS.cancel_chains(ids, cascade=True),
            "delete": OPERATIONS.delete_chains(ids, cascade=True),
            "next_available_in": OPERATIONS.next_available_in(["a", "b"]),
        }

    behind = waiting_for(source.id, chain_type="a")
    following = new_job("a")
    continuing = Settlement(job_id=source.id, token=1, status="completed", continuation=following)
    command = next(OPERATIONS.create_jobs([source]))
    psycopg.RawCursor(connection).execute(command.text, command.values)
    connection.execute(
        "INSERT INTO queuert_running SELECT id, 1, type_name, 'w', now() + interval '1 hour', now() FROM queuert_ready"
    )
    connection.execute("DELETE FROM queuert_ready")
    for _ in range(3):
        for program in everything().values():
            cost(connection, program)
    fill(connection, 5_000)
    connection.execute(
        "INSERT INTO queuert_ready (type_name, priority, scheduled_at, id) "
        "SELECT type_name, priority, scheduled_at, id FROM queuert_job WHERE input::text = '{}'"
    )
    _future(connection, 5_000)
    # And far behind them, where nothing is looked for, what makes each table large.
    many = "FROM generate_series(1, 25000)"
    for text in (
        f"INSERT INTO queuert_ready SELECT 'a', 999, now(), gen_random_uuid() {many}",
        f"INSERT INTO queuert_later SELECT 'a', now() + interval '2 days', gen_random_uuid(), 999 {many}",
        f"INSERT INTO queuert_key SELECT 'a', gen_random_uuid()::text, gen_random_uuid() {many}",
        f"INSERT INTO queuert_blocker SELECT gen_random_uuid(), 1, gen_random_uuid() {many}",
    ):
        connection.execute(text.encode())
    tables = ["queuert_job", "queuert_ready", "queuert_later", "queuert_key", "queuert_blocker"]
    sizes = connection.execute("SELECT pg_relation_size(each) / 8192 FROM unnest(%s::regclass[]) AS each", [tables])
    assert min(size for (size,) in sizes) > 180
    after = {name: cost(connection, program) for name, program in everything().items()}
    assert {name: number for name, number in after.items() if number > 180} == {}


@pytest.mark.parametrize("priorities", [(100,), (100, 5)], ids=["plain", "general"])
def test_starting_many_in_a_session_that_planned_on_empty_tables(
    connection: psycopg.Connection[Any], priorities: tuple[int, ...]
) -> None:
    """Tables that were analysed while they were empty look as if reading all of one were the cheapest way."""
    connection.execute("VACUUM (ANALYZE)")
    for _ in range(6):
        jobs = [new_job("a", priority=priorities[number % len(priorities)]) for number in range(200)]
        command = next(OPERATIONS.create_jobs(jobs))
        psycopg.RawCursor(connection).execute(command.text, command.values)
    flush_statistics(connection)
    read = connection.execute(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'queuert_job'"
    ).fetchone()
    assert read == (0,), "no entry of an index is read: every id is looked up, and is not there"


def carry_out(connection: psycopg.Connection[Any], program: Program[Any]) -> Any:
    command = next(program)
    rows = psycopg.RawCursor(connection).execute(command.text, command.values).fetchall()
    with pytest.raises(StopIteration) as done:
        program.send(rows)
    return done.value.value


def entries_read(connection: psycopg.Connection[Any]) -> int:
    flush_statistics(connection)
    found = connection.execute(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'queuert_job'"
    ).fetchone()
    return int(found[0]) if found else 0


def test_completing_many_in_a_session_that_planned_on_empty_tables(connection: psycopg.Connection[Any]) -> None:
    """Each claim and each completion looks up its own jobs, and reads nothing of the others, however many there are."""

    connection.execute("VACUUM (ANALYZE)")
    read: list[int] = []
    for _ in range(6):
        carry_out(connection, OPERATIONS.create_jobs([new_job("a") for _ in range(400)]))
        before = entries_read(connection)
        claimed = carry_out(connection, OPERATIONS.claim(request(queue("a", limit=300), limit=200))).jobs
        carry_out(connection, OPERATIONS.settle([completed(each) for each in claimed]))
        read.append(entries_read(connection) - before)
    assert max(read) <= 2 * 200, read


def test_continuing_many_in_a_session_that_planned_on_empty_tables(connection: psycopg.Connection[Any]) -> None:
    """The same for those that go on: the ids of the next jobs are looked up, and are not there."""
    connection.execute("VACUUM (ANALYZE)")
    read: list[int] = []
    carry_out(connection, OPERATIONS.create_jobs([new_job("a") for _ in range(400)]))
    for _ in range(6):
        before = entries_read(connection)
        claimed = carry_out(connection, OPERATIONS.claim(request(queue("a", limit=300), limit=200))).jobs
        group = [continued(each, next_job(each.job)) for each in claimed[:150]]
        group += [completed(each) for each in claimed[150:]]
        carry_out(connection, OPERATIONS.settle(group))
        read.append(entries_read(connection) - before)
        carry_out(connection, OPERATIONS.create_jobs([new_job("a") for _ in range(200)]))
    assert max(read) <= 2 * 200, read
