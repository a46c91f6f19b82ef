"""A timeout that binds: a handler that does not end is parted from its job, which goes on without it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.behaviour.conftest import Entry, Setting, ledger, write
from tests.behaviour.steps import PATIENCE, Gate, eventually, failures, job, patiently, running
from tests.behaviour.working import begin, failed, output, working
from tests.conformance.postgres_harness import database

import queuert
from queuert import Attempt, Client, EntryJob, Handlers, InvalidArgument, Middleware, Observer, SyncAttempt, Worker


class Try(EntryJob[str], name="try"):
    number: int = 0


class Other(EntryJob[str], name="other"):
    pass


TIMES: dict[str, Any] = {"timeout": 0.2, "timeout_grace": 0.1}
"""On a busy machine a handler that does end may take longer, too: then it runs once more."""


class Deaf:
    """A point where a handler stays, whatever it is told, until the test is over."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.left: list[Any] = []

    async def wait(self) -> None:
        """On an event loop: it swallows every cancellation."""
        self.entered.set()
        while not self.leave.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue

    def wait_in_thread(self) -> None:
        self.entered.set()
        assert self.leave.wait(PATIENCE)


@pytest.fixture
def deaf() -> Generator[Deaf]:
    point = Deaf()
    yield point
    point.leave.set()


def handlers_for(deaf: Deaf, where: str, *, plain: bool, **options: Any) -> Handlers[Any]:
    """Handlers that do not end, once they have come to the point. The next time they complete the job.

    On a busy machine their time may be up before they have come to it.
    """
    handlers = Handlers[Any]()
    settings = {**TIMES, **options}
    if plain:

        @handlers.handles(Try, **settings)
        def in_thread(attempt: SyncAttempt[Try]) -> str:
            if deaf.entered.is_set():
                with attempt.complete() as tx:
                    attempt.client.start(tx, Entry(text="second"))
                    return "second"
            try:
                if where == "in complete":
                    with attempt.complete() as tx:
                        attempt.client.start(tx, Entry(text="first"))
                        deaf.wait_in_thread()
                        attempt.client.start(tx, Entry(text="late"))
                elif where == "after complete":
                    with attempt.complete() as tx:
                        attempt.client.start(tx, Entry(text="first"))
                    deaf.wait_in_thread()
                elif where == "before complete":
                    deaf.wait_in_thread()
                    with attempt.complete() as tx:
                        attempt.client.start(tx, Entry(text="late"))
                else:
                    deaf.wait_in_thread()
            except BaseException as error:
                if deaf.entered.is_set():
                    deaf.left.append(error)
                raise
            deaf.left.append(None)
            return "first"
    else:

        @handlers.handles(Try, **settings)
        async def handler(attempt: Attempt[Try]) -> str:
            if deaf.entered.is_set():
                async with attempt.complete() as tx:
                    await write(attempt.client, tx, "second")
                    return "second"
            try:
                if where == "in complete":
                    async with attempt.complete() as tx:
                        await write(attempt.client, tx, "first")
                        await deaf.wait()
                        await write(attempt.client, tx, "late")
                elif where == "after complete":
                    async with attempt.complete() as tx:
                        await write(attempt.client, tx, "first")
                    await deaf.wait()
                elif where == "before complete":
                    await deaf.wait()
                    async with attempt.complete() as tx:
                        await write(attempt.client, tx, "late")
                else:
                    await deaf.wait()
            except BaseException as error:
                if deaf.entered.is_set():
                    deaf.left.append(error)
                raise
            deaf.left.append(None)
            return "first"

    return handlers


WHERE = ["outside", "in complete", "after complete", "before complete"]


