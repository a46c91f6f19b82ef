"""A chain with more dependents than one transaction may free: all of them run once, whatever happens in between."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.freeing_worker import AT_ONCE, POINTS, STEP, Behind, handlers_for
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, job, patiently, start
from tests.behaviour.watching import Points, watched
from tests.observability.recorder import Recorder

import queuert
from queuert import Attempt, Chain, ChainInUse, Client, EntryJob, Handlers, Worker
from queuert.records.model import UNBLOCKED_AT_ONCE, ClaimRequest, QueueLimit, Settlement, TypeLimit
from queuert.worker.attempts import unblocking

NUMBER = 40


class Other(EntryJob[int], name="other"):
    pass


JOBS = [Step, Behind, Other]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unblocking, "MAX_STEP", STEP)


def connect(setting: Setting, **options: Any) -> Client[Any]:
    """A client, to be entered, that frees a few dependents at once."""
    client = setting.connect(JOBS, **options)
    client.sessions.storage.operations.unblocked_at_once = AT_ONCE
    return client


def counting() -> tuple[Handlers[Any], Counter[str]]:
    handlers, ran = handlers_for(), Counter[str]()

    @handlers.handles(Behind)
    async def behind(attempt: Attempt[Behind]) -> int:
        ran[attempt.job_id] += 1
        return attempt.job.step.output

    return handlers, ran


async def dependents(client: Client[Any], number: int = NUMBER) -> tuple[Chain[Step], list[Chain[Behind]]]:
    async with client.transaction() as tx:
        step = await client.start(tx, Step(number=3))
        return step, await client.start_many(tx, [Behind(step=step) for _ in range(number)])


async def blocked(client: Client[Any]) -> int:
    return len((await client.list_jobs(status="blocked", limit=1000)).items)


async def complete_and_die(client: Client[Any]) -> None:
    """As a worker does that is gone right after it has settled a step."""
    types = (TypeLimit("step", 1, 60.0),)
    request = ClaimRequest("dead-worker", 1, (QueueLimit("default", 100, types, ("step",)),))
    (claim,) = (await client._run((client._engine.state.claim(request), None))).jobs
    settlement = Settlement(job_id=claim.job.id, token=claim.job.token, status="completed", output=b"3")
    assert (await client._run((client._engine.state.settle([settlement]), None))).more


@pytest.mark.drivers
@pytest.mark.parametrize("in_transaction", [False, True], ids=["returned", "complete()"])
async def test_all_dependents_run_once(setting: Setting, in_transaction: bool) -> None:
    handlers, ran = Handlers[Any](), Counter[str]()
    recorder, points = Recorder(), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if in_transaction:
            async with attempt.complete():
                return attempt.job.number
        return attempt.job.number

    @handlers.handles(Behind)
    async def behind(attempt: Attempt[Behind]) -> int:
        ran[attempt.job_id] += 1
        return attempt.job.step.output

    async with watched(connect(setting), points) as watching, connect(setting, observers=[recorder]) as client:
        first, chains = await dependents(client)
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            for chain in chains:
                assert await client.wait(chain, timeout=PATIENCE) == 3
        assert ran == Counter([chain.id for chain in chains])
        unblocked = [event["job_id"] for event in recorder.of("job_unblocked")]
        assert sorted(unblocked) == sorted(chain.id for chain in chains)
        assert (await job(watching, first)).status == "completed"


async def test_a_completion_commits_with_the_first_ones_and_steps_free_the_rest(setting: Setting) -> None:
    handlers, ran = counting()
    points = Points()
    async with watched(connect(setting), points) as client:
        first, chains = await dependents(client)
        gate = points.hold("continue_unblocking")
        async with Worker(client, handlers, poll_interval=setting.poll_interval) as worker:
            await gate.arrival()
            assert await client.wait(first, timeout=PATIENCE) == 3
            # Meanwhile the others run, and a start sees the chain completed.
            late = await start_one(client, Behind(step=first))
            assert late.status == "pending"
            assert await blocked(client) == NUMBER - AT_ONCE
            async with client.transaction() as tx:
                with pytest.raises(ChainInUse):
                    await client.delete(tx, first)
            gate.open()
            await patiently(worker.drain())
        assert len(ran) == NUMBER + 1
        assert points.counts["continue_unblocking"] == -(-(NUMBER - AT_ONCE) // STEP)
        assert set(ran.values()) == {1}
        assert {(await job(client, chain)).status for chain in chains} == {"completed"}


async def start_one(client: Client[Any], entry: Any) -> Chain[Any]:
    async with client.transaction() as tx:
        chain: Chain[Any] = await client.start(tx, entry)
        return chain


async def test_any_worker_carries_on(setting: Setting) -> None:
    """Also one that has no handler for these jobs."""
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> int:
        await gate()
        return 1

    async with connect(setting) as client:
        await dependents(client)
        await complete_and_die(client)
        assert await blocked(client) == NUMBER - AT_ONCE
        await start_one(client, Other())  # one that is busy
        async with Worker(client, handlers, concurrency=1, poll_interval=0.02):
            await gate.arrival()
            await eventually(lambda: all_are_free(client))
            gate.open()


@pytest.mark.channels
async def test_the_freed_jobs_are_announced(setting: Setting) -> None:
    """A worker that handles them is woken, although another one has freed them."""
    others, handlers, ran = Handlers[Any](), Handlers[Any](), Counter[str]()

    @others.handles(Other)
    async def other(attempt: Attempt[Other]) -> int:
        return 1

    @handlers.handles(Behind)
    async def behind(attempt: Attempt[Behind]) -> int:
        ran[attempt.job_id] += 1
        return attempt.job.step.output

    async with connect(setting) as client, connect(setting) as elsewhere:
        await dependents(client)
        async with Worker(elsewhere, handlers, poll_interval=setting.poll_interval) as idle:
            await patiently(idle.drain())
            await complete_and_die(client)  # without a word
            async with Worker(client, others, poll_interval=0.02):
                await eventually(lambda: len(ran) == NUMBER)
        assert set(ran.values()) == {1}


async def all_are_free(client: Client[Any]) -> bool:
    return await blocked(client) == 0


async def test_by_hand_all_are_freed_at_once(setting: Setting) -> None:
    async with connect(setting) as client:
        first, chains = await dependents(client)
        async with client.transaction() as tx:
            async with client.take_over(tx, first) as taken:
                await taken.settle(7)
            assert {found.status for found in (await client.list_jobs(Behind, limit=100, tx=tx)).items} == {"pending"}
        assert {(await job(client, chain)).status for chain in chains} == {"pending"}


async def test_steps_that_fail_do_not_keep_others_from_running(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, ran = counting()
    points = Points()
    async with watched(connect(setting), points) as client:
        await dependents(client)
        points.fail_times("continue_unblocking", 8)
        async with Worker(client, handlers, poll_interval=setting.poll_interval, recovery_backoff=SOON) as worker:
            await eventually(lambda: points.counts["continue_unblocking"] >= 2)
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 0
            await patiently(worker.drain())
        assert len(ran) == NUMBER
        limits = [args[0] for name, args in points.calls if name == "continue_unblocking"]
        assert limits[:4] == [STEP, STEP // 2, 1, 1]  # smaller after each failure
        texts = [record.getMessage() for record in caplog.records]
        assert texts.count("freeing the jobs behind a completed chain failed, trying again soon") == 1


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
async def test_thirty_thousand_dependents_under_a_statement_timeout(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Freed in one statement, they take longer than a second: then no result of the group is ever stored."""
    monkeypatch.setattr(unblocking, "MAX_STEP", UNBLOCKED_AT_ONCE)
    url = Setting("postgres", "postgres", tmp_path).url
    mark = "&" if "?" in url else "?"
    short = "options=-cstatement_timeout%3D1000" if scheme == "postgresql" else "statement_timeout=1000"
    slow = queuert.connect(url.replace("postgresql", scheme, 1) + mark + short, jobs=JOBS)
    async with queuert.connect(url, jobs=JOBS) as client, slow:
        first = await start_one(client, Step(number=3))
        for _ in range(30):
            async with client.transaction() as tx:
                await client.start_many(tx, [Behind(step=first) for _ in range(1000)])
        others = await start(client, 200)
        async with Worker(slow, handlers_for(), concurrency=300, recovery_backoff=SOON):
            for number, chain in enumerate(others):
                assert await client.wait(chain, timeout=PATIENCE) == number
            assert await client.wait(first, timeout=PATIENCE) == 3
            await eventually(lambda: all_are_free(client))
        (stats,) = [each for each in await client.stats() if each.job_type == "behind"]
        assert (stats.pending, stats.blocked) == (30_000, 0)


