"""What a handler may return, and what becomes of an attempt whose result cannot be stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import Gate, eventually, failures, job
from tests.behaviour.working import begin, failed, failure, jobs_of, outcome, output, working

from queuert import Attempt, Chain, Dedup, EntryJob, Handlers, Job, SyncAttempt

pytestmark = pytest.mark.drivers


@dataclass(frozen=True)
class Receipt:
    number: int
    amount: Decimal
    at: datetime | None = None


class Pay(EntryJob[Receipt], name="pay"):
    pass


class Nothing(EntryJob[None], name="nothing"):
    pass


class Measure(EntryJob[float | None], name="measure"):
    pass


class Next(Job[Any], name="next"):
    number: int = 0


class Stranger(EntryJob[Any], name="stranger"):
    pass


class Start(EntryJob[Any, "Next | Start"], name="start"):
    number: int = 0


class Dependent(EntryJob[None], name="dependent"):
    start: Chain[Start]


JOBS = [Pay, Nothing, Measure, Start, Stranger, Dependent]


async def test_a_value_comes_back_in_its_type(setting: Setting) -> None:
    handlers = Handlers()
    receipt = Receipt(7, Decimal("12.50"), datetime(2030, 1, 2, tzinfo=UTC))

    @handlers.handles(Pay)
    async def pay(attempt: Attempt[Pay]) -> Receipt:
        return receipt

    async with working(setting, JOBS, handlers) as client:
        assert await outcome(client, Pay()) == receipt


async def test_none_is_a_value_and_not_a_continuation(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Nothing)
    async def nothing(attempt: Attempt[Nothing]) -> None:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "nothing")

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, Nothing())
        assert await output(client, chain) is None
        record = await job(client, chain)
        assert (record.status, record.continued_to) == ("completed", None)
        assert record.completed_by is not None
        assert await ledger(client) == ["nothing"]


async def test_options_of_a_continuation_are_kept(setting: Setting) -> None:
    handlers, wanted = Handlers(), str(uuid4())
    later = datetime.now(UTC) + timedelta(days=3)

    @handlers.handles(Start)
    async def start(attempt: Attempt[Start]) -> Next:
        return Next().set(id=wanted, priority=7, at=later, deadline=later + timedelta(days=1))

    @handlers.handles(Next)
    async def following(attempt: Attempt[Next]) -> Any:
        raise AssertionError("it is not due")

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, Start())
        await eventually(lambda: _has_jobs(client, chain, 2))
        first, second = await jobs_of(client, chain)
        assert (first.continued_to, second.id) == (wanted, wanted)
        assert (second.priority, second.scheduled_at, second.deadline) == (7, later, later + timedelta(days=1))
        assert (second.status, second.chain_index, second.chain_id) == ("pending", 1, chain.id)


async def _has_jobs(client: Any, chain: Chain[Any], number: int) -> bool:
    return len(await jobs_of(client, chain)) == number


def _coroutine() -> Any:
    async def forgotten() -> None:
        return

    return forgotten()


BAD: dict[str, tuple[Any, Any, str]] = {
    # name: (job, what its handler returns, a word of the message)
    "a value of the wrong type": (Pay(), lambda: "receipt", "`str`"),
    "a field of the wrong type": (Pay(), lambda: Receipt("7", Decimal(1)), "number"),  # type: ignore[arg-type]
    "nothing, where there must be something": (Pay(), lambda: None, "output"),
    "something, where there must be nothing": (Nothing(), lambda: 1, "null"),
    "not a number": (Measure(), lambda: float("nan"), "finite"),
    "infinity": (Measure(), lambda: float("inf"), "finite"),
    "what JSON does not know": (Start(), object, "JSON"),
    "a NUL character": (Start(), lambda: "a\0b", "NUL"),
    "half a surrogate pair": (Start(), lambda: "\ud800", "output"),
    "an undeclared continuation": (Start(), Stranger, "cannot continue with 'stranger'"),
    "a continuation of a job that ends its chain": (Pay(), Next, "cannot continue with 'next'"),
    "a deduplicated continuation": (Start(), lambda: Next().set(dedup=Dedup("key")), "deduplication"),
    "a continuation with a wrong id": (Start(), lambda: Next().set(id="no uuid"), "'no uuid'"),
    "a continuation with a bad field": (Start(), lambda: Next(number="x"), "number"),  # type: ignore[arg-type]
    "a class": (Start(), lambda: Next, "JSON"),
}


@pytest.mark.parametrize("way", ["no phase", "complete", "def", "def in complete"])
async def test_a_result_that_can_never_be_stored_fails_the_job_at_once(setting: Setting, way: str) -> None:
    handlers = Handlers()
    results: dict[str, Any] = {}

    def plain(attempt: SyncAttempt[Any]) -> Any:
        if way == "def":
            return results[attempt.chain_id]()
        with attempt.complete() as tx:
            attempt.client.start(tx, Stranger())
            return results[attempt.chain_id]()

    async def handler(attempt: Attempt[Any]) -> Any:
        if way == "no phase":
            return results[attempt.chain_id]()
        async with attempt.complete() as tx:
            await attempt.client.start(tx, Stranger())
            return results[attempt.chain_id]()

    for job_type in (Pay, Nothing, Measure, Start):
        handles: Any = handlers.handles(job_type)
        handles(plain if way.startswith("def") else handler)
    async with working(setting, JOBS, handlers, concurrency=4) as client:
        chains: dict[str, Chain[Any]] = {}
        async with client.transaction() as tx:
            for bad, (entry, make, _) in BAD.items():
                chains[bad] = await client.start(tx, entry)
                results[chains[bad].id] = make
        for bad, (_, _, word) in BAD.items():
            error = await failure(client, chains[bad])
            assert (bad, error["code"]) == (bad, "INVALID_OUTPUT")
            assert word in error["message"], bad
            assert not error["type"].startswith("_")
            assert [record.status for record in await jobs_of(client, chains[bad])] == ["failed"], bad
        assert (await client.list_jobs(Stranger)).items == []


@pytest.mark.parametrize("way", ["no phase", "complete", "def"])
async def test_a_forgotten_await_is_named(setting: Setting, way: str) -> None:
    handlers = Handlers()
    if way == "def":

        @handlers.handles(Start, max_attempts=1)
        def plain(attempt: SyncAttempt[Start]) -> Any:
            return _coroutine()
    else:

        @handlers.handles(Start, max_attempts=1)
        async def handler(attempt: Attempt[Start]) -> Any:
            if way == "complete":
                async with attempt.complete():
                    pass
            return _coroutine()

    async with working(setting, JOBS, handlers) as client:
        assert "is an `await` missing" in (await failed(client, Start()))["message"]


async def test_one_bad_result_does_not_fail_its_neighbours(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """Thirty results are settled as one group; the continuation of one has an id that exists already."""
    handlers, gate = Handlers(), Gate()
    arrived: list[int] = []

    @handlers.handles(Start)
    async def start(attempt: Attempt[Start]) -> Any:
        arrived.append(attempt.job.number)
        await gate()
        if attempt.job.number == 13 and attempt.number == 1:
            return Next(number=13).set(id=attempt.job_id)
        return Next(number=attempt.job.number)

    @handlers.handles(Next)
    async def following(attempt: Attempt[Next]) -> int:
        return attempt.job.number

    async with working(setting, JOBS, handlers, concurrency=30) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Start(number=number) for number in range(30)])
            dependent = await client.start(tx, Dependent(start=chains[13]))
        await eventually(lambda: len(arrived) == 30)
        gate.open()
        assert [await output(client, chain) for chain in chains] == list(range(30))
        records = [(await jobs_of(client, chain))[0] for chain in chains]
        assert [record.attempt_number for record in records] == [2 if number == 13 else 1 for number in range(30)]
        ((_, bad),) = failures(caplog, chains[13].id)
        assert (type(bad).__name__, chains[13].id in str(bad)) == ("JobIdExists", True)
        assert (await job(client, dependent)).status == "pending"


async def test_a_bad_continuation_in_complete_rolls_the_attempt_back(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Start, max_attempts=1)
    async def start(attempt: Attempt[Start]) -> Any:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "completed")
            return Next().set(id=attempt.job_id)

    async with working(setting, JOBS, handlers) as client:
        assert (await failed(client, Start()))["type"] == "JobIdExists"
        assert await ledger(client) == []


async def test_an_id_maker_that_fails_fails_the_attempt_and_not_the_worker(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    from queuert import Worker
    from queuert.base.ids import generate_uuid7

    handlers, broken = Handlers(), list[bool]()

    def generate_id() -> str:
        if broken:
            broken.pop()
            raise RuntimeError("no ids today")
        return generate_uuid7()

    @handlers.handles(Start)
    async def start(attempt: Attempt[Start]) -> Any:
        if attempt.job.number == 1:
            async with attempt.complete():
                pass
        await asyncio.sleep(0)
        if attempt.number == 1:
            broken.append(True)
            return Next()
        return "second attempt"

    from tests.behaviour.steps import SOON

    async with (
        setting.connect(JOBS, generate_id=generate_id) as client,
        Worker(client, handlers, poll_interval=setting.poll_interval, backoff=SOON),
    ):
        for number in (0, 1):
            chain = await begin(client, Start(number=number))
            assert await output(client, chain) == "second attempt"
            ((code, error),) = failures(caplog, chain.id)
            assert (str(error), code) == ("no ids today", "SERIALIZATION_ERROR")
