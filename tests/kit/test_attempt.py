"""`testing.attempt`: one call of a handler, without a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, assert_type

import pytest
from tests.kit.conftest import Place
from tests.kit.shop import JOBS, WHO, Charge, Convert, Note, Rate, Send, charge, convert, handlers, note

from queuert import (
    Attempt,
    BaseAttempt,
    Chain,
    Handlers,
    InvalidArgument,
    JobError,
    JobTypeValidationError,
    Middleware,
    Reschedule,
    SyncAttempt,
    TransactionMisused,
    testing,
)


async def test_what_a_handler_continued_with_and_started(place: Place) -> None:
    async with place.connect(JOBS) as client:
        result = await testing.attempt(charge, Charge(order_id=7), client=client)
        assert result.continued == Send(order_id=7)
        assert (result.status, result.phases, result.mode) == ("completed", ("complete",), "atomic")
        result.started.only(Note(text="charged 7"))
        assert len((await client.list_chains(Note)).items) == 1, "it is kept"
        assert not (await client.list_chains(Charge)).items, "the job itself is not stored"
        with pytest.raises(AssertionError, match=r"it continued with Send\(order_id=7\)"):
            _ = result.returned


async def test_results_are_typed() -> None:
    result = await testing.attempt(charge, Charge(order_id=7), handlers=handlers)
    assert_type(result.continued, Send)
    nothing = await testing.attempt(charge, Charge(order_id=7, amount=0))
    assert_type(nothing.returned, str)
    assert_type(testing.attempt_sync(note, Note(text="")).returned, None)
    async with Place("memory", "memory://").connect(JOBS) as client:
        with testing.started(client) as started:
            await client.submit(Rate(currency="EUR"))
        assert_type(started.only(Rate(currency="EUR")), Chain[Rate])
        assert_type(started.of(Rate), list[Rate])


async def test_what_is_not_kept_is_rolled_back(place: Place) -> None:
    async with place.connect(JOBS) as client:
        result = await testing.attempt(charge, Charge(order_id=7), client=client, keep=False)
        assert result.continued == Send(order_id=7)
        result.started.nothing()
        assert not (await client.list_chains(Note)).items


async def test_plain_handlers_and_their_phases(place: Place) -> None:
    async with place.connect(JOBS) as client:
        result = await testing.attempt(note, Note(text="rates"), client=client)
        assert result.returned is None
        assert (result.phases, result.mode) == (("prepare", "complete"), "staged")
        result.started.only(Rate(currency="EUR"))
        assert len((await client.list_chains(Rate)).items) == 1


def test_sync_code_has_the_same(place: Place) -> None:
    with place.connect_sync(JOBS) as client:
        result = testing.attempt_sync(note, Note(text="rates"), client=client)
        assert (result.returned, result.phases, result.mode) == (None, ("prepare", "complete"), "staged")
        assert len(client.list_chains(Rate).items) == 1
        assert testing.attempt_sync(note, Note(text="rates"), client=client, keep=False).returned is None
        assert len(client.list_chains(Rate).items) == 1
    assert testing.attempt_sync(note, Note(text="no client")).returned is None


def test_sync_code_cannot_run_an_async_handler() -> None:
    wrong: Any = charge
    with pytest.raises(InvalidArgument, match="plain `def` handler"):
        testing.attempt_sync(wrong, Charge(order_id=7))


async def test_an_error_is_raised_where_the_result_is_expected() -> None:
    result = await testing.attempt(charge, Charge(order_id=7, amount=-1))
    assert isinstance(result.raised, JobError)
    assert (result.status, result.phases, result.mode) == ("pending", (), None)
    with pytest.raises(JobError, match="negative"):
        _ = result.continued


async def test_the_settings_of_the_registry_decide_about_a_retry() -> None:
    job = Charge(order_id=7, amount=-1)
    second = await testing.attempt(charge, job, handlers=handlers, number=2)
    assert (second.status, second.retry_in) == ("pending", 120)
    last = await testing.attempt(charge, job, handlers=handlers, number=5)
    assert (last.status, last.retry_in) == ("failed", None)
    with pytest.raises(InvalidArgument, match="another handler"):
        await testing.attempt(charge, job, handlers=Handlers())


async def test_a_handler_sees_its_number_and_the_last_error() -> None:
    async def look(attempt: Attempt[Charge]) -> str:
        assert attempt.last_error is not None
        assert attempt.values[WHO] == "me"
        return f"{attempt.number} {attempt.last_error['code']} {attempt.may_have_run}"

    error = JobError("REFUSED", "no")
    result = await testing.attempt(look, Charge(order_id=7), number=3, last_error=error, values={WHO: "me"})
    assert result.returned == "3 REFUSED True"


async def test_chains_that_a_job_waits_for_have_their_outputs() -> None:
    result = await testing.attempt(convert, Convert(amount=2, rate=testing.completed(Rate, 1.5)))
    assert result.returned == 3.0


async def test_a_result_that_cannot_be_stored_is_an_error() -> None:
    async def wrong(attempt: Attempt[Charge]) -> Any:
        async with attempt.complete():
            return object()

    async def wrong_job(attempt: Attempt[Charge]) -> Any:
        return Note(text="not a continuation")

    for handler in (wrong, wrong_job):
        result = await testing.attempt(handler, Charge(order_id=7))
        assert isinstance(result.raised, JobTypeValidationError)
        assert result.status == "failed"


async def test_a_transaction_that_is_left_open_is_an_error() -> None:
    async def leaves(attempt: Attempt[Charge]) -> str:
        block = attempt.client.transaction()
        await block.__aenter__()
        attempt.values[WHO_BLOCK] = block
        return "done"

    from queuert import Key

    WHO_BLOCK = Key[Any]("block")
    result = await testing.attempt(leaves, Charge(order_id=7))
    assert isinstance(result.raised, TransactionMisused)


async def test_a_handler_that_asks_for_another_time() -> None:
    async def later(attempt: Attempt[Charge]) -> str:
        raise Reschedule(after=90)

    result = await testing.attempt(later, Charge(order_id=7))
    assert isinstance(result.raised, Reschedule)
    assert (result.status, result.retry_in) == ("pending", 90)


class Shouting(Middleware):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def wrap_handler(self, attempt: BaseAttempt[Any, Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        self.seen.append("before")
        attempt.values[WHO] = "middleware"
        result = await call_next()
        self.seen.append("after")
        return result.upper()


@pytest.mark.parametrize("kind", ["async", "thread", "sync"])
async def test_the_middleware_of_the_registry_runs(kind: str) -> None:
    shouting = Shouting()
    registry = Handlers[Any](middleware=[shouting])

    async def in_task(attempt: Attempt[Charge]) -> str:
        return attempt.values[WHO]

    def in_thread(attempt: SyncAttempt[Charge]) -> str:
        with attempt.complete():
            return attempt.values[WHO]

    job = Charge(order_id=7)
    if kind == "async":
        registry.handles(Charge)(in_task)
        result = await testing.attempt(in_task, job, handlers=registry)
    else:
        registry.handles(Charge)(in_thread)
        if kind == "thread":
            result = await testing.attempt(in_thread, job, handlers=registry)
        else:
            result = testing.attempt_sync(in_thread, job, handlers=registry)
    assert result.returned == "MIDDLEWARE"
    assert shouting.seen == ["before", "after"]
