"""Plain `def` handlers: in threads, with the same phases and the same promises."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest
from tests.behaviour.conftest import Entry, Setting, ledger
from tests.behaviour.steps import eventually, failures, job
from tests.behaviour.working import begin, failed, failure, jobs_of, outcome, output, working

from queuert import (
    Attempt,
    Chain,
    Client,
    EntryJob,
    Handlers,
    Job,
    PhaseError,
    PrepareAfterAutoSetup,
    SyncAttempt,
    Worker,
)
from queuert.ports.state import StateAdapter


class Plain(EntryJob[str, "Then"], name="plain"):
    number: int = 0


class Then(Job[str], name="then"):
    text: str


class Waiting(EntryJob[str], name="waiting"):
    plain: Chain[Plain]


JOBS = [Plain, Waiting]

USER = contextvars.ContextVar("USER", default="nobody")


async def test_it_runs_in_a_thread_of_its_own_and_blocks_nobody(setting: Setting) -> None:
    handlers, meeting = Handlers[Any](), threading.Barrier(4)

    @handlers.handles(Plain)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        meeting.wait(45)  # all four must be here at the same time
        return threading.current_thread().name

    async with working(setting, JOBS, handlers, concurrency=4) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Plain() for _ in range(4)])
        names = [await output(client, chain) for chain in chains]
        assert all(name.startswith("queuert-handler") for name in names)


async def test_context_variables_are_carried_over(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Plain)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        seen = USER.get()
        USER.set("somebody else")
        return seen

    token = USER.set("me")
    try:
        async with working(setting, JOBS, handlers) as client:
            assert await outcome(client, Plain()) == "me"
            assert await outcome(client, Plain()) == "me"
    finally:
        USER.reset(token)


async def test_prepare_and_complete_in_a_thread(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Plain)
    def plain(attempt: SyncAttempt[Plain]) -> Then:
        mode: Any = "staged" if attempt.job.number else "atomic"
        with attempt.prepare(mode) as first:
            attempt.client.start(first, Entry(text=f"prepared {mode}"))
        with attempt.complete() as second:
            assert (first is second) == (mode == "atomic")
            attempt.client.start(second, Entry(text=f"completed {mode}"))
            return Then(text=mode)

    @handlers.handles(Then)
    def then(attempt: SyncAttempt[Then]) -> str:
        return attempt.job.text

    async with working(setting, JOBS, handlers) as client:
        assert await outcome(client, Plain(number=0)) == "atomic"
        assert await outcome(client, Plain(number=1)) == "staged"
        assert await ledger(client) == ["prepared atomic", "completed atomic", "prepared staged", "completed staged"]


@pytest.mark.parametrize("mode", ["staged", "atomic"])
@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("where", ["prepare", "complete", "after"])
async def test_an_error_undoes_the_attempt(
    setting: Setting, mode: Any, where: str, swallow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Plain)
    def plain(attempt: SyncAttempt[Plain]) -> Any:
        def fail(here: str) -> None:
            if attempt.number == 1 and where == here:
                raise RuntimeError(f"in {here}")

        try:
            with attempt.prepare(mode) as tx:
                attempt.client.start(tx, Entry(text=f"prepared {attempt.number}"))
                fail("prepare")
            with attempt.complete() as tx:
                attempt.client.start(tx, Entry(text=f"completed {attempt.number}"))
                fail("complete")
        except RuntimeError:
            if not swallow:
                raise
            return "swallowed"
        fail("after")
        return "done"

    @handlers.handles(Waiting)
    async def waiting(attempt: Attempt[Waiting]) -> str:
        return attempt.job.plain.output

    async with working(setting, JOBS, handlers) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, Plain())
            dependent = await client.start(tx, Waiting(plain=chain))
        assert await output(client, dependent) == "done"
        record = await job(client, chain)
        ((_, seen),) = failures(caplog, chain.id)
        assert (record.attempt_number, str(seen)) == (2, f"in {where}")
        kept = ["prepared 1"] if mode == "staged" and where != "prepare" else []
        assert await ledger(client) == [*kept, "prepared 2", "completed 2"]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), StopIteration("x")])
@pytest.mark.parametrize("where", ["handler", "complete"])
async def test_nothing_that_it_raises_ends_the_worker(setting: Setting, error: BaseException, where: str) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Plain, max_attempts=1)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        if where == "handler":
            raise error
        with attempt.complete() as tx:
            attempt.client.start(tx, Entry(text="lost"))
            raise error

    async with working(setting, JOBS, handlers) as client:
        for _ in range(2):
            assert (await failed(client, Plain()))["type"] in (type(error).__name__, "RuntimeError")
        assert await ledger(client) == []


async def test_the_first_phase_decides_and_each_is_for_once(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Plain)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        with attempt.complete():
            pass
        with pytest.raises(PrepareAfterAutoSetup), attempt.prepare("staged"):
            raise AssertionError("this must not be reached")
        with pytest.raises(PhaseError, match="once"), attempt.complete():
            raise AssertionError("this must not be reached")
        return "done"

    async with working(setting, JOBS, handlers) as client:
        assert await outcome(client, Plain()) == "done"


async def test_returning_inside_a_phase_fails_the_attempt(setting: Setting) -> None:
    handlers, kept = Handlers[Any](), list[Any]()

    @handlers.handles(Plain, max_attempts=1)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        block = attempt.complete()
        if attempt.job.number:
            kept.append(block)
        attempt.client.start(block.__enter__(), Entry(text="lost"))
        return "done"

    async with working(setting, JOBS, handlers) as client:
        assert (await failed(client, Plain(number=1)))["type"] == "PhaseError"
        assert (await failed(client, Plain(number=0)))["type"] in ("PhaseError", "GeneratorExit")
        assert await ledger(client) == []


async def test_a_driver_without_a_sync_provider_says_so_when_a_phase_is_opened(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Plain, max_attempts=1)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        if attempt.job.number == 0:
            return "without a phase"
        if attempt.job.number == 1:
            _ = attempt.client
        with attempt.complete() if attempt.job.number == 2 else attempt.prepare():
            raise AssertionError("this must not be reached")

    async with setting.connect(JOBS) as inner:
        state = StateAdapter(inner.sessions.storage.operations, inner.sessions.storage.provider)
        client: Client[Any] = Client(state, inner.sessions.channel, inner._engine.jobs, poll_interval=0.02)
        client.sessions.open()
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            assert await outcome(client, Plain(number=0)) == "without a phase"
            for number in (1, 2, 3):
                error = await failed(client, Plain(number=number))
                assert (error["type"], "async def" in error["message"]) == ("TransactionMisused", True)


async def test_other_kinds_of_callables(setting: Setting) -> None:
    class Called:
        def __call__(self, attempt: SyncAttempt[Plain]) -> Then:
            return Then(text=threading.current_thread().name)

    def with_more(greeting: str, attempt: Attempt[Then], *, mark: str = "!") -> str:
        return greeting + attempt.job.text[:7] + mark

    async def awaited(greeting: str, attempt: Attempt[Waiting]) -> str:
        await asyncio.sleep(0)
        return greeting + attempt.job.plain.output

    handlers = Handlers[Any]()
    handlers.handles(Plain)(Called())
    then: Any = functools.partial(with_more, "hello ")
    handlers.handles(Then)(then)
    handlers.handles(Waiting)(functools.partial(awaited, "and "))
    async with working(setting, JOBS, handlers) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, Plain())
            waiting = await client.start(tx, Waiting(plain=chain))
        assert await output(client, waiting) == "and hello queuert!"
        assert len(await jobs_of(client, chain)) == 2


async def test_the_signal_can_be_looked_at_and_waited_for_in_the_thread(setting: Setting) -> None:
    handlers, reached = Handlers[Any](), threading.Event()
    reasons: list[Any] = []

    @handlers.handles(Plain)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        assert (attempt.signal.aborted, attempt.signal.wait_in_thread(0.001)) == (False, None)
        reached.set()
        reasons.append(attempt.signal.wait_in_thread(45))
        return "done"

    async with working(setting, JOBS, handlers, lease=30, renew_interval=0.05) as client:
        chain = await begin(client, Plain())
        await eventually(reached.is_set)
        async with client.transaction() as tx:
            await client.cancel(tx, chain)
        await eventually(lambda: reasons)
        assert reasons == ["cancelled"]
        assert (await job(client, chain)).status == "cancelled"


async def test_a_swallowed_error_of_a_user_statement(setting: Setting) -> None:
    if setting.state != "sqlite":
        pytest.skip("memory has no statements")
    handlers = Handlers[Any]()

    @handlers.handles(Plain, max_attempts=1)
    def plain(attempt: SyncAttempt[Plain]) -> str:
        try:
            with attempt.complete() as tx:
                attempt.client.start(tx, Entry(text="lost"))
                tx.connection.execute("INSERT INTO nowhere VALUES (1)")
        except Exception:
            return "swallowed"
        return "done"

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, Plain())
        assert (await failure(client, chain))["type"] == "OperationalError"
        assert await ledger(client) == []
