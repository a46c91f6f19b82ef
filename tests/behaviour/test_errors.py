"""An error anywhere in an attempt undoes all of it, is recorded, and the job runs again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import SOON, eventually, failures, job
from tests.behaviour.watching import Points, watched
from tests.behaviour.working import begin, failed, failure, jobs_of, outcome, output, working

from queuert import Attempt, Chain, EntryJob, Handlers, Job, JobError, OwnershipLost, SyncAttempt, Worker

pytestmark = pytest.mark.drivers


class Last(Job[str], name="last"):
    pass


class First(EntryJob[str, Last], name="first"):
    pass


class Waiting(EntryJob[str], name="waiting"):
    first: Chain[First]


class Started(EntryJob[str], name="started"):
    pass


JOBS = [First, Waiting, Started]


def never(handlers: Handlers[Any], *types: Any) -> list[str]:
    """Handlers for jobs that must not run; those that do are listed."""
    ran: list[str] = []
    for job_type in types:

        async def handler(attempt: Attempt[Any]) -> str:
            ran.append(attempt.job_type)
            return "ran"

        handlers.handles(job_type)(handler)
    return ran


async def test_an_error_after_complete_undoes_everything(setting: Setting) -> None:
    """The user's writes, the chain he started, the continuation, the unblocking of dependents."""
    handlers = Handlers()
    ran = never(handlers, Last, Waiting, Started)

    @handlers.handles(First, max_attempts=1)
    async def first(attempt: Attempt[First]) -> Last:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "completed")
            await attempt.client.start(tx, Started())
        raise RuntimeError("after complete()")

    async with working(setting, JOBS, handlers, concurrency=5) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, First())
            waiting = await client.start(tx, Waiting(first=chain))
        assert (await failure(client, chain))["message"] == "after complete()"
        assert [record.status for record in await jobs_of(client, chain)] == ["failed"]
        assert (await job(client, waiting)).status == "blocked"
        assert await ledger(client) == []
        assert (await client.list_jobs(Started)).items == []
        assert ran == []


async def test_attributes_of_an_error_are_recorded_if_they_are_json(setting: Setting) -> None:
    class Declined(Exception):
        def __init__(self, reason: str, response: object) -> None:
            super().__init__(reason)
            self.reason = reason
            self.details = {"tries": [1, 2.5, None], "text": "€ \0"}
            self.response = response

    handlers = Handlers()

    @handlers.handles(First, max_attempts=1)
    async def first(attempt: Attempt[First]) -> Last:
        raise Declined("stolen", object())

    async with working(setting, JOBS, handlers) as client:
        error = await failed(client, First())
        assert error["attributes"] == {"reason": "stolen", "details": {"tries": [1, 2.5, None], "text": "€ \\0"}}


async def test_the_job_is_rescheduled_with_its_error_and_then_completes_once(setting: Setting) -> None:
    handlers = Handlers()
    seen: list[tuple[int, Any]] = []

    @handlers.handles(First)
    async def first(attempt: Attempt[First]) -> Last:
        seen.append((attempt.number, attempt.last_error and attempt.last_error["message"]))
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"attempt {attempt.number}")
        if attempt.number < 3:
            raise RuntimeError(f"no {attempt.number}")
        return Last()

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> str:
        return "done"

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, First())
        assert await output(client, chain) == "done"
        assert seen == [(1, None), (2, "no 1"), (3, "no 2")]
        assert await ledger(client) == ["attempt 3"]
        record = await job(client, chain)
        assert (record.attempt_number, record.last_error) == (3, None)  # success clears the error
        assert len(await jobs_of(client, chain)) == 2


