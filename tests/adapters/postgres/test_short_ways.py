"""Which statements a settlement is: one for what almost every group is, and the general one for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.scenes import violations
from tests.support.postgres import Databases, template

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.errors import JobIdExists
from queuert.ports.program import Program
from queuert.records.model import Claimed, NewJob, Settled, Settlement, When
from queuert_conformance.state.build import (
    completed,
    continued,
    failed,
    later,
    new_id,
    new_job,
    next_job,
    queue,
    request,
    waiting_for,
)

OPERATIONS = PostgresOperations()


class Database:
    """Runs operations, and keeps in mind which functions they called."""

    def __init__(self, connection: psycopg.Connection[Any], watch: Watcher) -> None:
        self._connection = connection
        self.watch = watch
        self.called: list[str] = []

    def __call__(self, program: Program[Any]) -> Any:
        self.called.clear()
        try:
            command = next(program)
            while True:
                self.called += [name for name in ("complete", "settle") if f"{OPERATIONS.words[name]}(" in command.text]
                command = program.send(
                    psycopg.RawCursor(self._connection).execute(command.text, command.values).fetchall()
                )
        except StopIteration as done:
            return done.value

    def claims(self, number: int) -> list[Claimed]:
        self(OPERATIONS.create_jobs([new_job("a") for _ in range(number)]))
        claimed: list[Claimed] = self(OPERATIONS.claim(request(queue("a"), limit=number))).jobs
        return claimed

    def settle(self, *settlements: Settlement) -> Settled:
        settled: Settled = self(OPERATIONS.settle(settlements))
        return settled

    def broken_rules(self) -> dict[str, list[Any]]:
        return violations(self.watch)


@pytest.fixture
def database(postgres: Databases) -> Iterator[Database]:
    with postgres.fresh(template=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        watch = Watcher(url)
        yield Database(connection, watch)
        watch.close()


def plain(claimed: Claimed) -> NewJob:
    return next_job(claimed.job, "b", priority=5, trace_context="00-a", chain_trace_context="00-b")


def test_ends_and_plain_continuations_are_one_statement(database: Database) -> None:
    one, two, three, four = database.claims(4)
    settled = database.settle(
        completed(one), continued(two, plain(two)), completed(three), continued(four, plain(four))
    )
    assert database.called == ["complete"]
    assert settled.applied == [True] * 4
    assert database.broken_rules() == {}


def test_a_lost_claim_does_not_change_the_way(database: Database) -> None:
    one, two, three = database.claims(3)
    database.settle(completed(two))
    settled = database.settle(continued(one, plain(one)), continued(two, plain(two)), continued(three, plain(three)))
    assert database.called == ["complete"]
    assert settled.applied == [True, False, True]
    assert database.broken_rules() == {}


@pytest.mark.parametrize(
    "continuation",
    [
        lambda claimed: next_job(claimed.job, schedule=later()),
        lambda claimed: next_job(claimed.job, deadline=When(after=60.0)),
        lambda claimed: next_job(claimed.job, "with\x1eseparator"),
    ],
    ids=["for later", "with a deadline", "with an odd name"],
)
def test_what_goes_the_general_way(database: Database, continuation: Callable[[Claimed], NewJob]) -> None:
    one, two = database.claims(2)
    settled = database.settle(completed(one), continued(two, continuation(two)))
    assert database.called == ["settle"]
    assert settled.applied == [True, True]
    assert database.broken_rules() == {}


def test_blockers_and_failures_go_the_general_way(database: Database) -> None:
    source = new_job("source")
    database(OPERATIONS.create_jobs([source]))
    one, two = database.claims(2)
    blocked = next_job(two.job, blockers=waiting_for(source.id, chain_type="source"))
    assert database.settle(failed(one), continued(two, blocked)).applied == [True, True]
    assert database.called == ["settle"]
    assert database.broken_rules() == {}


def test_an_id_that_exists_is_for_the_general_function_to_tell(database: Database) -> None:
    """And if it has been deleted in between, that one settles the group."""
    one, two = database.claims(2)
    with pytest.raises(JobIdExists):
        database.settle(completed(one), continued(two, next_job(two.job, id=one.job.id)))
    assert database.called == ["complete", "settle"]
    assert database.watch("SELECT count(*) FROM queuert_running") == [2]
    assert database.broken_rules() == {}
    same = new_id()
    with pytest.raises(JobIdExists):
        database.settle(continued(one, next_job(one.job, id=same)), continued(two, next_job(two.job, id=same)))
    assert database.called == ["settle"]


def test_dependents_are_inherited(database: Database) -> None:
    one, two = database.claims(2)
    waiting = new_job("waiting", blockers=waiting_for(one.job.id, two.job.id, chain_type="a"))
    database(OPERATIONS.create_jobs([waiting]))
    following = plain(one)
    database.settle(continued(one, following), completed(two))
    assert database.called == ["complete"]
    assert database.watch("SELECT dependents FROM queuert_job WHERE id = %s", following.id) == [1]
    (claimed,) = database(OPERATIONS.claim(request(queue("b"), limit=1))).jobs
    assert [freed.job_id for freed in database.settle(completed(claimed)).unblocked] == [waiting.id]
    assert database.called == ["complete"]
    assert database.broken_rules() == {}