@pytest.mark.drivers
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_the_job_goes_on_and_a_late_result_is_refused(
    setting: Setting, deaf: Deaf, plain: bool, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = handlers_for(deaf, where, plain=plain)
    with caplog.at_level(logging.WARNING, "queuert.worker"):
        async with working(setting, [Try], handlers, concurrency=2, poll_interval=0.05) as client:
            chain = await begin(client, Try())
            assert await output(client, chain) == "second"  # while the first handler still runs
            assert deaf.left == []
            assert await ledger(client) == ["second"]
            record = await job(client, chain)
            assert record.attempt_number >= 2
            assert failures(caplog, chain.id)[-1][0] == "TIMEOUT"
            assert "of 2 slots are lost" in caplog.text
            caplog.clear()
            deaf.leave.set()
            await eventually(lambda: deaf.left and "its slot is free again" in caplog.text)
            if where in ("in complete", "before complete"):
                assert deaf.left[0] is not None, "what it does in the database is refused"
            assert await ledger(client) == ["second"]
            assert await output(client, await begin(client, Try()))  # the connections work
            found = await client.get_chain(chain)
            assert found is not None
            assert found.output == "second"


@pytest.mark.drivers
@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_a_connection_that_the_handler_kept_is_of_no_use(setting: Setting, deaf: Deaf, plain: bool) -> None:
    """Outside of a transaction, or in that of another job, what it writes late would be committed."""
    if setting.state == "memory":
        pytest.skip("its connections have no SQL")
    handlers, refused = Handlers[Any](), list[bool]()
    statement = f"UPDATE queuert_{'job' if setting.state == 'sqlite' else 'key'} SET chain_type = 'late'"
    if plain:

        @handlers.handles(Try, **TIMES)
        def in_thread(attempt: SyncAttempt[Try]) -> str:
            if deaf.entered.is_set():
                return "second"
            with attempt.complete() as tx:
                connection = tx.connection
                deaf.wait_in_thread()
                try:
                    connection.execute(statement)
                except Exception:
                    refused.append(True)
                else:
                    refused.append(False)
            return "late"
    else:

        @handlers.handles(Try, **TIMES)
        async def handler(attempt: Attempt[Try]) -> str:
            if deaf.entered.is_set():
                return "second"
            async with attempt.complete() as tx:
                connection = tx.connection
                await deaf.wait()
                try:
                    result = connection.execute(statement)
                    if asyncio.iscoroutine(result):
                        await result
                except Exception:
                    refused.append(True)
                else:
                    refused.append(False)
            return "late"

    async with working(setting, [Try], handlers, concurrency=2, poll_interval=0.05) as client:
        chain = await begin(client, Try(), dedup="a key")
        assert await output(client, chain) == "second"
        async with client.transaction() as tx:  # another transaction, perhaps on a connection of the same pool
            deaf.leave.set()
            await eventually(lambda: refused)
            await write(client, tx, "on time")
        assert refused == [True]
        assert await ledger(client) == ["on time"]
        record = await job(client, chain)
        assert (record.job_type, record.chain_id) == ("try", chain.id)
        found = await client.get_chain(chain)
        assert found is not None
        assert found.output == "second"


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_another_worker_takes_the_job(setting: Setting, deaf: Deaf, plain: bool) -> None:
    handlers = handlers_for(deaf, "in complete", plain=plain)
    async with setting.connect([Try]) as client, setting.connect([Try]) as elsewhere:
        stuck = Worker(client, handlers, name="stuck", poll_interval=0.05, backoff=_soon())
        other = Worker(elsewhere, handlers, name="other", poll_interval=0.05, backoff=_soon())
        async with stuck:
            chain = await begin(client, Try())
            await eventually(deaf.entered.is_set)
            async with other:
                assert await output(client, chain) == "second"
                record = await job(client, chain)
                assert record.completed_by == other.id
            deaf.leave.set()


def _soon() -> Any:
    from tests.behaviour.steps import SOON

    return SOON


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_the_last_attempt_fails_while_its_handler_still_runs(setting: Setting, deaf: Deaf, plain: bool) -> None:
    handlers = handlers_for(deaf, "outside", plain=plain, max_attempts=1)
    async with working(setting, [Try], handlers) as client:
        error = await failed(client, Try())
        assert (error["code"], error["type"]) == ("TIMEOUT", "TimeoutError")
        assert "longer than 0.2 s" in error["message"]
        assert "within 0.1 s more" in error["message"]
        assert deaf.left == []
        deaf.leave.set()


async def test_the_slot_stays_busy_until_the_handler_ends(
    setting: Setting, deaf: Deaf, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = handlers_for(deaf, "outside", plain=True, max_attempts=1)
    ran: list[str] = []

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> str:
        ran.append("other")
        return "other"

    with caplog.at_level(logging.WARNING, "queuert.worker"):
        async with working(setting, [Try, Other], handlers) as client:
            await failed(client, Try())
            beside = await begin(client, Other())
            await eventually(lambda: "all 1 slots are occupied by handlers that do not end" in caplog.text)
            for _ in range(20):
                await asyncio.sleep(0)
            assert ran == []
            deaf.leave.set()
            assert await output(client, beside) == "other"


async def test_an_overdue_handler_counts_against_the_limit_of_its_type(setting: Setting, deaf: Deaf) -> None:
    handlers = handlers_for(deaf, "outside", plain=False, concurrency=1)
    async with working(setting, [Try], handlers, concurrency=3, poll_interval=0.02) as client:
        chain = await begin(client, Try())
        await eventually(lambda: _is_put_back(client, chain))
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert await running(client) == []
        deaf.leave.set()
        assert await output(client, chain) == "second"


async def _is_put_back(client: Client[Any], chain: Any) -> bool:
    record = await job(client, chain)
    return record.status == "pending" and record.last_error is not None


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_stop_does_not_wait_for_overdue_handlers(setting: Setting, deaf: Deaf, plain: bool) -> None:
    """The shutdown timeout is much longer than the patience of the test."""
    handlers = handlers_for(deaf, "in complete", plain=plain, max_attempts=1)
    async with setting.connect([Try]) as client:
        worker = Worker(client, handlers, poll_interval=0.05, shutdown_timeout=10 * PATIENCE)
        await worker.start()
        await failed(client, Try())
        assert await patiently(worker.stop()) is True
        deaf.leave.set()
        await eventually(lambda: deaf.left or not deaf.entered.is_set())


async def test_a_handler_that_ends_within_the_grace_has_its_result(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Try, timeout=0.02, timeout_grace=10 * PATIENCE)
    async def handler(attempt: Attempt[Try]) -> str:
        try:
            await gate()
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)
        return "just in time"

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        assert await output(client, chain) == "just in time"
        assert (await job(client, chain)).attempt_number == 1


async def test_observers_are_told_of_the_failure_and_of_the_end(setting: Setting, deaf: Deaf) -> None:
    handlers, told = handlers_for(deaf, "outside", plain=True, max_attempts=1), list[str]()

    class Ears(Observer):
        def attempt_started(self, **facts: Any) -> None:
            told.append("started")

        def attempt_failed(self, **facts: Any) -> None:
            told.append(f"failed {facts['error_code']}")

        def attempt_ended(self, **facts: Any) -> None:
            told.append("ended")

    worker: dict[str, Any] = {"poll_interval": setting.poll_interval}
    async with setting.connect([Try], observers=[Ears()]) as client, Worker(client, handlers, **worker):
        await failed(client, Try())
        await eventually(lambda: len(told) == 2)
        assert told == ["started", "failed TIMEOUT"]
        deaf.leave.set()
        await eventually(lambda: len(told) == 3)
    assert told == ["started", "failed TIMEOUT", "ended"]


async def test_the_grace_of_handler_registry_and_worker(setting: Setting, deaf: Deaf) -> None:
    messages: list[str] = []
    for number, level in enumerate(("handler", "registry", "worker"), 1):
        handlers = Handlers[Any](timeout_grace=0.01 * number if level == "registry" else None)
        own: dict[str, Any] = {"timeout_grace": 0.01 * number} if level == "handler" else {}

        @handlers.handles(Try, timeout=0.01, max_attempts=1, **own)
        def handler(attempt: SyncAttempt[Try]) -> str:
            deaf.wait_in_thread()
            return "late"

        of_worker = {"timeout_grace": 0.01 * number} if level == "worker" else {}
        async with working(setting, [Try], handlers, **of_worker) as client:
            messages.append((await failed(client, Try()))["message"])
    assert [message.rpartition("within ")[2] for message in messages] == ["0.01 s more", "0.02 s more", "0.03 s more"]
    deaf.leave.set()


def test_a_wrong_grace_is_refused() -> None:
    from queuert.jobs.registry import Registry
    from queuert.worker.handlers.registry import SharedSettings, resolve

    handlers = Handlers[Any](timeout_grace=-1)
    handlers.handles(Try)(lambda attempt: "")
    with pytest.raises(InvalidArgument, match="timeout_grace must be finite"):
        resolve([handlers], Registry([Try]), SharedSettings())


async def test_a_statement_of_a_plain_handler_that_does_not_end_holds_up_no_other_results(setting: Setting) -> None:
    """The server notices the cut only when the statement has ended; until then it keeps the job's lock."""
    if setting.state != "postgres":
        pytest.skip("only PostgreSQL has statements that take long")
    handlers, errors = Handlers[Any](), list[BaseException]()

    @handlers.handles(Try, **TIMES)
    def handler(attempt: SyncAttempt[Try]) -> str:
        if errors:
            return "second"
        with attempt.complete() as tx:
            try:
                tx.connection.execute("SELECT pg_sleep(45)")
            except Exception as error:
                errors.append(error)
                raise
            return "never"

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> str:
        return "other"

    async with working(setting, [Try, Other], handlers, concurrency=2, poll_interval=0.05) as client:
        chain = await begin(client, Try())
        await eventually(lambda: errors)  # at once: its socket was shut down
        assert await output(client, await begin(client, Other())) == "other"
        watch = Watcher(database())
        assert watch.terminate_others("query LIKE '%pg_sleep(45)%' AND state = 'active'") == 1
        watch.close()
        assert await output(client, chain) == "second"


@pytest.mark.parametrize("middleware", [[], [Middleware()]], ids=["plain", "middleware"])
def test_a_thread_that_goes_on_at_the_end_is_not_reported_as_ended(
    deaf: Deaf, middleware: list[Middleware], caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers[Any](middleware=middleware)

    @handlers.handles(Try, timeout=0.001, timeout_grace=0.001, max_attempts=1)
    def stuck(attempt: SyncAttempt[Try]) -> str:
        deaf.wait_in_thread()
        return "late"

    async def run() -> None:
        async with (
            queuert.connect("memory://", jobs=[Try]) as client,
            Worker(client, handlers, shutdown_timeout=0),
        ):
            await client.submit(Try())
            await asyncio.to_thread(deaf.entered.wait, PATIENCE)
            await eventually(lambda: "did not end" in caplog.text)

    with caplog.at_level(logging.WARNING, logger="queuert.worker"):
        asyncio.run(run())
    assert "has ended after" not in caplog.text
    assert "still runs in its thread" in caplog.text