@pytest.mark.parametrize("phase", ["prepare", "complete"])
@pytest.mark.parametrize("mode", ["atomic", "staged"])
async def test_an_error_in_a_phase_fails_the_attempt_even_if_it_is_swallowed(
    setting: Setting, phase: str, mode: Any
) -> None:
    handlers = Handlers()

    @handlers.handles(First, max_attempts=1)
    async def first(attempt: Attempt[First]) -> Any:
        try:
            async with attempt.prepare(mode) as tx:
                await write(attempt.client, tx, "prepared")
                if phase == "prepare":
                    raise RuntimeError("in prepare")
            async with attempt.complete() as tx:
                await write(attempt.client, tx, "completed")
                raise RuntimeError("in complete")
        except RuntimeError:
            return Last()

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, First())
        assert (await failure(client, chain))["message"] == f"in {phase}"
        assert len(await jobs_of(client, chain)) == 1
        assert await ledger(client) == (["prepared"] if (phase, mode) == ("complete", "staged") else [])


async def test_after_a_swallowed_error_the_database_is_free_and_complete_has_no_effect(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(First, max_attempts=1)
    async def first(attempt: Attempt[First]) -> Any:
        with pytest.raises(RuntimeError):
            async with attempt.prepare("staged"):
                raise RuntimeError("in prepare")
        async with attempt.client.transaction() as tx:  # would wait for the failed phase, if that held on
            await write(attempt.client, tx, "beside")
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "completed")
        return Last()

    async with working(setting, JOBS, handlers) as client:
        assert (await failed(client, First()))["message"] == "in prepare"
        assert await ledger(client) == ["beside"]


async def test_a_part_that_may_fail_goes_into_a_savepoint(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Started)
    async def started(attempt: Attempt[Started]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "kept")
            with pytest.raises(ZeroDivisionError):
                async with attempt.client.savepoint(tx):
                    await write(attempt.client, tx, "undone")
                    raise ZeroDivisionError
            return "done"

    async with working(setting, JOBS, handlers) as client:
        assert await outcome(client, Started()) == "done"
        assert await ledger(client) == ["kept"]


async def test_nobody_hears_of_what_was_rolled_back(setting: Setting) -> None:
    """A worker that is told of a job finds it; here the only announcement of the job would be that of the rollback."""
    handlers, heard = Handlers(), list[str]()

    @handlers.handles(First, max_attempts=1)
    async def first(attempt: Attempt[First]) -> Last:
        async with attempt.complete() as tx:
            await attempt.client.start(tx, Started())
        raise RuntimeError("after complete()")

    async with working(setting, JOBS, handlers) as client:
        dispose = await client.sessions.channel.listen("job_scheduled", heard.append)
        await failed(client, First())
        if setting.notify:  # whoever waits may have polled, and be quicker than the message
            await eventually(lambda: "first" in heard)
        await dispose()
        assert "started" not in heard
        assert heard.count("first") == (1 if setting.notify else 0)


async def test_the_worker_goes_on_after_errors_in_all_its_slots(setting: Setting) -> None:
    handlers = Handlers()
    attempts: list[int] = []

    @handlers.handles(Started)
    async def started(attempt: Attempt[Started]) -> str:
        attempts.append(attempt.number)
        await asyncio.sleep(0)
        if attempt.number == 1:
            raise RuntimeError("first time")
        return "done"

    async with working(setting, JOBS, handlers, concurrency=4) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Started() for _ in range(20)])
        assert [await output(client, chain) for chain in chains] == ["done"] * 20
        assert sorted(attempts) == [1] * 20 + [2] * 20


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
@pytest.mark.parametrize("where", ["handler", "complete"])
async def test_nothing_that_a_handler_raises_ends_the_worker(
    setting: Setting, error: BaseException, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers()

    @handlers.handles(Started)
    async def started(attempt: Attempt[Started]) -> str:
        if attempt.number == 1:
            if where == "handler":
                raise error
            async with attempt.complete() as tx:
                await write(attempt.client, tx, "lost")
                raise error
        return "done"

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, Started())
        assert await output(client, chain) == "done"
        record = await job(client, chain)
        assert record.attempt_number == 2
        ((code, seen),) = failures(caplog, chain.id)
        assert (type(seen), code) == (type(error), "UNHANDLED_ERROR")
        assert await ledger(client) == []


