"""One result that cannot be settled delays no other: groups have a limit in bytes, and what the database refuses
repeatedly is set aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Step, done, eventually, job, patiently, start
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database

import queuert
from queuert import Attempt, Chain, Client, EntryJob, Handlers, JobError, StorageRejected, StorageUnavailable, Worker
from queuert.ports.program import Program
from queuert.records.model import Settled, Settlement
from queuert.worker.attempts import settling

pytestmark = pytest.mark.in_turn


class Long(EntryJob[str], name="long"):
    """Its output has so many characters."""

    number: int


class Behind(EntryJob[int], name="behind"):
    step: Chain[Step]


def handlers_of() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    @handlers.handles(Long)
    async def long(attempt: Attempt[Long]) -> str:
        return "x" * attempt.job.number

    @handlers.handles(Behind)
    async def behind(attempt: Attempt[Behind]) -> int:
        return attempt.job.step.output

    return handlers


def sizes(points: Points) -> list[list[int]]:
    """The sizes of the outputs of each group."""
    return [[len(each.output or b"") for each in args[0]] for name, args in points.calls if name == "settle"]


async def test_groups_have_a_limit_in_bytes(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MAX_BYTES", 10_000)
    points, wanted = Points(), [3_000] * 30 + [50_000] + [10] * 200 + [3_000] * 30
    async with watched(setting.connect([Step, Long, Behind]), points) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Long(number=number) for number in wanted])
        gate = points.hold("settle")
        worker = Worker(client, handlers_of(), concurrency=300, poll_interval=setting.poll_interval)
        async with worker:
            await gate.arrival()
            gate.open()
            await patiently(worker.drain())
            for number, chain in zip(wanted, chains, strict=True):
                assert await client.wait(chain, timeout=PATIENCE) == "x" * number
    groups = sizes(points)
    assert sum(map(len, groups)) == len(wanted)
    assert all(sum(group) <= 10_000 or len(group) == 1 for group in groups)
    assert len(groups) <= 35  # three long ones each, and the short ones beside them


class Refusing:
    """Storage that cannot settle some jobs."""

    def __init__(self, operations: Any) -> None:
        self._operations = operations
        self.refused = set[str]()
        self.refusals = 0
        self.error: Exception = StorageUnavailable("statement timeout, as agreed")
        self.only: Callable[[Settlement], bool] = lambda _: True
        """Which of their settlements it cannot settle."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        if any(each.job_id in self.refused and self.only(each) for each in settlements):
            self.refusals += 1
            raise self.error
        settled: Settled = yield from self._operations.settle(settlements)
        return settled


def refusing(setting: Setting, points: Points) -> tuple[Client[Any], Refusing]:
    inner = setting.connect([Step, Long, Behind])
    operations = Refusing(inner.sessions.storage.operations)
    state: Any = inner.sessions.storage
    state.operations = operations
    return watched(inner, points), operations


@pytest.mark.parametrize(
    "error", [StorageUnavailable("statement timeout, as agreed"), psycopg.OperationalError("not translated")]
)
async def test_results_pass_one_that_cannot_be_settled(
    setting: Setting, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "TRIES_ALONE", 1_000)
    client, storage = refusing(setting, points := Points())
    storage.error = error
    async with client:
        chains = await start(client, 100)
        bad = {chains[number].id for number in (3, 60)}
        storage.refused = bad
        gate = points.hold("claim.done")
        settings: dict[str, Any] = {"poll_interval": setting.poll_interval, "recovery_backoff": SOON}
        async with Worker(client, handlers_of(), concurrency=100, **settings) as worker:
            await gate.arrival()
            gate.open()
            for number, chain in enumerate(chains):
                if chain.id not in bad:
                    assert await client.wait(chain, timeout=PATIENCE) == number
            more = await start(client, 20)  # and others that come later
            for number, chain in enumerate(more):
                assert await client.wait(chain, timeout=PATIENCE) == number
            refusals = storage.refusals
            await eventually(lambda: storage.refusals > refusals + 3)  # the bad ones are tried again
            storage.refused = set()
            await patiently(worker.drain())
        assert await done(client, 120)
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1] * 100


