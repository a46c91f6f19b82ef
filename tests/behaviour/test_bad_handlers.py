"""Handlers that break into the transactions they are given: a recorded error that says so, and everybody works on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import failures
from tests.behaviour.working import begin, failed, failure, outcome, output, working

from queuert import Attempt, EntryJob, Handlers, SyncAttempt, TransactionNested

pytestmark = pytest.mark.drivers


class Bad(EntryJob[str], name="bad"):
    pass


class Good(EntryJob[str], name="good"):
    pass


@pytest.fixture(params=["in-process", None], ids=["in-process", "polling"])
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    """For what can be broken only where there is a driver's connection."""
    return Setting("sqlite", request.param, tmp_path)


def good(handlers: Handlers[Any]) -> None:
    @handlers.handles(Good)
    async def handler(attempt: Attempt[Good]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "good")
            return "good"


async def assert_all_is_well(client: Any) -> None:
    """The worker and its connections are as good as new."""
    before = await ledger(client)
    for _ in range(2):
        assert await outcome(client, Good()) == "good"
    async with client.transaction() as tx:
        await write(client, tx, "client")
    assert await ledger(client) == [*before, "good", "good", "client"]


def _with_block(connection: Any) -> None:
    with connection:
        connection.execute("SELECT 1")


def _commit_and_begin(connection: Any) -> None:
    connection.commit()
    connection.execute("BEGIN IMMEDIATE")


def _close_and_raise(connection: Any) -> None:
    connection.close()
    raise RuntimeError("the user's own")


BREAKING: dict[str, Callable[[Any], Any]] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "close": lambda connection: connection.close(),
    "with connection": _with_block,
    "executescript": lambda connection: connection.executescript("CREATE TABLE IF NOT EXISTS mine (id INTEGER);"),
    "commit and begin": _commit_and_begin,
    "ROLLBACK": lambda connection: connection.execute("ROLLBACK"),
}


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
@pytest.mark.parametrize("phase", ["staged", "atomic", "complete"])
@pytest.mark.parametrize("breaking", BREAKING)
async def test_ending_the_transaction_of_a_phase_is_told_as_what_it_is(
    sqlite: Setting, breaking: str, phase: str, plain: bool
) -> None:
    handlers = Handlers[Any]()
    good(handlers)
    break_in = BREAKING[breaking]
    if plain:

        @handlers.handles(Bad, max_attempts=1)
        def bad_in_thread(attempt: SyncAttempt[Bad]) -> str:
            with _phase(attempt, phase) as tx:
                break_in(tx.connection)
            return "done"
    else:

        @handlers.handles(Bad, max_attempts=1)
        async def bad(attempt: Attempt[Bad]) -> str:
            async with _phase(attempt, phase) as tx:
                break_in(tx.connection)
            return "done"

    async with working(sqlite, [Bad, Good], handlers) as client:
        error = await failed(client, Bad())
        assert error["type"] == "TransactionMisused"
        assert "ended by code inside its block" in error["message"]
        await assert_all_is_well(client)


def _phase(attempt: Any, phase: str) -> Any:
    return attempt.complete() if phase == "complete" else attempt.prepare(phase)


async def test_the_users_own_error_is_kept_when_the_connection_is_gone_too(sqlite: Setting) -> None:
    handlers = Handlers[Any]()
    good(handlers)

    @handlers.handles(Bad, max_attempts=1)
    async def bad(attempt: Attempt[Bad]) -> str:
        async with attempt.complete() as tx:
            _close_and_raise(tx.connection)
        return "done"

    async with working(sqlite, [Bad, Good], handlers) as client:
        error = await failed(client, Bad())
        assert (error["type"], error["message"]) == ("RuntimeError", "the user's own")
        assert "could not be rolled back" in error["traceback"]
        await assert_all_is_well(client)


@pytest.mark.parametrize("when", ["between", "after"])
async def test_ending_the_transaction_outside_of_its_phases_is_noticed_too(sqlite: Setting, when: str) -> None:
    handlers = Handlers[Any]()
    good(handlers)

    @handlers.handles(Bad, max_attempts=1)
    async def bad(attempt: Attempt[Bad]) -> str:
        async with attempt.prepare("atomic") as tx:
            connection = tx.connection
        if when == "between":
            connection.rollback()
        async with attempt.complete():
            pass
        connection.rollback()
        return "done"

    async with working(sqlite, [Bad, Good], handlers) as client:
        chain = await begin(client, Bad())
        assert (await failure(client, chain))["type"] == "TransactionMisused"
        await assert_all_is_well(client)


