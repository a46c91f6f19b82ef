"""Several installations in one database: by schema, by prefix, under whatever names; none sees another."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import psycopg
import pytest
from psycopg import sql

from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.postgres.installation import ADVISORY_SPACE, Installation
from queuert.errors import InvalidArgument, JobIdExists
from queuert.ports.provider import run
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert_conformance.state.build import completed, key, new_job, queue, request, waiting_for

NAMES = [
    ("public", "queuert_"),
    ("public", "Other_"),
    ("jobs", "queuert_"),
    ("Jobs", "queuert_"),
    ("two words", "q_"),
    ("dots.and.more", "q_"),
    ("o'brien", "q_"),
    ("{job}", "q_"),
    ("$1 :name %s", "q_"),
    ("ünï-cødé", "q_"),
    ("a.b", "c_"),
    ("x" * 63, "y" * 40),
    ("select", "_"),
]


def installed(url: str, schema: str, prefix: str) -> Any:
    state = sync_psycopg_state(url, schema=schema, table_prefix=prefix)
    return state, lambda program: run(state.provider, None, program)


def test_installations_do_not_see_each_other(database_url: str) -> None:
    opened = [installed(database_url, *names) for names in NAMES]
    for state, do in opened:
        assert do(state.operations.migrate()) != []
        assert do(state.operations.migrate()) == []
    # The same ids, types and keys everywhere.
    job = new_job("a", dedup=key("k"))
    dependent = new_job("a", blockers=waiting_for(job.id, chain_type="a"))
    for state, do in opened:
        assert [made.existing for made in do(state.operations.create_jobs([job, dependent]))] == [None, None]
        with pytest.raises(JobIdExists):
            do(state.operations.create_jobs([dependent]))
    for number, (state, do) in enumerate(opened):
        operations = state.operations
        (claim,) = do(operations.claim(request(queue("a", max_concurrency=1), cluster_cap=1))).jobs
        assert claim.job.id == job.id, number
        assert do(operations.settle([completed(claim)])).unblocked[0].job_id == dependent.id
        assert do(operations.next_available_in(["a"])).next_in == 0
        assert len(do(operations.list_jobs(JobFilter(), PageRequest(10))).rows) == 2
        assert len(do(operations.list_chains(ChainFilter(), PageRequest(10))).rows) == 2
        assert [(each.job_type, each.pending) for each in do(operations.stats())] == [("a", 1)]
        do(operations.vacuum())
        assert len(do(operations.delete_chains([dependent.id], cascade=True)).chains) == 2
        assert do(operations.get_jobs([job.id])) == [None]
    for state, _ in opened:
        state.close()


@pytest.mark.parametrize(
    "schema",
    ["", 'we"ird', "a\0b", "two\nlines", "x" * 64, "ü" * 32, "a--b", "/*", "$body$"],
)
def test_names_that_would_not_come_through_are_refused(schema: str) -> None:
    with pytest.raises(InvalidArgument, match="schema must be"):
        Installation(schema, "queuert_")


@pytest.mark.parametrize("prefix", ["", "1a", "a-b", 'a"', "x" * 41, "a b"])
def test_prefixes_are_plain(prefix: str) -> None:
    with pytest.raises(InvalidArgument):
        Installation("public", prefix)


def test_every_name_is_short_enough() -> None:
    """With the longest prefix no two names may become one when PostgreSQL cuts them off."""
    words = Installation("s", "p" * 40).words()
    names = {name for text in words.values() for name in re.findall(r'"(p{40}\w+)"', text)}
    assert max(map(len, names)) <= 63
    assert len(names) > 40


def test_advisory_locks_differ(database_url: str) -> None:
    """One installation's caps never make another one wait. Also where schema and prefix make the same word together."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        numbers = [
            connection.execute("SELECT hashtext(%s)", [Installation(*names).words()["lock_name"] + kind]).fetchall()[0]
            for names in [*NAMES, ("a", "b_c_"), ("a.b", "c_"), ("a_b", "c_")]
            for kind in ("cluster", "queue.narrow", "queue.cluster", "migrate")
        ]
    assert len(set(numbers)) == (len(NAMES) + 2) * 4


async def test_a_cap_of_one_installation_does_not_hold_up_another(database_url: str) -> None:
    narrow = request(queue("a", name="narrow", max_concurrency=1), limit=1, cluster_cap=1)
    one, do_one = installed(database_url, "public", "one_")
    two, do_two = installed(database_url, "public", "two_")
    for state, do in ((one, do_one), (two, do_two)):
        do(state.operations.migrate())
        do(state.operations.create_jobs([new_job("a")]))
    with one.provider.transaction() as open_connection:
        assert len(run(one.provider, open_connection, one.operations.claim(narrow)).jobs) == 1
        locks = open_connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", [ADVISORY_SPACE]
        ).fetchone()
        assert locks == (2,)
        async with asyncio.timeout(45):
            claimed = await asyncio.to_thread(do_two, two.operations.claim(narrow))
        assert len(claimed.jobs) == 1
    one.close()
    two.close()


def test_a_search_path_makes_no_difference(database_url: str) -> None:
    """Neither one without our schema, nor one with tables of our names in it."""
    state, do = installed(database_url, "jobs", "queuert_")
    do(state.operations.migrate())
    state.close()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA decoy")
        for table in ("job", "ready", "later", "running", "blocker", "key"):
            connection.execute(sql.SQL("CREATE TABLE decoy.{} (no int)").format(sql.Identifier(f"queuert_{table}")))
        connection.execute("SET search_path TO decoy")
        state = sync_psycopg_state(connection, schema="jobs")
        run(state.provider, None, state.operations.create_jobs([new_job("a")]))
        (claim,) = run(state.provider, None, state.operations.claim(request(queue("a", max_concurrency=1)))).jobs
        assert run(state.provider, None, state.operations.settle([completed(claim)])).applied == [True]