async def test_an_unknown_error_of_one_item_becomes_the_error_of_its_attempt(setting: Setting) -> None:
    """Not at once, but when others were settled between its tries. So the database can be written."""
    client, storage = refusing(setting, Points())
    storage.error, storage.only = RuntimeError("nobody knows"), lambda each: each.status == "completed"
    async with client:
        chains = await start(client, 20)
        storage.refused = {chains[3].id}
        settings: dict[str, Any] = {"poll_interval": setting.poll_interval, "recovery_backoff": SOON}
        async with Worker(client, handlers_of(), concurrency=20, **settings):
            for number, chain in enumerate(chains):
                if number != 3:
                    assert await client.wait(chain, timeout=PATIENCE) == number
            refusals = storage.refusals
            await eventually(lambda: storage.refusals > refusals + 2 * settling.TRIES_ALONE)
            assert (await job(client, chains[3])).status == "running"
            while not await _is_pending(client, chains[3]):
                (other,) = await start(client)
                await client.wait(other, timeout=PATIENCE)
        failed = await job(client, chains[3])
        assert failed.last_error is not None
        assert (failed.last_error["type"], failed.last_error["message"]) == ("RuntimeError", "nobody knows")


async def test_a_refused_value_splits_its_group_at_once(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """It is never tried again as it is: its attempt has failed."""
    client, storage = refusing(setting, points := Points())
    storage.error, storage.only = StorageRejected("too large"), lambda each: each.status == "completed"
    async with client:
        chains = await start(client, 21)
        storage.refused = {chains[5].id}
        gate = points.hold("claim.done")
        async with Worker(client, handlers_of(), concurrency=21, poll_interval=setting.poll_interval):
            await gate.arrival()
            gate.open()
            for number, chain in enumerate(chains):
                if number != 5:
                    assert await client.wait(chain, timeout=PATIENCE) == number
            await eventually(lambda: _is_pending(client, chains[5]))
        failed = await job(client, chains[5])
        assert failed.last_error is not None
        assert failed.last_error["type"] == "StorageRejected"
    assert storage.refusals <= 6  # 21 is cut in halves until one is left
    assert "trying again" not in caplog.text


async def test_an_error_text_that_is_refused_blocks_nobody(setting: Setting) -> None:
    """What can be stored of it is stored, in ASCII."""
    client, storage = refusing(setting, points := Points())
    storage.error = StorageRejected("character with byte sequence 0xe2 0x82 0xac has no equivalent")
    storage.only = lambda each: not (each.error or b"").isascii()
    handlers = Handlers[Any]()

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.job.number == 7:
            raise JobError("PRICE €", "5 €")
        return attempt.job.number

    async with client:
        chains = await start(client, 21)
        storage.refused = {chain.id for chain in chains}
        gate = points.hold("claim.done")
        async with Worker(client, handlers, concurrency=21, poll_interval=setting.poll_interval) as worker:
            await gate.arrival()
            gate.open()
            await patiently(worker.drain())
        failed = await job(client, chains[7])
        assert failed.status == "failed"
        assert failed.last_error == {
            "code": "PRICE \\u20ac", "type": "JobError", "message": "5 \\u20ac", "traceback": None,
        }  # fmt: skip
        assert {(await job(client, chain)).status for chain in chains} == {"completed", "failed"}
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1] * 21


async def _is_pending(client: Client[Any], chain: Chain[Any]) -> bool:
    return (await job(client, chain)).status == "pending"


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
async def test_a_result_that_postgresql_refuses(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    """For real: a value that is too long for an index."""
    Setting("postgres", "postgres", None)  # type: ignore[arg-type]  # empties the database
    handlers = Handlers[Any]()

    @handlers.handles(Long, max_attempts=1)
    async def long(attempt: Attempt[Long]) -> str:
        return "".join(chr(0x4E00 + number) for number in range(attempt.job.number))

    async with queuert.connect(database().replace("postgresql", scheme, 1), jobs=[Long]) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Long(number=number) for number in [*range(10), 15_000, *range(10)]])
        with psycopg.connect(database(), autocommit=True) as connection:
            connection.execute("CREATE INDEX too_short ON queuert_job ((output::text))")
            try:
                await patiently(Worker(client, handlers, concurrency=30).drain())
            finally:
                connection.execute("DROP INDEX too_short")
        statuses = [(await job(client, chain)).status for chain in chains]
        assert statuses == ["completed"] * 10 + ["failed"] + ["completed"] * 10
        error = (await job(client, chains[10])).last_error
        assert error is not None
        assert error["type"] == "StorageRejected"
    assert "trying again" not in caplog.text