async def test_a_failing_statement_poisons_nothing(sqlite: Setting, caplog: pytest.LogCaptureFixture) -> None:
    handlers = Handlers[Any]()
    good(handlers)

    @handlers.handles(Bad)
    async def bad(attempt: Attempt[Bad]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"attempt {attempt.number}")
            if attempt.number == 1:
                tx.connection.execute("INSERT INTO nowhere VALUES (1)")
            return "done"

    async with working(sqlite, [Bad, Good], handlers) as client:
        chain = await begin(client, Bad())
        assert await output(client, chain) == "done"
        ((_, error),) = failures(caplog, chain.id)
        assert (type(error).__name__, "nowhere" in str(error)) == ("OperationalError", True)
        assert await ledger(client) == ["attempt 2"]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
@pytest.mark.parametrize("where", ["inside", "between", "after"])
async def test_a_transaction_beside_that_of_a_phase_is_refused_at_once(
    setting: Setting, where: str, plain: bool
) -> None:
    handlers = Handlers[Any]()
    good(handlers)
    if plain:

        @handlers.handles(Bad)
        def bad_in_thread(attempt: SyncAttempt[Bad]) -> str:
            def nest() -> None:
                with pytest.raises(TransactionNested), attempt.client.transaction():
                    raise AssertionError("this must not be reached")

            with attempt.prepare("atomic"):
                if where == "inside":
                    nest()
            if where == "between":
                nest()
            with attempt.complete():
                pass
            nest()
            return "done"
    else:

        @handlers.handles(Bad)
        async def bad(attempt: Attempt[Bad]) -> str:
            async def nest() -> None:
                with pytest.raises(TransactionNested):
                    async with attempt.client.transaction():
                        raise AssertionError("this must not be reached")

            async with attempt.prepare("atomic"):
                if where == "inside":
                    await nest()
            if where == "between":
                await nest()
            async with attempt.complete():
                pass
            await nest()
            return "done"

    async with working(setting, [Bad, Good], handlers) as client:
        assert await outcome(client, Bad()) == "done"
        await assert_all_is_well(client)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_a_phase_inside_a_transaction_of_the_client_is_refused_at_once(setting: Setting, plain: bool) -> None:
    handlers = Handlers[Any]()
    good(handlers)
    if plain:

        @handlers.handles(Bad, max_attempts=1)
        def bad_in_thread(attempt: SyncAttempt[Bad]) -> str:
            with attempt.client.transaction(), attempt.complete():
                raise AssertionError("this must not be reached")
    else:

        @handlers.handles(Bad, max_attempts=1)
        async def bad(attempt: Attempt[Bad]) -> str:
            async with attempt.client.transaction(), attempt.complete():
                raise AssertionError("this must not be reached")

    async with working(setting, [Bad, Good], handlers) as client:
        assert (await failed(client, Bad()))["type"] == "TransactionNested"
        await assert_all_is_well(client)


@pytest.mark.parametrize("raising", [False, True])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_a_transaction_that_is_never_left_fails_the_attempt_and_locks_nobody_out(
    setting: Setting, plain: bool, raising: bool
) -> None:
    handlers, kept = Handlers[Any](), list[Any]()
    good(handlers)
    if plain:

        @handlers.handles(Bad, max_attempts=1)
        def bad_in_thread(attempt: SyncAttempt[Bad]) -> str:
            block = attempt.client.transaction()
            kept.append(block)
            block.__enter__()
            if raising:
                raise RuntimeError("the user's own")
            return "done"
    else:

        @handlers.handles(Bad, max_attempts=1)
        async def bad(attempt: Attempt[Bad]) -> str:
            block = attempt.client.transaction()
            kept.append(block)
            tx = await block.__aenter__()
            await write(attempt.client, tx, "lost")
            if raising:
                raise RuntimeError("the user's own")
            return "done"

    async with working(setting, [Bad, Good], handlers) as client:
        error = await failed(client, Bad())
        if raising:
            assert error["message"] == "the user's own"
        else:
            assert (error["type"], "open" in error["message"]) == ("TransactionMisused", True)
        assert await ledger(client) == []
        await assert_all_is_well(client)


async def test_a_transaction_that_is_forgotten_altogether_is_noticed(setting: Setting) -> None:
    """Nobody holds its block once the handler has returned: the interpreter ends it, and the attempt has failed."""
    handlers = Handlers[Any]()
    good(handlers)

    @handlers.handles(Bad, max_attempts=1)
    async def bad(attempt: Attempt[Bad]) -> str:
        block = attempt.client.transaction()
        tx = await block.__aenter__()
        await write(attempt.client, tx, "lost")
        return "done"

    async with working(setting, [Bad, Good], handlers) as client:
        error = await failed(client, Bad())
        assert error["type"] == "TransactionMisused"
        assert await ledger(client) == []
        await assert_all_is_well(client)
