"""One result that cannot be settled delays no other: groups have a limit in bytes, and what the database refuses
repeatedly is set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Step, done, eventually, job, patiently, start
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database

import queuert
from queuert import Attempt, Chain, Client, EntryJob, Handlers, StorageUnavailable, Worker
from queuert.model import Settled, Settlement
from queuert.ports.program import Program
from queuert.worker import settling


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        if any(each.job_id in self.refused for each in settlements):
            self.refusals += 1
            raise StorageUnavailable("statement timeout, as agreed")
        settled: Settled = yield from self._operations.settle(settlements)
        return settled


def refusing(setting: Setting, points: Points) -> tuple[Client[Any], Refusing]:
    inner = setting.connect([Step, Long, Behind])
    operations = Refusing(inner._state.operations)
    state: Any = inner._state
    state.operations = operations
    return watched(inner, points), operations


async def test_results_pass_one_that_cannot_be_settled(setting: Setting) -> None:
    client, storage = refusing(setting, points := Points())
    async with client:
        chains = await start(client, 400)
        bad = {chains[number].id for number in (3, 250)}
        storage.refused = bad
        gate = points.hold("claim.done")
        settings: dict[str, Any] = {"poll_interval": setting.poll_interval, "recovery_backoff": SOON}
        async with Worker(client, handlers_of(), concurrency=400, **settings) as worker:
            await gate.arrival()
            gate.open()
            for number, chain in enumerate(chains):
                if chain.id not in bad:
                    assert await client.wait(chain, timeout=PATIENCE) == number
            more = await start(client, 50)  # and others that come later
            for number, chain in enumerate(more):
                assert await client.wait(chain, timeout=PATIENCE) == number
            refusals = storage.refusals
            await eventually(lambda: storage.refusals > refusals + 3)  # the bad ones are tried again
            storage.refused = set()
            await patiently(worker.drain())
        assert await done(client, 450)
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1] * 400


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
        short = "options=-cstatement_timeout%3D300" if scheme == "postgresql" else "statement_timeout=300"
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