@pytest.mark.parametrize("driver", ["sqlite", "psycopg", pytest.param("asyncpg", marks=pytest.mark.soak)])
@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_is_killed_between_two_steps(driver: str, point: str, tmp_path: Path) -> None:
    state = driver if driver == "sqlite" else "postgres" if driver == "psycopg" else "asyncpg"
    setting = Setting(state, "sqlite" if driver == "sqlite" else "postgres", tmp_path)
    handlers, ran = counting()
    async with queuert.connect(setting.url, jobs=JOBS, poll_interval=0.05) as client:
        first, chains = await dependents(client)
        async with child("freeing_worker", setting.url, point) as worker:
            assert await worker.says() == "here"
            worker.send(signal.SIGKILL)
            assert await worker.exit_code() == -signal.SIGKILL
        freed = {"settle": 0, "settle.done": AT_ONCE, "continue_unblocking": AT_ONCE + STEP}
        assert NUMBER - await blocked(client) == freed.get(point, AT_ONCE + 2 * STEP)
        assert (await job(client, first)).status == ("running" if point == "settle" else "completed")
        async with Worker(client, handlers, lease=30, renew_interval=0.05, poll_interval=0.05):
            for chain in chains:
                assert await client.wait(chain, timeout=PATIENCE) == 3
        assert ran == Counter([chain.id for chain in chains])