async def test_a_database_that_is_away_splits_no_group(setting: Setting) -> None:
    """Whatever is asked fails. When it is back, the group is settled as one."""
    points = Points()
    async with watched(setting.connect([Step, Long, Behind]), points) as client:
        await start(client, 100)
        gate = points.hold("settle")
        settings: dict[str, Any] = {"poll_interval": setting.poll_interval, "recovery_backoff": SOON}
        async with Worker(client, handlers_of(), concurrency=100, **settings) as worker:
            await gate.arrival()
            for point in ("settle", "get_jobs"):
                points.fail_times(point, 6)
            gate.open()
            await patiently(worker.drain())
        assert await done(client, 100)
        assert points.sizes("settle")[-1] == max(points.sizes("settle"))


async def test_a_failure_that_repeats_is_logged_once(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    client, storage = refusing(setting, Points())
    async with client:
        chains = await start(client, 1)
        storage.refused = {chains[0].id}
        async with Worker(client, handlers_of(), poll_interval=setting.poll_interval, recovery_backoff=SOON) as worker:
            await eventually(lambda: storage.refusals >= 10)
            storage.refused = set()
            await patiently(worker.drain())
    texts = [record.getMessage() for record in caplog.records if "settling" in record.getMessage()]
    # Twice in its turn, then apart from the others.
    assert texts == [
        f"settling job {chains[0].id} failed, trying again soon",
        f"settling job {chains[0].id} failed, trying again soon",
        f"settling what was set aside works again; it had failed {storage.refusals - 3} times more than was logged",
    ]


async def test_a_stop_gives_up_what_was_set_aside(setting: Setting) -> None:
    client, storage = refusing(setting, Points())
    async with client:
        chains = await start(client, 10)
        storage.refused = {chains[0].id}
        settings: dict[str, Any] = {"poll_interval": setting.poll_interval, "recovery_backoff": SOON}
        worker = Worker(client, handlers_of(), shutdown_timeout=0.05, **settings)
        await worker.start()
        for chain in chains[1:]:
            await client.wait(chain, timeout=PATIENCE)
        assert await patiently(worker.stop()) is False
        assert (await job(client, chains[0])).status == "running"


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
async def test_a_settlement_that_meets_the_statement_timeout(scheme: str) -> None:
    """For real: the job behind one chain is locked by another session, so that its settlement must wait."""
    Setting("postgres", "postgres", None)  # type: ignore[arg-type]  # empties the database
    url = database()
    async with queuert.connect(url, jobs=[Step, Long, Behind]) as client:
        chains = await start(client, 100)
        async with client.transaction() as tx:
            waiting = await client.start(tx, Behind(step=chains[5]))
        mark = "&" if "?" in url else "?"
        short = "options=-cstatement_timeout%3D800" if scheme == "postgresql" else "statement_timeout=800"
        slow = queuert.connect(url.replace("postgresql", scheme, 1) + mark + short, jobs=[Step, Long, Behind])
        locker = await psycopg.AsyncConnection.connect(url)
        async with slow, locker:
            await locker.execute("SELECT FROM queuert_job WHERE id = %s FOR UPDATE", [waiting.id])
            async with Worker(slow, handlers_of(), concurrency=100, recovery_backoff=SOON) as worker:
                for number, chain in enumerate(chains):
                    if number != 5:
                        assert await client.wait(chain, timeout=PATIENCE) == number
                assert (await job(client, chains[5])).status == "running"
                await locker.rollback()
                assert await client.wait(waiting, timeout=PATIENCE) == 5
                await patiently(worker.drain())
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1] * 100
