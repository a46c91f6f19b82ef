"""The `.sql` files fit the schema, run by the indexes that they name, and cost what they should."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.adapters.sqlite_support import ERROR, START, Sqlite, claim_of, completed, job, new_id, next_job, waiting_for

from queuert.adapters.sql.statement import load_statements, split_statements, substitute
from queuert.adapters.sqlite.operations.base import array, statements_for
from queuert.errors import InvalidArgument
from queuert.records.dedup import Dedup
from queuert.records.model import NewJob, QueueLimit, Settlement, When

NAMES = sorted(statements_for("queuert_"))
PARAMETER = re.compile(r":(\w+)")
LATER = When(at=START + timedelta(days=1))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sqlite]:
    database = Sqlite(tmp_path / "jobs.db")
    yield database
    database.adapter.close()


def test_every_statement_fits_the_schema_and_says_whether_it_writes(sqlite: Sqlite) -> None:
    with sqlite.own_connection() as connection:
        connection.execute("CREATE TABLE queuert_migration (version INTEGER)")  # as version 2 left it
        for name in NAMES:
            text = statements_for("queuert_")[name]
            parameters = dict.fromkeys(PARAMETER.findall(text.text))
            opcodes = connection.execute(f"EXPLAIN {text.text}", parameters).fetchall()
            if text.text.startswith(("PRAGMA", "CREATE")):  # such a table exists already
                continue
            writes = any(opcode == "Transaction" and p2 for _, opcode, _, p2, *_ in opcodes)
            assert writes == text.writes, name


# What may be scanned: lists of parameters and what was made of them in passing. Tables never.
PASSING = re.compile(
    r"SCAN (asked|each|lease|of_type|one|taken|item|freed|completed|doomed|edge|held|known|json_each|walk|waiting|"
    r"CONSTANT ROW|\(subquery-\d+\))(?!\w)"
)

# A scan of a whole index is right where that index holds just what is wanted. There are few workers.
WHOLE_INDEXES = {
    "examine.file_size": {
        f"SCAN pragma_{name} VIRTUAL TABLE INDEX 0:" for name in ("page_count", "page_size", "freelist_count")
    },
    "history.claims_of": {"SCAN job USING INDEX queuert_job_running"},
    "release.unknown": {"SCAN claimed USING INDEX queuert_job_running"},
    "claim.running": {"SCAN queuert_job USING INDEX queuert_job_running"},
    "workers.database": {"SCAN pragma_database_list VIRTUAL TABLE INDEX 0:"},
    "workers.unseen": {"SCAN queuert_worker", "SCAN queuert_job USING INDEX queuert_job_running"},
    "workers.held": {"SCAN queuert_job USING INDEX queuert_job_running"},
    "workers.forget": {"SCAN queuert_job USING INDEX queuert_job_running"},
    "workers.list": {"SCAN queuert_worker"},
    "workers.processes": {"SCAN queuert_worker"},
    # Of each index, the first entry, to find the first type. Then the types that were found.
    "stats.counts": {
        "SCAN queuert_job USING COVERING INDEX queuert_job_type_status",
        "SCAN queuert_job USING INDEX queuert_job_running",
        "SCAN queuert_job USING INDEX queuert_job_ready",
        "SCAN queuert_job USING INDEX queuert_job_scheduled",
        "SCAN queuert_job USING INDEX queuert_job_line_type",
        "SCAN kind",
        "SCAN wanted",
        "SCAN level",
        "SCAN ready_type",
    },
    # The workers, what they tell, what is paused or running, and what the statement itself has read.
    "explain.circumstances": {
        "SCAN worker",
        "SCAN pause",
        "SCAN own_queue VIRTUAL TABLE INDEX 3:",
        "SCAN own VIRTUAL TABLE INDEX 3:",
        "SCAN queue VIRTUAL TABLE INDEX 3:",
        "SCAN kind VIRTUAL TABLE INDEX 3:",
        "SCAN queuert_job USING INDEX queuert_job_running",
        "SCAN shown",
        "SCAN busy",
        "SCAN ahead",
    },
    # A table that is almost always empty, and of which one row is read.
    "unblocking.item": {"SCAN queuert_unblocking"},
    "unblocking.more": {"SCAN queuert_unblocking"},
    "next_available_in.earliest": {"SCAN queuert_unblocking", "SCAN queuert_pause"},
    # The same, and all that is paused is wanted.
    "pausing.list": {"SCAN queuert_pause"},
    "pausing.clean": {"SCAN queuert_pause"},
    # Those that workers declare, and only these are in the index.
    "scheduling.undeclared": {"SCAN s USING INDEX queuert_schedule_declared"},
    # One row for each type, and one row at all.
    "prune.policies": {"SCAN queuert_retention"},
    "prune.state": {
        "SCAN CONSTANT ROW",
        "SCAN (subquery-1)",
        "SCAN (subquery-3)",
        "SCAN queuert_kept USING COVERING INDEX queuert_kept_due",
        "SCAN queuert_pruning LEFT-JOIN",
    },
    # The chain types that have keys, found one by one along the index.
    "read.keys": {"SCAN kind"},
    # The page that was read: at most a thousand rows.
    "examine.blocked": {"SCAN job", "SCAN page"},
    "examine.jobs": {"SCAN job"},
    "examine.count": {"SCAN found"},
    # What code declares; running jobs; the types that have waiting jobs with a limit.
    "limits.known": {"SCAN queuert_limit_declared"},
    "limits.running": {"SCAN queuert_job USING INDEX queuert_job_running"},
    "examine.running_groups": {"SCAN queuert_job USING INDEX queuert_job_running"},
}

SERVED_BY = {
    "claim.promote": "SEARCH job USING INDEX queuert_job_scheduled (type_name=? AND scheduled_at<?)",
    "claim.candidates": "SEARCH head USING INDEX queuert_job_ready (type_name=?)",
    "claim.next": "SEARCH job USING INDEX queuert_job_scheduled (type_name=? AND scheduled_at>?)",
    "claim.take": "SEARCH queuert_job USING INTEGER PRIMARY KEY (rowid=?)",
    "settle.apply": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "settle.unblock": "SEARCH edge USING COVERING INDEX queuert_blocker_chain (chain_id=?)",
    "renew.extend": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "reap.ended": "SEARCH head USING INDEX queuert_job_running (type_name=? AND leased_until<?)",
    "reap.ended_or_dead": "SEARCH job USING INDEX queuert_job_running (type_name=?)",
    "workers.with_jobs": "SEARCH job USING INDEX queuert_job_running (type_name=?)",
    "reap.put_back": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "read.chains": "SEARCH last USING COVERING INDEX queuert_job_chain (chain_id=?)",
    "read.blockers": "SEARCH edge USING PRIMARY KEY (job_id=?)",
    "create_jobs.look": "SEARCH dedup USING PRIMARY KEY (chain_type=? AND key=?)",
    "change.trigger": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "change.retry": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "delete_chains.waiting": "SEARCH edge USING COVERING INDEX queuert_blocker_chain (chain_id=?)",
    "delete_chains.cascade": "SEARCH job USING INDEX queuert_job_chain (chain_id=?)",
    "delete_chains.edges_to": "SEARCH queuert_blocker USING COVERING INDEX queuert_blocker_chain (chain_id=?)",
    "delete_chains.keys": "SEARCH queuert_dedup USING PRIMARY KEY (chain_type=? AND key=?)",
    "delete_chains.jobs": "SEARCH queuert_job USING COVERING INDEX queuert_job_chain (chain_id=?)",
    "unblocking.edges": "SEARCH queuert_blocker USING INDEX queuert_blocker_chain (chain_id=? AND job_id>?)",
    "unblocking.count_down": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "unblocking.count_again": "SEARCH queuert_job USING INDEX sqlite_autoindex_queuert_job_1 (id=?)",
    "explain.circumstances": "SEARCH queuert_job USING INDEX queuert_job_scheduled (type_name=? AND scheduled_at<?)",
    "next_available_in.earliest": "SEARCH job USING INDEX queuert_job_ready (type_name=?)",
}


def test_no_statement_scans_a_table(sqlite: Sqlite) -> None:
    for name in NAMES:
        if name.startswith(("migrate", "vacuum")):
            continue
        text = statements_for("queuert_")[name]
        plan = sqlite.plan(text(**dict.fromkeys(PARAMETER.findall(text.text))))
        scans = {line for line in plan if line.startswith("SCAN") and not PASSING.match(line)}
        assert scans <= WHOLE_INDEXES.get(name, set()), (name, plan)
        if name in SERVED_BY:
            assert SERVED_BY[name] in plan, name


def test_ten_thousand_jobs_of_many_types_are_one_statement(sqlite: Sqlite) -> None:
    jobs = [job(f"type-{number % 50}") for number in range(10_000)]
    with sqlite.traced() as statements:
        created = sqlite.do(sqlite.ops.create_jobs(jobs))
    assert len(created) == sqlite.count() == 10_000
    assert len(statements) == 1


@pytest.mark.parametrize(
    ("with_keys", "with_blockers", "expected"), [(True, False, 3), (False, True, 3), (True, True, 4)]
)
def test_keys_and_blockers_add_two_statements_or_three(
    sqlite: Sqlite, with_keys: bool, with_blockers: bool, expected: int
) -> None:
    first = job("first")
    sqlite.create(first)
    jobs = [
        job(
            f"type-{number % 5}",
            dedup=Dedup(f"key-{number}") if with_keys else None,
            blockers=waiting_for(first) if with_blockers else (),
        )
        for number in range(1000)
    ]
    with sqlite.traced() as statements:
        sqlite.create(*jobs)
    assert len(statements) == expected


def test_a_start_that_loses_its_deduplication_writes_nothing(sqlite: Sqlite) -> None:
    sqlite.create(job(dedup=Dedup("key")))
    with sqlite.traced() as statements, sqlite.own_connection() as connection:
        before = connection.total_changes
        (created,) = sqlite.do(sqlite.ops.create_jobs([job(dedup=Dedup("key"))]))
        assert created.existing is not None
        assert connection.total_changes == before
    assert not [each for each in statements if not each.lstrip().startswith(("SELECT", "PRAGMA"))]


def test_a_batch_is_settled_in_one_statement_counted_in_another_and_continued_in_a_third(sqlite: Sqlite) -> None:
    sqlite.create(*(job() for _ in range(300)))
    claims = sqlite.claim(limit=300).jobs
    with sqlite.traced() as statements:
        sqlite.complete(*claims[:150])
    assert len(statements) == 2
    with sqlite.traced() as statements:
        sqlite.do(sqlite.ops.settle([completed(claim, next_job(claim.job)) for claim in claims[150:]]))
    assert len(statements) == 3


def _noise(number: int) -> list[NewJob]:
    """What a claim must not look at: future jobs at a more urgent priority, blocked ones, other types."""
    blocker = job("blocker", schedule=LATER)
    jobs = [blocker]
    for _ in range(number):
        jobs.append(job(priority=-1000, schedule=LATER))
        jobs.append(job(priority=-1000, blockers=waiting_for(blocker)))
        jobs.append(job("other", priority=-1000))
    return jobs


def test_the_cost_of_a_claim_does_not_depend_on_what_it_leaves_alone(tmp_path: Path) -> None:
    costs: list[int] = []
    for noise in (1, 7_000):
        sqlite = Sqlite(tmp_path / f"{noise}.db")
        sqlite.create(*_noise(noise), *(job() for _ in range(noise)))
        while claims := sqlite.claim(limit=1000).jobs:
            sqlite.complete(*claims)
        sqlite.create(*(job() for _ in range(200)))
        costs.append(sqlite.steps(partial(sqlite.claim, limit=50)))
        assert sqlite.query("SELECT count(*) FROM queuert_job WHERE status = 'running'") == [(50,)]
        sqlite.adapter.close()
    few, many = costs
    assert many < 1.1 * few


def test_a_claim_of_many_types_looks_further_only_where_it_must(sqlite: Sqlite) -> None:
    names = [f"type-{number}" for number in range(20)]
    sqlite.create(*(job(name) for name in names), *(job("type-0") for _ in range(100)), job("type-1"))
    claimed = sqlite.claim(*names, limit=120)
    assert len(claimed.jobs) == 120
    assert claimed.more
    assert [each.job.id for each in claimed.jobs] == sorted(each.job.id for each in claimed.jobs)
    assert len(sqlite.claim(*names).jobs) == 1


def test_a_burst_that_falls_due_at_once_is_promoted_over_several_claims(
    sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuert.adapters.sqlite.operations.claiming.PROMOTED_AT_ONCE", 10)
    burst = [job(schedule=When(after=1 + number / 1000)) for number in range(30)]
    sqlite.create(*burst)
    sqlite.clock.advance(10)
    assert sqlite.do(sqlite.ops.next_available_in(["task"])).next_in == 0
    claimed = sqlite.claim(limit=5)
    assert [each.job.id for each in claimed.jobs] == [each.id for each in burst[:5]]
    assert claimed.more
    assert sqlite.query("SELECT count(*) FROM queuert_job WHERE ready = 1") == [(5,)]
    assert sqlite.do(sqlite.ops.stats())[0].oldest_ready_age == pytest.approx(10 - 1.005)
    # A claim of more than the bound promotes as many as it can take.
    rest = sqlite.claim(limit=100)
    assert [each.job.id for each in rest.jobs] == [each.id for each in burst[5:]]
    assert not rest.more


def test_a_clock_that_goes_back_hides_jobs_until_it_is_right_again(sqlite: Sqlite) -> None:
    sqlite.create(job())
    sqlite.clock.advance(-5)
    assert sqlite.claim().jobs == []
    assert sqlite.do(sqlite.ops.next_available_in(["task"])).next_in == 5
    sqlite.clock.advance(5)
    assert len(sqlite.claim().jobs) == 1


def test_reaping_takes_the_oldest_lease_of_any_type_first(sqlite: Sqlite) -> None:
    sqlite.create(job("a"))
    first = sqlite.claim("a").jobs[0].job
    sqlite.clock.advance(1)
    sqlite.create(job("b"), job("a"))
    sqlite.claim("a", "b")
    sqlite.clock.advance(100)
    (reaped,) = sqlite.do(sqlite.ops.reap(["a", "b"], [], 1, ERROR))
    assert (reaped.id, reaped.status, reaped.last_error) == (first.id, "pending", ERROR)
    ids = [row[0] for row in sqlite.query("SELECT id FROM queuert_job WHERE status = 'running'")]
    assert sqlite.do(sqlite.ops.reap(["a", "b"], ids, 5, ERROR)) == []


def test_a_token_that_was_rolled_back_does_not_come_again(sqlite: Sqlite) -> None:
    sqlite.create(job())
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError), sqlite.provider.transaction() as connection:
        seen += [each.job.token or 0 for each in sqlite.do(sqlite.ops.claim(claim_of()), connection).jobs]
        raise ZeroDivisionError
    again = [each.job.token or 0 for each in sqlite.claim().jobs]
    assert seen[0] != again[0]


def test_a_paused_queue_is_not_looked_at(sqlite: Sqlite) -> None:
    sqlite.create(job())
    paused = claim_of()
    (queue,) = paused.queues
    request = type(paused)("worker", 10, (QueueLimit("queue", 0, queue.types, ("task",), 0),))
    with sqlite.traced() as statements:
        assert sqlite.do(sqlite.ops.claim(request)).jobs == []
    assert len(statements) == 2  # what is paused, and when the next job is due


def test_a_chain_that_is_being_continued_is_still_in_the_way(sqlite: Sqlite) -> None:
    """Its last stored job is completed for a moment, in the middle of the settlement."""
    sqlite.create(job("a"), job("b"))
    first, second = sqlite.claim("a", "b").jobs
    waiting = next_job(second.job, blockers=waiting_for(next_job(first.job)))
    settlements = [completed(second, waiting), completed(first, next_job(first.job))]
    settled = sqlite.do(sqlite.ops.settle(settlements))
    assert sqlite.job(waiting.id).status == "blocked"
    assert settled.unblocked == []


def test_one_job_twice_in_a_settlement_is_settled_once(sqlite: Sqlite) -> None:
    sqlite.create(job())
    (claim,) = sqlite.claim().jobs
    wrong = Settlement(job_id=claim.job.id, token=claim.job.token + 1 if claim.job.token else None, status="failed")
    settled = sqlite.do(sqlite.ops.settle([wrong, completed(claim), completed(claim)]))
    assert settled.applied == [False, True, False]
    assert sqlite.job(claim.job.id).status == "completed"


def test_times_beyond_the_calendar_are_refused(sqlite: Sqlite) -> None:
    for seconds in (1e11 * 3, 1e300):
        with pytest.raises(InvalidArgument, match="later than the year 9999"):
            sqlite.create(job(schedule=When(after=seconds)))
    assert sqlite.count() == 0


def test_json_and_text_come_back_byte_for_byte(sqlite: Sqlite) -> None:
    for raw in (b'"plain"', b"null", b"1e5", '{"ü":"☂\\u0001 \\" [0] $","a":1,"a":2}'.encode(), b" [1, 2 ] "):
        new = job(input=raw, trace_context='00-"quoted"')
        sqlite.create(new)
        assert sqlite.job(new.id).input == raw
        assert sqlite.job(new.id).trace_context == '00-"quoted"'


def test_a_large_input_is_stored(sqlite: Sqlite) -> None:
    new = job(input=b'"' + b"x" * 10_000_000 + b'"')
    sqlite.create(new)
    assert sqlite.job(new.id).input == new.input


def test_statements_are_read_by_section() -> None:
    source = "-- About the file.\n\n-- Why.\n-- read: one\nSELECT 1;\n\n-- write: two\n-- inside\nDELETE\nFROM x;\n"
    assert [(text.name, text.text, text.writes) for text in split_statements("file", source)] == [
        ("file.one", "SELECT 1", False),
        ("file.two", "DELETE\nFROM x", True),
    ]


def test_a_word_in_braces_that_stands_for_nothing_is_a_mistake() -> None:
    with pytest.raises(LookupError, match=r"x\.sql has \{unknown\}"):
        substitute("SELECT {unknown}", {"prefix": "p_"}, "x.sql")
    with pytest.raises(LookupError):
        load_statements("queuert.adapters.sqlite.statements", {})


@pytest.mark.parametrize("prefix", ["", "a-b", "1a", 'a"; DROP', "sqlite_x", "SQLITE_", "x" * 41, "ü", 7])
def test_a_prefix_that_cannot_be_part_of_a_name_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="table_prefix"):
        Sqlite(tmp_path / "jobs.db", table_prefix=prefix)


def test_two_prefixes_in_one_file_do_not_see_each_other(tmp_path: Path) -> None:
    one = Sqlite(tmp_path / "jobs.db")
    other = Sqlite(tmp_path / "jobs.db", table_prefix="Other_")
    same = new_id()
    one.create(job(id=same))
    other.create(job(id=same), job())
    assert one.count() == 1
    assert other.query("SELECT count(*) FROM Other_job") == [(2,)]
    assert len(one.claim().jobs) == 1
    assert len(other.claim().jobs) == 2
    one.adapter.close()
    other.adapter.close()


def test_parameters_are_json_arrays() -> None:
    assert array([("a", 1, None)]) == '[["a",1,null]]'


def test_foreign_keys_catch_what_statements_do_not_rely_on(sqlite: Sqlite) -> None:
    with sqlite.own_connection() as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO queuert_blocker VALUES ('nobody', 0, 'nothing', NULL, 0)")