async def test_a_cancelled_task_inside_the_handler_is_an_ordinary_error(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Started, max_attempts=1)
    async def started(attempt: Attempt[Started]) -> str:
        forever = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        forever.cancel()
        await forever
        return "done"

    async with working(setting, JOBS, handlers) as client:
        assert (await failed(client, Started()))["type"] == "CancelledError"


async def test_an_own_ownership_lost_of_another_job_is_an_ordinary_error(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Started, max_attempts=1)
    async def started(attempt: Attempt[Started]) -> str:
        raise OwnershipLost("another job", "cancelled")

    async with working(setting, JOBS, handlers) as client:
        assert (await failed(client, Started()))["type"] == "OwnershipLost"


async def test_an_input_that_no_longer_fits_its_class_is_recorded(setting: Setting) -> None:
    class Old(EntryJob[int], name="changing"):
        number: str

    class New(EntryJob[int], name="changing"):
        number: int

    async with setting.connect([Old]) as old:
        chain = await begin(old, Old(number="seven"))
        handlers = Handlers()

        @handlers.handles(New, max_attempts=2)
        async def new(attempt: Attempt[New]) -> int:
            return attempt.job.number

        async with working(setting, [New], handlers) as client:
            error = await failure(client, chain)
            assert (error["code"], error["type"]) == ("SERIALIZATION_ERROR", "JobTypeValidationError")
            assert (await job(client, chain)).attempt_number == 2
            await eventually(lambda: _nothing_running(client))


async def _nothing_running(client: Any) -> bool:
    return not (await client.list_jobs(status="running")).items


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even this")


def _deep_group() -> BaseException:
    group: Any = ValueError("innermost")
    for _ in range(2000):
        group = ExceptionGroup("a group", [group])
    return group  # type: ignore[no-any-return]


def _own_cause() -> BaseException:
    error = ValueError("its own cause")
    error.__cause__ = error
    return error


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_errors_that_cannot_be_shown_or_stored_are_recorded_all_the_same(
    setting: Setting, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is logged here cannot be sent to the process that collects the reports of the tests.
    monkeypatch.setattr(logging.getLogger("queuert.worker"), "propagate", False)
    handlers = Handlers()
    code: Any = 42
    errors = [Unprintable(), _deep_group(), _own_cause(), JobError(code), ValueError("\0 \ud800" + "x" * 10**6)]

    class Raising(EntryJob[str], name="raising"):
        number: int

    if plain:

        @handlers.handles(Raising, max_attempts=1)
        def in_thread(attempt: SyncAttempt[Raising]) -> str:
            raise errors[attempt.job.number]
    else:

        @handlers.handles(Raising, max_attempts=1)
        async def raising(attempt: Attempt[Raising]) -> str:
            raise errors[attempt.job.number]

    async with working(setting, [Raising], handlers) as client:
        for number, error in enumerate(errors):
            recorded = await failed(client, Raising(number=number))
            assert recorded["type"] == type(error).__name__
            assert len(recorded["message"]) <= 10_000


@pytest.mark.parametrize("swallow", [False, True])
async def test_a_staged_prepare_that_cannot_commit_fails_the_attempt(
    setting: Setting, swallow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, points = Handlers(), Points()

    @handlers.handles(Started)
    async def started(attempt: Attempt[Started]) -> str:
        try:
            async with attempt.prepare("staged") as tx:
                await write(attempt.client, tx, f"prepared {attempt.number}")
                if attempt.number == 1:
                    # While this transaction is open nobody else commits, so it is the one to fail.
                    points.fail("commit", RuntimeError("no commit"))
        except RuntimeError:
            if not swallow:
                raise
        return "done"

    async with setting.connect(JOBS) as inner:
        client = watched(inner, points)
        async with Worker(client, handlers, poll_interval=setting.poll_interval, backoff=SOON):
            chain = await begin(client, Started())
            assert await output(client, chain) == "done"
            record = await job(client, chain)
            ((_, seen),) = failures(caplog, chain.id)
            assert (record.attempt_number, str(seen)) == (2, "no commit")
            assert await ledger(client) == ["prepared 2"]
