"""Failed attempts are repeated: after a backoff, at a time of the handler's own, and up to so many times."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import Gate, eventually, job
from tests.behaviour.working import begin, failed, failure, outcome, output, working

from queuert import Attempt, Backoff, ChainFailed, EntryJob, Handlers, JobError, Reschedule, SyncAttempt, Worker

pytestmark = pytest.mark.in_turn


class Try(EntryJob[str], name="try"):
    number: int = 0


class Other(EntryJob[str], name="other"):
    pass


async def test_max_attempts_then_failed_and_retry_brings_it_back(setting: Setting) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Try, max_attempts=3)
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append(attempt.number)
        if len(ran) < 5:
            raise ValueError(f"attempt {attempt.number}")
        return "at last"

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        with pytest.raises(ChainFailed, match="UNHANDLED_ERROR: attempt 3") as caught:
            await output(client, chain)
        error = caught.value.last_error
        assert error is not None
        assert {"code", "type", "message", "traceback"} == set(error)
        assert (error["type"], "ValueError: attempt 3" in str(error["traceback"])) == ("ValueError", True)
        record = await job(client, chain)
        assert (record.status, record.attempt_number, record.leased_by) == ("failed", 3, None)
        async with client.transaction() as tx:
            (revived,) = await client.retry(tx, chain)
        assert revived.status == "pending"
        assert await output(client, chain) == "at last"
        assert ran == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_reschedule_without_a_cause_costs_no_attempt(setting: Setting, plain: bool) -> None:
    handlers, ran = Handlers[Any](), list[tuple[int, bool]]()

    def work(attempt: Attempt[Try] | SyncAttempt[Try]) -> str:
        ran.append((attempt.number, attempt.may_have_run))
        if len(ran) < 5:
            raise Reschedule(after=0)
        raise ValueError("now it fails")

    if plain:
        handlers.handles(Try, max_attempts=1)(lambda attempt: work(attempt))
    else:

        @handlers.handles(Try, max_attempts=1)
        async def handler(attempt: Attempt[Try]) -> str:
            return work(attempt)

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        assert (await failure(client, chain))["message"] == "now it fails"
        assert ran == [(1, False), (1, True), (1, True), (1, True), (1, True)]
        assert (await job(client, chain)).attempt_number == 1


@pytest.mark.parametrize("how", ["cause=", "from"])
async def test_reschedule_with_a_cause_is_a_failed_attempt(setting: Setting, how: str) -> None:
    handlers, ran = Handlers[Any](), list[tuple[int, Any]]()

    @handlers.handles(Try, max_attempts=3)
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append((attempt.number, attempt.last_error and attempt.last_error["message"]))
        cause = JobError("RATE_LIMITED", f"slow down {attempt.number}")
        if how == "from":
            raise Reschedule(after=0) from cause
        raise Reschedule(after=0, cause=cause)

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        error = await failure(client, chain)
        assert (error["code"], error["message"]) == ("RATE_LIMITED", "slow down 3")
        assert ran == [(1, None), (2, "slow down 1"), (3, "slow down 2")]
        assert (await job(client, chain)).attempt_number == 3


async def test_may_have_run_is_true_after_every_run_that_began(setting: Setting) -> None:
    handlers, ran = Handlers[Any](), list[tuple[int, bool]]()

    @handlers.handles(Try, max_attempts=2)
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append((attempt.number, attempt.may_have_run))
        if len(ran) in (1, 2):
            raise ValueError
        return "done"

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        await failure(client, chain)
        async with client.transaction() as tx:
            await client.retry(tx, chain)
        assert await output(client, chain) == "done"
        assert ran == [(1, False), (2, True), (1, True)]


async def test_a_job_that_only_rescheduled_and_ran_out_has_lost_no_worker(setting: Setting) -> None:
    """Earlier versions of the library have counted such runs."""
    from tests.support.worlds import run

    from queuert.records.model import ClaimRequest, QueueLimit, Settlement, TypeLimit

    handlers = Handlers[Any]()

    @handlers.handles(Try, max_attempts=2)
    async def handler(attempt: Attempt[Try]) -> str:
        return "never"

    async with setting.connect([Try]) as client:
        chain = await begin(client, Try())
        queue = QueueLimit("default", 0, (TypeLimit("try", 1, 60),), ("try",))
        state = client._engine.state
        for _ in range(2):
            (claimed,) = (await run(client, state.claim(ClaimRequest("old-version", 1, (queue,))))).jobs
            await run(client, state.settle([Settlement(job_id=chain.id, token=claimed.job.token, status="pending")]))
        async with Worker(client, handlers, poll_interval=0.02):
            error = await failure(client, chain)
        assert (error["code"], error["message"]) == (
            "ATTEMPTS_EXHAUSTED",
            "all 2 attempts ended without a result",
        )


async def test_the_backoff_of_handler_registry_and_worker(setting: Setting) -> None:
    hour = timedelta(hours=1)
    by_registry = Handlers[Any](backoff=Backoff(initial=2 * hour, maximum=10 * hour))
    by_worker = Handlers[Any]()

    async def fail(attempt: Attempt[Any]) -> str:
        raise RuntimeError

    class Third(EntryJob[str], name="third"):
        pass

    by_registry.handles(Try, backoff=Backoff(initial=hour, maximum=10 * hour))(fail)
    by_registry.handles(Other)(fail)
    by_worker.handles(Third)(fail)
    async with working(
        setting, [Try, Other, Third], [by_registry, by_worker], backoff=Backoff(initial=3 * hour, maximum=10 * hour)
    ) as client:
        for entry, delay in ((Try(), hour), (Other(), 2 * hour), (Third(), 3 * hour)):
            chain = await begin(client, entry)
            await eventually(lambda chain=chain: _has_failed(client, chain))  # type: ignore[misc]
            record = await job(client, chain)
            assert record.status == "pending"
            assert record.last_attempt_at is not None
            late = record.scheduled_at - record.last_attempt_at - delay
            assert timedelta() <= late < timedelta(minutes=5)


async def _has_failed(client: Any, chain: Any) -> bool:
    return (await job(client, chain)).last_error is not None


async def test_reschedule_sets_the_time_and_records_its_cause(setting: Setting) -> None:
    handlers = Handlers[Any]()
    later = datetime.now(UTC) + timedelta(days=1)
    asked: list[Any] = [
        Reschedule(at=later),
        Reschedule(after=timedelta(days=1), cause=JobError("RATE_LIMITED", "slow down")),
    ]

    @handlers.handles(Try)
    async def handler(attempt: Attempt[Try]) -> str:
        if attempt.job.number == 2:
            try:
                raise ValueError("the reason")
            except ValueError as error:
                raise Reschedule(at=later) from error
        raise asked[attempt.job.number]

    async with working(setting, [Try], handlers) as client:
        records = []
        for number in range(3):
            chain = await begin(client, Try(number=number))
            await eventually(lambda chain=chain: _is_put_back(client, chain))  # type: ignore[misc]
            records.append(await job(client, chain))
        assert (records[0].scheduled_at, records[0].last_error) == (later, None)
        assert [record.attempt_number for record in records] == [0, 1, 1]
        assert all(record.last_attempt_at is not None for record in records)
        assert abs(records[1].scheduled_at - later) < timedelta(minutes=5)
        assert [
            record.last_error and (record.last_error["code"], record.last_error["message"]) for record in records
        ] == [
            None,
            ("RATE_LIMITED", "slow down"),
            ("UNHANDLED_ERROR", "the reason"),
        ]


async def _is_put_back(client: Any, chain: Any) -> bool:
    record = await job(client, chain)
    return bool(record.status == "pending" and record.last_attempt_at is not None)


@pytest.mark.drivers
async def test_reschedule_undoes_what_complete_wrote(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Try)
    async def handler(attempt: Attempt[Try]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"again: {attempt.may_have_run}")
            if not attempt.may_have_run:
                raise Reschedule(after=0.01)
        return "done"

    async with working(setting, [Try], handlers) as client:
        assert await outcome(client, Try()) == "done"
        assert await ledger(client) == ["again: True"]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_a_time_that_is_none_fails_the_attempt(setting: Setting, plain: bool) -> None:
    handlers = Handlers[Any]()
    naive = datetime(2030, 1, 1)  # noqa: DTZ001
    wrong: list[dict[str, Any]] = [
        {"after": -1},
        {"after": float("nan")},
        {"after": float("inf")},
        {"after": 1e300},
        {"after": timedelta.max},
        {"after": "soon"},
        {"at": naive},
        {"at": "tomorrow"},
        {},
        {"after": 1, "at": datetime.now(UTC)},
    ]
    if plain:

        @handlers.handles(Try, max_attempts=1)
        def in_thread(attempt: SyncAttempt[Try]) -> str:
            raise Reschedule(**wrong[attempt.job.number])
    else:

        @handlers.handles(Try, max_attempts=1)
        async def handler(attempt: Attempt[Try]) -> str:
            raise Reschedule(**wrong[attempt.job.number])

    async with working(setting, [Try], handlers, concurrency=3) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Try(number=number) for number in range(len(wrong))])
        for chain in chains:
            assert (await failure(client, chain))["type"] == "InvalidArgument"


async def test_a_job_error_has_a_code_of_its_own(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Try, max_attempts=1)
    async def handler(attempt: Attempt[Try]) -> str:
        raise JobError("CARD_DECLINED", "no money") if attempt.job.number else JobError("CARD_DECLINED")

    async with working(setting, [Try], handlers) as client:
        for number, message in ((0, "CARD_DECLINED"), (1, "no money")):
            error = await failed(client, Try(number=number))
            assert (error["code"], error["message"]) == ("CARD_DECLINED", message)


@pytest.mark.drivers
async def test_a_timeout_cancels_an_async_handler(setting: Setting) -> None:
    handlers = Handlers[Any]()
    cleaned: list[Any] = []

    @handlers.handles(Try, max_attempts=1, timeout=0.05)
    async def handler(attempt: Attempt[Try]) -> str:
        try:
            async with attempt.complete() as tx:
                await write(attempt.client, tx, "lost")
                await asyncio.Event().wait()
        finally:
            cleaned.append(attempt.signal.reason)
        return "never"

    async with working(setting, [Try], handlers) as client:
        error = await failed(client, Try())
        assert (error["code"], error["type"]) == ("TIMEOUT", "TimeoutError")
        assert "0.05" in error["message"]
        assert "CancelledError" in error["traceback"]
        assert cleaned == ["timeout"]
        assert await ledger(client) == []


async def test_a_handler_that_swallows_its_cancellation_has_returned(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Try, max_attempts=1, timeout=0.02)
    async def handler(attempt: Attempt[Try]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "just in time"
        return "never"

    async with working(setting, [Try], handlers) as client:
        assert await outcome(client, Try()) == "just in time"


async def test_what_a_timed_out_handler_raises_itself_is_kept(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Try, max_attempts=1, timeout=0.02)
    async def handler(attempt: Attempt[Try]) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("during clean-up")

    async with working(setting, [Try], handlers) as client:
        error = await failed(client, Try())
        assert (error["code"], error["message"]) == ("TIMEOUT", "during clean-up")


async def test_a_handler_in_time_hears_nothing_of_its_timeout(setting: Setting) -> None:
    handlers = Handlers[Any]()
    signals: list[Any] = []

    @handlers.handles(Try, timeout=3600)
    async def handler(attempt: Attempt[Try]) -> str:
        await asyncio.sleep(0)
        signals.append(attempt.signal)
        return "done"

    async with working(setting, [Try], handlers) as client:
        assert await outcome(client, Try()) == "done"
        assert signals[0].reason is None


async def test_a_timeout_only_tells_a_plain_handler_and_its_slot_stays_busy(setting: Setting) -> None:
    handlers = Handlers[Any]()
    told, go_on = Gate(), threading.Event()
    loop = asyncio.get_running_loop()
    ran: list[str] = []

    @handlers.handles(Try, max_attempts=1, timeout=0.02)
    def handler(attempt: SyncAttempt[Try]) -> str:
        reason = attempt.signal.wait_in_thread(45)
        loop.call_soon_threadsafe(told.reached.set)
        assert go_on.wait(45)
        ran.append("try")
        if attempt.job.number:
            raise RuntimeError(reason)
        return f"stopped by {reason}"

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> str:
        ran.append("other")
        return "other"

    async with working(setting, [Try, Other], handlers) as client:
        chain = await begin(client, Try())
        await told.arrival()
        beside = await begin(client, Other())
        for _ in range(20):
            await asyncio.sleep(0)
        assert ran == []
        go_on.set()
        assert await output(client, chain) == "stopped by timeout"
        assert await output(client, beside) == "other"
        assert ran == ["try", "other"]
        error = await failed(client, Try(number=1))
        assert (error["code"], error["message"]) == ("TIMEOUT", "timeout")


async def test_a_job_that_kills_its_worker_each_time_fails_in_the_end(setting: Setting) -> None:
    """Workers that die in the middle are played by claims that nobody renews."""
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Try)
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append(attempt.number)
        return "never"

    async with setting.connect([Try]) as client:
        chain = await begin(client, Try())
        for number in range(3):
            await _claim_and_die(client, chain, number + 1)
        worker = Worker(client, handlers, poll_interval=0.02, lease=60, renew_interval=0.05)
        async with worker:
            error = await failure(client, chain)
        assert error["code"] == "LEASE_EXPIRED"
        assert ran == []
        assert (await job(client, chain)).attempt_number == 4


async def _claim_and_die(client: Any, chain: Any, attempt: int) -> None:
    from tests.support.worlds import run

    from queuert.records.model import ClaimRequest, QueueLimit, TypeLimit

    queue = QueueLimit("default", 0, (TypeLimit("try", 1, 0.001),), ("try",))
    state = client._engine.state
    (claimed,) = (await run(client, state.claim(ClaimRequest("mortal", 1, (queue,))))).jobs
    assert (claimed.job.id, claimed.job.attempt) == (chain.id, attempt)
    if claimed.ordinal is not None:
        assert await run(client, state.begin_alone(chain.id, claimed.job.token or 0))
    if attempt < 3:
        error = b'{"code": "LEASE_EXPIRED", "message": "gone"}'
        await eventually(lambda: run(client, state.reap(["try"], [], 1, error)))
