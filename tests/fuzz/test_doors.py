"""Whatever is passed to a public function, the answer is a result or an error of the library."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import queuert
from queuert import (
    Backoff,
    Debounce,
    Dedup,
    EntryJob,
    Filter,
    Handlers,
    Queue,
    QueuertError,
    Reschedule,
    SyncAttempt,
    SyncClient,
    Throttle,
    Worker,
    testing,
)


class Step(EntryJob[int], name="step"):
    number: int


handlers = Handlers[Any]()


@handlers.handles(Step)
def step(attempt: SyncAttempt[Step]) -> int:
    return attempt.job.number


NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([0, 1, -1, 2**31, 2**63, -(2**63), 10**400]),
    st.floats(),
    st.decimals(),
)
MOMENTS = st.one_of(
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(),
    st.sampled_from([datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC), timedelta.max, timedelta.min]),
)
TEXTS = st.one_of(
    st.text(), st.text(alphabet=string.printable), st.binary(), st.sampled_from(["", "\0", "\ud800", "x" * 5000])
)
SINGLE = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    MOMENTS,
    TEXTS,
    st.just(object()),
    st.just(Step),
    st.builds(Step, number=st.integers()),
)
SEVERAL = st.one_of(st.lists(SINGLE, max_size=3), st.tuples(SINGLE, SINGLE))
ANYTHING = st.one_of(SINGLE, SEVERAL, st.dictionaries(st.text(), SINGLE, max_size=2))

quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)


def answers(call: Callable[[], Any]) -> None:
    with suppress(QueuertError):
        call()


@pytest.fixture(scope="module")
def client() -> Any:
    with queuert.connect_sync("memory://", jobs=[Step]) as client:
        yield client


STARTING = ["at", "after", "priority", "id", "deadline", "dedup"]
LISTING = ["where", "status", "ids", "created_after", "created_before", "order", "limit", "cursor"]


@quick
@given(option=st.sampled_from(STARTING), value=ANYTHING)
def test_options_of_a_start(client: SyncClient[Any], option: str, value: Any) -> None:
    answers(lambda: client.submit(Step(number=1), **{option: value}))
    answers(lambda: Step(number=1).set(**{option: value}))


@quick
@given(value=ANYTHING)
def test_jobs_and_transactions(client: SyncClient[Any], value: Any) -> None:
    answers(lambda: client.submit(value))
    answers(lambda: client.submit_many(value))
    answers(lambda: client.submit(Step(number=value)))
    answers(lambda: client.start(value, Step(number=1)))
    answers(lambda: client.cancel(value, value))
    with client.transaction() as tx:
        for change in (client.cancel, client.delete, client.trigger, client.retry):
            answers(lambda change=change: change(tx, value))  # type: ignore[misc]


@quick
@given(option=st.sampled_from(LISTING), value=ANYTHING)
def test_listings(client: SyncClient[Any], option: str, value: Any) -> None:
    for listing in (client.list_jobs, client.list_chains):
        answers(lambda listing=listing: listing(**{option: value}))  # type: ignore[misc]
        answers(lambda listing=listing: listing(value))  # type: ignore[misc]


@quick
@given(value=ANYTHING)
def test_reading(client: SyncClient[Any], value: Any) -> None:
    for read in (client.get_chain, client.get_job, client.get_blockers, client.why, client.list_chain_jobs):
        answers(lambda read=read: read(value))  # type: ignore[misc]
    answers(lambda: client.get_chain("0" * 36, value))
    answers(lambda: client.wait(value, timeout=0))


@quick
@given(option=st.sampled_from(["until", "reason", "by"]), value=ANYTHING)
def test_pauses(client: SyncClient[Any], option: str, value: Any) -> None:
    with client.transaction() as tx:
        answers(lambda: client.pause(tx, Step, **{option: value}))
        answers(lambda: client.pause(tx, value))
        answers(lambda: client.resume(tx, value))
        answers(lambda: client.resume(tx, Step))


@quick
@given(text=st.text(alphabet=string.printable + "äé\0\ud800"), value=ANYTHING)
def test_filters(text: str, value: Any) -> None:
    answers(lambda: Filter.parse(text))
    answers(lambda: Filter.parse(value))


@quick
@given(value=ANYTHING, option=st.sampled_from(["initial", "multiplier", "maximum", "jitter"]))
@example(value=10**400, option="initial")
def test_settings(value: Any, option: str) -> None:
    answers(lambda: Backoff(**{option: value}))
    answers(lambda: Queue(value))
    answers(lambda: Queue("q", priority=value))
    answers(lambda: Queue("q", max_concurrency=value))
    answers(lambda: Dedup(value))
    answers(lambda: Debounce(value, wait=value, at_most=value, keep=value, merge=value))
    answers(lambda: Throttle(value, per=value, trailing=value))
    answers(lambda: testing.Clock(value))
    answers(lambda: testing.Clock().advance(value))
    answers(lambda: Handlers[Any](lease=value))
    answers(lambda: Handlers[Any]().handles(value))
    answers(lambda: Handlers[Any]().handles(Step)(value))


WORKER = [
    "name", "release", "concurrency", "prefetch", "queues", "max_claim_batch", "max_claim_per_worker", "cluster_cap",
    "poll_interval", "lease", "renew_interval", "backoff", "max_attempts", "timeout_grace", "recovery_max_attempts",
    "shutdown_timeout", "coalesce_notifies",
]  # fmt: skip


@quick
@given(value=ANYTHING, option=st.sampled_from(WORKER))
def test_workers(value: Any, option: str) -> None:
    async def make() -> None:
        async with queuert.connect("memory://", jobs=[Step]) as client:
            answers(lambda: Worker(client, handlers, **{option: value}))
            answers(lambda: Worker(client, value))
            answers(lambda: Worker(value, handlers))

    asyncio.run(make())


CONNECT = ["codecs", "notify", "notify_prefix", "poll_interval", "table_prefix", "clock", "observers"]


@quick
@given(
    value=ANYTHING,
    option=st.sampled_from(CONNECT),
    url=st.one_of(ANYTHING, st.sampled_from(["memory://", "sqlite:///x.db"])),
)
def test_connecting(value: Any, option: str, url: Any) -> None:
    answers(lambda: queuert.connect_sync(url, jobs=[Step]))
    answers(lambda: queuert.connect_sync("memory://", jobs=value))
    answers(lambda: queuert.connect_sync("memory://", jobs=[Step], **{option: value}))


@quick
@given(value=ANYTHING)
def test_what_a_handler_returns_or_raises(client: SyncClient[Any], value: Any) -> None:
    """Whatever it is, the attempt ends, and the worker goes on."""
    own = Handlers[Any](max_attempts=1)

    @own.handles(Step)
    def handle(attempt: SyncAttempt[Step]) -> Any:
        if attempt.job.number == 1:
            return value
        if attempt.job.number == 2 and not attempt.may_have_run:
            raise Reschedule(after=value)
        return attempt.job.number

    testing.clean(client)
    with testing.running(client, own) as run:
        chains = [client.submit(Step(number=number)) for number in (1, 2, 3)]
        run.until_idle()
        assert run.output(chains[2]) == 3
        statuses = [found.status for chain in chains if (found := client.get_chain(chain)) is not None]
        assert "running" not in statuses
