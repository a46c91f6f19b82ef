"""Libraries of several versions at one database: sets of functions that differ, and version 6 as it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from tests.adapters.postgres.drivers import Watcher

from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.postgres.command import PgStatement, compile_text
from queuert.adapters.postgres.installation import (
    DATABASE_CLOCK,
    FunctionSet,
    Installation,
    functions_for,
    migrations_for,
)
from queuert.adapters.postgres.operations import PostgresOperations, migrating
from queuert.adapters.postgres.rows import job_of
from queuert.adapters.sql.migrate import Migration
from queuert.adapters.sql.statement import split_statements
from queuert.ports.program import Program, answered
from queuert.ports.provider import run
from queuert.records.model import NO_DELAYS, Available, Claimed, ClaimRequest, ClaimResult, JobRow, Lease
from queuert_conformance.state.build import (
    completed,
    continued,
    failed,
    key,
    later,
    new_job,
    next_job,
    queue,
    request,
    waiting_for,
)

T = TypeVar("T")

OTHER_CLOCK = f"({DATABASE_CLOCK})"
"""The same, but the functions have another text: their set has another digest."""

KNOWN = migrations_for(Installation("public", "queuert_"))[-1].version
"""The schema version of this library."""

SINCE_6 = [each.version for each in migrations_for(Installation("public", "queuert_")) if each.version > 6]
"""What a database of version 6 needs."""

needs_roles = pytest.mark.skipif(
    "'QUEUERT_TEST_POSTGRES_URL' in __import__('os').environ", reason="needs a server without passwords"
)

VERSION_6 = Path(__file__).parent / "version_6"


class Version6(PostgresOperations):
    """As commit bc379eb called its functions, which have no digest in their names."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = {
            text.name: compile_text(text)
            for file in VERSION_6.glob("*.sql")
            if file.stem != "schema"
            for text in split_statements(file.stem, file.read_text().replace(":marks::", ":positions::"))
        }

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        """Blockers came as objects then, and nothing told of earlier runs, losses and ordinals."""
        names = ("chain_id", "chain_type", "status", "output", "trace_context")
        program = super().claim(request)
        rows = [list(row) for row in (yield next(program))]
        for row in rows[1:]:
            if row[18] is not None:
                row[18] = json.dumps([[blocker[name] for name in names] for blocker in json.loads(row[18])])
            row[18:18] = [None, 0]
            row.insert(11, None)
        for row in rows:
            row.insert(-3, None)  # the lane
        return answered(program, rows)

    def reap(
        self,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
    ) -> Program[list[JobRow]]:
        """Only leases counted then."""
        assert not dead
        assert not delays
        rows = yield self.statement(
            "claim.reap", types=list(types), ignored=list(ignored), limit=limit, error=error.decode()
        )
        return [job_of(row) for row in rows]

    def statement(self, name: str, **parameters: Any) -> PgStatement:
        """Its functions had fewer parameters, keys only two scopes, and one start had no function of its own."""
        if name == "create_jobs.begin_one":
            name = "create_jobs.begin"
            parameters |= {"ids": parameters["id"], "inputs": parameters["input"]}
        text = self.texts[name]
        if "key_rules" in parameters:
            parameters["key_any"] = [rule == "any" for rule in parameters["key_rules"]]
        return text(**{parameter: value for parameter, value in parameters.items() if parameter in text.names})

    def next_available_in(self, types: Sequence[str], queues: Sequence[str] = ()) -> Program[Available]:
        ((next_in,),) = yield self.statement("read.next_available_in", types=list(types))
        return Available(next_in)

    def installed_version(self) -> Program[int | None]:
        """What it looked at when it started: more than 6 was refused."""
        values = {"schema": "public", "table": "queuert_schema_version"}
        if not (yield self.statement("migrate.exists", **values)):
            return None
        ((version,),) = yield self.statement("migrate.current")
        return int(version)


def install_version_6(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((VERSION_6 / "schema.sql").read_bytes())


class Library:
    """A process with one version of the library."""

    def __init__(self, url: str, operations: PostgresOperations | None = None) -> None:
        self._state: Any = sync_psycopg_state(url)
        self.operations = operations or PostgresOperations()

    def __call__(self, program: Program[T]) -> T:
        return run(self._state.provider, None, program)

    def alone(self, program: Program[T]) -> T:
        """Only this, and then close."""
        try:
            return self(program)
        finally:
            self.close()

    def migrate(self) -> list[int]:
        return self(self.operations.migrate())

    @property
    def functions(self) -> FunctionSet:
        return functions_for(self.operations.installation)

    def close(self) -> None:
        self._state.close()


def at_version(monkeypatch: pytest.MonkeyPatch, version: int, oldest: int = 1) -> None:
    """From now on the library has this schema version, with empty migrations behind ours."""
    later_ones = tuple(Migration(number, oldest, (("SELECT 1",),)) for number in range(KNOWN + 1, version + 1))
    monkeypatch.setattr(migrating, "migrations_for", lambda here: (*migrations_for(here), *later_ones))


def recorded(watch: Watcher) -> dict[str, int]:
    return dict(watch("SELECT digest, schema_version FROM queuert_function_set"))


def work(one: Library, stop: threading.Event, problems: list[BaseException]) -> None:
    """Jobs from start to end, with continuations, blockers and keys, until told to stop."""
    operations = one.operations
    try:
        while not stop.is_set():
            first, keyed = new_job("a"), new_job("a", dedup=key("k"))
            waiting = new_job("b", blockers=waiting_for(first.id, chain_type="a"))
            one(operations.create_jobs([first, waiting, keyed, new_job("a", schedule=later(0.001))]))
            claimed: list[Claimed] = []
            for _ in range(2):
                claimed = one(operations.claim(request(queue("a", "b"), limit=3))).jobs
                one(operations.renew([Lease(each.job.id, each.job.token or 0, 60.0) for each in claimed]))
                ended = [completed(each) for each in claimed[:1]] + [failed(each) for each in claimed[1:2]]
                ended += [continued(each, next_job(each.job)) for each in claimed[2:]]
                assert all(one(operations.settle(ended)).applied)
            one(operations.retry([each.job.id for each in claimed]))
    except BaseException as error:
        problems.append(error)
