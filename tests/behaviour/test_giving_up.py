"""Giving up on purpose: errors after which a job fails at once, and how many attempts it has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import job
from tests.behaviour.watching import Points, watched
from tests.behaviour.working import begin, failed, failure, output, working
from tests.support.worlds import run

from queuert import Attempt, EntryJob, Handlers, InvalidArgument, JobError, Reschedule, SyncAttempt, Worker
from queuert.records.model import ClaimRequest, QueueLimit, TypeLimit

pytestmark = pytest.mark.in_turn


class Try(EntryJob[str], name="try"):
    number: int = 0


class Other(EntryJob[str], name="other"):
    pass


class Third(EntryJob[str], name="third"):
    pass


class NotFound(LookupError):
    pass


@pytest.mark.parametrize("plain", [False, True], ids=["async", "def"])
async def test_a_job_error_without_retry_fails_the_job_at_once(setting: Setting, plain: bool) -> None:
    handlers, ran = Handlers[Any](), list[int]()
    if plain:

        @handlers.handles(Try)
        def in_thread(attempt: SyncAttempt[Try]) -> str:
            ran.append(attempt.number)
            raise JobError("CARD_DECLINED", "no money", retry=False)
    else:

        @handlers.handles(Try)
        async def handler(attempt: Attempt[Try]) -> str:
            ran.append(attempt.number)
            raise JobError("CARD_DECLINED", "no money", retry=False)

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        error = await failure(client, chain)
        assert (error["code"], error["message"], ran) == ("CARD_DECLINED", "no money", [1])
        record = await job(client, chain)
        assert (record.status, record.attempt_number) == ("failed", 1)


@pytest.mark.drivers
async def test_what_complete_wrote_before_giving_up_is_undone(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Try)
    async def handler(attempt: Attempt[Try]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "lost")
            raise JobError("CARD_DECLINED", retry=False)

    async with working(setting, [Try], handlers) as client:
        assert (await failed(client, Try()))["code"] == "CARD_DECLINED"
        assert await ledger(client) == []


async def test_errors_to_give_up_on_by_class_and_by_code(setting: Setting) -> None:
    errors = [
        NotFound("gone"),  # a subclass
        JobError("CARD_DECLINED"),
        JobError("RATE_LIMITED"),  # not one of them
        ValueError("nor this"),
    ]
    handlers, ran = Handlers[Any](), list[tuple[int, int]]()

    @handlers.handles(Try, max_attempts=2, give_up_on=(LookupError, "CARD_DECLINED"))
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append((attempt.job.number, attempt.number))
        raise errors[attempt.job.number]

    async with working(setting, [Try], handlers) as client:
        codes = [(await failed(client, Try(number=number)))["code"] for number in range(4)]
        assert codes == ["UNHANDLED_ERROR", "CARD_DECLINED", "RATE_LIMITED", "UNHANDLED_ERROR"]
        assert ran == [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1), (3, 2)]


@pytest.mark.parametrize(("given", "runs"), [((), [1]), ((KeyError,), [1]), (None, [1, 2])])
async def test_giving_up_on_results_that_can_never_be_stored(setting: Setting, given: Any, runs: list[int]) -> None:
    """The default, whatever else it gives up on; a handler may ask for a retry."""
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Try, give_up_on=given, max_attempts=2)
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append(attempt.number)
        return 7  # type: ignore[return-value]

    async with working(setting, [Try], handlers) as client:
        assert (await failed(client, Try()))["code"] == "INVALID_OUTPUT"
        assert ran == runs


async def test_giving_up_on_a_timeout(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Try, timeout=0.02, give_up_on=("TIMEOUT",))
    async def handler(attempt: Attempt[Try]) -> str:
        await attempt.signal.wait()
        raise RuntimeError("too late")

    async with working(setting, [Try], handlers) as client:
        chain = await begin(client, Try())
        assert (await failure(client, chain))["code"] == "TIMEOUT"
        assert (await job(client, chain)).attempt_number == 1


async def test_a_job_whose_worker_was_lost_fails_at_its_next_claim(setting: Setting) -> None:
    """The worker that dies in the middle is played by a claim that nobody renews."""
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Try, give_up_on=("LEASE_EXPIRED",))
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append(attempt.number)
        return "done"

    async with setting.connect([Try]) as client:
        chain = await begin(client, Try())
        queue = QueueLimit("default", 0, (TypeLimit("try", 1, 0.001),), ("try",))
        await run(client, client._engine.state.claim(ClaimRequest("mortal", 1, (queue,))))
        async with Worker(client, handlers, poll_interval=0.02, lease=30, renew_interval=0.05):
            assert (await failure(client, chain))["code"] == "LEASE_EXPIRED"
            assert ran == []
            async with client.transaction() as tx:
                await client.retry(tx, chain)  # the old error does not count any more
            assert await output(client, chain) == "done"
            assert ran == [1]


async def test_a_time_that_the_handler_chose_is_not_giving_up(setting: Setting) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Try, give_up_on=(LookupError,))
    async def handler(attempt: Attempt[Try]) -> str:
        ran.append(attempt.number)
        if attempt.number == 1:
            raise Reschedule(after=0, cause=NotFound())
        return "found"

    async with working(setting, [Try], handlers) as client:
        assert await output(client, await begin(client, Try())) == "found"
        assert ran == [1, 2]


async def test_max_attempts_of_handler_registry_and_worker(setting: Setting) -> None:
    by_registry, by_worker, ran = Handlers[Any](max_attempts=2), Handlers[Any](), list[str]()

    async def fail(attempt: Attempt[Any]) -> str:
        ran.append(attempt.job_type)
        raise RuntimeError

    by_registry.handles(Try, max_attempts=1)(fail)
    by_registry.handles(Other)(fail)
    by_worker.handles(Third)(fail)
    async with working(setting, [Try, Other, Third], [by_registry, by_worker], max_attempts=3) as client:
        for entry in (Try(), Other(), Third()):
            await failed(client, entry)
        assert ran == ["try", "other", "other", "third", "third", "third"]


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3"])
async def test_a_wrong_max_attempts_is_refused(wrong: Any) -> None:
    handlers = Handlers[Any]()
    with pytest.raises(InvalidArgument, match="max_attempts must be a number of 1 or more"):
        Handlers[Any](max_attempts=wrong)
    with pytest.raises(InvalidArgument, match="max_attempts must be a number of 1 or more"):
        handlers.handles(Try, max_attempts=wrong)(lambda attempt: "")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("CARD_DECLINED", "takes a tuple"),
        (ValueError, "takes a tuple"),
        (7, "takes a tuple"),
        ((int,), "takes exception classes and error codes, got"),
        ((ValueError("instance"),), "takes exception classes and error codes, got"),
        (("",), "must not be empty"),
        ((Reschedule,), "asks for another run"),
    ],
)
def test_what_cannot_be_given_up_on_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        Handlers[Any]().handles(Try, give_up_on=wrong)(lambda attempt: "")
    assert "'try'" in str(caught.value)


async def test_a_lease_that_ended_unrenewed_is_an_error_to_give_up_on(setting: Setting) -> None:
    """The worker is alive, and notices it itself."""
    points, handlers, reasons = Points(), Handlers[Any](), list[Any]()

    @handlers.handles(Try, give_up_on=("LEASE_EXPIRED",))
    async def handler(attempt: Attempt[Try]) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(attempt.signal.reason)
            points.mend("renew")
        return "never"

    async with watched(setting.connect([Try]), points) as client:
        points.fail_times("renew", 100_000)
        async with Worker(client, handlers, lease=1, renew_interval=0.05, poll_interval=0.05):
            error = await failed(client, Try())
        assert (error["code"], error["type"], reasons) == ("LEASE_EXPIRED", "TimeoutError", ["lease_lost"])
