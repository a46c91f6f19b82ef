"""Bulk operations carried out by workers: beside their jobs, once, and whatever happens in between."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.counting import counted
from tests.behaviour.programs.bulk_worker import PAGE, POINTS, Other, handlers_for_other
from tests.behaviour.programs.working_elsewhere import HOUR
from tests.behaviour.steps import PATIENCE, Gate, Step, eventually, job, patiently, start
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database

from queuert import (
    EVERYTHING,
    Attempt,
    BulkResult,
    Chain,
    ChainCancelled,
    Client,
    EntryJob,
    Handlers,
    Keep,
    Queue,
    StorageError,
    Worker,
)
from queuert.features.bulk import own
from queuert.features.bulk import pages as bulk
from queuert.features.bulk import service as own_work


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", PAGE)
    monkeypatch.setattr("queuert.features.bulk.work.LONGEST_STEP", PATIENCE)


async def begin(client: Client[Any], action: str, where: str, *args: Any, **options: Any) -> Chain[Any]:
    async with client.transaction() as tx:
        operation: Chain[Any] = await getattr(client, f"bulk_{action}")(tx, where, *args, **options)
    return operation


async def statuses(client: Client[Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    async for chain in client.iter_chains(Step):
        counts[chain.status or ""] = counts.get(chain.status or "", 0) + 1
    return counts


async def really_failed(client: Client[Any], number: int) -> list[Chain[Step]]:
    """Steps that a worker has run and failed for good."""
    handlers = Handlers[Any]()

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        raise ValueError("boom")

    chains = await start(client, number)
    await patiently(Worker(client, handlers, concurrency=10).drain())
    return chains


@pytest.mark.channels
@pytest.mark.drivers
async def test_a_worker_is_told_and_does_it(setting: Setting) -> None:
    """It would look for itself only much later, and serves other queues only."""
    async with setting.connect([Step, Other]) as client:
        chains = await start(client, 12)
        worker = Worker(client, handlers_for_other(), queues=["default"], poll_interval=setting.poll_interval)
        async with worker:
            await patiently(worker.drain())
            operation = await begin(client, "cancel", "type:step")
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(12, 0)
        assert await statuses(client) == {"cancelled": len(chains)}
        pages = (await client.list_chain_jobs(operation)).items
        assert len(pages) == 3
        assert {page.completed_by for page in pages} == {worker.id}


async def test_draining_includes_it(setting: Setting) -> None:
    async with setting.connect([Step, Other]) as client:
        await start(client, 12)
        operation = await begin(client, "cancel", "type:step")
        await patiently(Worker(client, handlers_for_other(), poll_interval=HOUR).drain())
        found = await client.get_chain(operation)
        assert found is not None
        assert found.status == "completed"


async def test_retried_jobs_run(setting: Setting) -> None:
    async with setting.connect([Step]) as client:
        chains = await really_failed(client, 12)
        handlers = Handlers[Any]()

        @handlers.handles(Step)
        async def step(attempt: Attempt[Step]) -> int:
            return attempt.number

        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            operation = await begin(client, "retry", "status:failed error:ValueError")
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(12, 0)
            for chain in chains:
                assert await client.wait(chain, timeout=PATIENCE) == 1


async def test_beyond_the_slots_and_the_caps(setting: Setting) -> None:
    """All slots are busy, the cluster's cap is used up, and everything is paused: it is done anyway."""
    gate = Gate()
    handlers = Handlers[Any]()

    @handlers.handles(Other, queue="capped")
    async def other(attempt: Attempt[Other]) -> None:
        await gate()

    async with setting.connect([Step, Other]) as client:
        await client.submit(Other())
        await start(client, 12)
        queues = [Queue("capped", max_concurrency=1)]
        async with Worker(client, handlers, queues=queues, cluster_cap=1, poll_interval=setting.poll_interval):
            await gate.arrival()
            async with client.transaction() as tx:
                await client.pause(tx, EVERYTHING)
            operation = await begin(client, "cancel", "type:step")
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(12, 0)
            (worker,) = await client.list_workers()
            assert (worker.busy, worker.job_types) == (1, ("other",))
            gate.open()


async def test_its_own_type_can_be_paused(setting: Setting) -> None:
    async with setting.connect([Step, Other]) as client:
        await start(client, 12)
        async with client.transaction() as tx:
            await client.pause(tx, "queuert.bulk-cancel")
        operation = await begin(client, "cancel", "type:step")
        worker = Worker(client, handlers_for_other(), poll_interval=0.02)
        async with worker:
            await patiently(worker.drain())
            assert "paused" in str(await client.why(operation))
            assert await statuses(client) == {"pending": 12}
            async with client.transaction() as tx:
                await client.resume(tx, "queuert.bulk-cancel")
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(12, 0)


async def test_several_workers_at_once(setting: Setting) -> None:
    """Each page is done by one of them."""
    async with setting.connect([Step, Other]) as client:
        chains = await start(client, 60)
        workers = [Worker(client, handlers_for_other(), poll_interval=0.02) for _ in range(3)]
        for worker in workers:
            await worker.start()
        operations = [await begin(client, "cancel", f"type:step chain:{','.join(each.id for each in part)}")
                      for part in (chains[:30], chains[30:])]  # fmt: skip
        results = [await client.wait(operation, timeout=PATIENCE) for operation in operations]
        assert results == [BulkResult(30, 0)] * 2
        for worker in workers:
            assert await worker.stop()


async def test_cancelled_in_the_middle(setting: Setting) -> None:
    points = Points()
    async with setting.connect([Step, Other]) as client:
        inner = setting.connect([Step, Other])
        async with watched(inner, points) as seen:
            await start(client, 20)
            gate = Gate()

            async def second_page() -> None:
                if points.counts["lock_chains"] == 2:
                    await gate()

            points.at("committed", second_page)
            async with Worker(seen, handlers_for_other(), poll_interval=0.02):
                operation = await begin(client, "cancel", "type:step")
                await gate.arrival()
                async with client.transaction() as tx:
                    await client.cancel(tx, operation)
                gate.open()
                with pytest.raises(ChainCancelled):
                    await client.wait(operation, timeout=PATIENCE)
            assert await statuses(client) == {"cancelled": 2 * PAGE, "pending": 20 - 2 * PAGE}


async def test_so_many_per_second(setting: Setting) -> None:
    """Later pages are due at their time, and the worker looks then: no other message tells it to."""
    async with setting.connect([Step, Other]) as client:
        await start(client, 20)
        async with Worker(client, handlers_for_other(), poll_interval=setting.poll_interval):
            operation = await begin(client, "cancel", "type:step", per_second=50)
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(20, 0)
        pages = (await client.list_chain_jobs(operation)).items
        assert len(pages) == 20 // PAGE + 1
        for before, after in pairwise(pages):
            assert before.completed_at is not None
            assert (after.scheduled_at - before.completed_at).total_seconds() >= PAGE / 50 - 0.05


async def test_a_page_that_fails_is_tried_again_and_is_smaller(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own, "FIRST_DELAY", 0.02)
    points = Points()
    async with setting.connect([Step, Other]) as client:
        inner = setting.connect([Step, Other])
        async with watched(inner, points) as seen:
            await start(client, 12)
            points.fail("lock_chains", StorageError("no"), StorageError("never"))
            held = points.hold("settle.done")
            async with Worker(seen, handlers_for_other(), poll_interval=setting.poll_interval):
                operation = await begin(client, "cancel", "type:step")
                await held.arrival()
                held.open()
                assert await client.wait(operation, timeout=PATIENCE) == BulkResult(12, 0)
        (first, *_) = (await client.list_chain_jobs(operation)).items
        assert first.attempt_number == 3
        sizes = [len(args[0]) for name, args in points.calls if name == "get_chains" and len(args[0]) > 1]
        assert sizes[:2] == [5, 2]
        assert first.last_error is None
        assert "trying again" in caplog.text


async def test_the_error_of_a_page_can_be_seen(setting: Setting) -> None:
    points = Points()
    async with setting.connect([Step, Other]) as client:
        inner = setting.connect([Step, Other])
        async with watched(inner, points) as seen:
            await start(client, 3)
            points.fail("lock_chains", StorageError("no room on the device"))
            async with Worker(seen, handlers_for_other(), poll_interval=setting.poll_interval):
                operation = await begin(client, "cancel", "type:step")

                async def has_failed() -> bool:
                    return (await job(client, operation)).last_error is not None

                await eventually(has_failed)
                assert "no room on the device" in str(await client.why(operation))
                assert await client.wait(operation, timeout=PATIENCE) == BulkResult(3, 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("point", POINTS)
async def test_killed_between_and_within_pages(kind: str, point: str, tmp_path: Path) -> None:
    """The next worker goes on where the last page that was committed has ended, and changes each chain once."""
    setting = Setting(kind, None, tmp_path)
    async with setting.connect([Step, Other]) as client:
        chains = await really_failed(client, 4 * PAGE)
        operation = await begin(client, "retry", "status:failed type:step", by="me")
        async with child("bulk_worker", setting.url, point) as worker:
            assert await worker.says() == "here"
            worker.send(signal.SIGKILL)
            assert await worker.exit_code() == -signal.SIGKILL
        whole = 2 if point == "committed" else 1

        async def rolled_back() -> bool:
            return await statuses(client) == {"pending": whole * PAGE, "failed": (4 - whole) * PAGE}

        await eventually(rolled_back)
        retried = [await job(client, chain) for chain in chains[: whole * PAGE]]
        async with Worker(client, handlers_for_other(), poll_interval=0.05):
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(4 * PAGE, 0)
        assert [await job(client, chain) for chain in chains[: whole * PAGE]] == retried, "not touched again"
        assert len((await client.list_audit(operation)).items) == 1


Held = tuple[Client[Any], list[Chain[Step]], Chain[Any], Gate]


@asynccontextmanager
async def page_held(tmp_path: Path, number: int) -> AsyncGenerator[Held]:
    """On PostgreSQL: a worker has read the page of an operation, and has not locked its chains yet."""
    setting, points = Setting("postgres", "postgres", tmp_path), Points()
    async with setting.connect([Step, Other]) as client, watched(setting.connect([Step, Other]), points) as seen:
        chains = await really_failed(client, number)
        gate = points.hold("lock_chains")
        async with Worker(seen, handlers_for_other(), poll_interval=0.02):
            operation = await begin(client, "retry", "status:failed")
            await gate.arrival()
            yield client, chains, operation, gate


async def test_what_changes_before_a_page_has_its_locks(tmp_path: Path) -> None:
    """Retried, deleted, or retried and failed again: they are left as they are."""
    async with page_held(tmp_path, 4) as (client, chains, operation, gate):
        async with client.transaction() as tx:
            await client.retry(tx, chains[0])
            await client.retry(tx, chains[1])
            await client.delete(tx, chains[2])
        async with client.transaction() as tx, client.take_over(tx, chains[0]) as current:
            await current.settle(7)
        gate.open()
        assert await client.wait(operation, timeout=PATIENCE) == BulkResult(1, 3)
        assert (await job(client, chains[0])).status == "completed"
        assert (await job(client, chains[3])).status == "pending"


async def test_a_page_waits_for_those_who_change_its_chains(tmp_path: Path) -> None:
    async with page_held(tmp_path, 3) as (client, chains, operation, gate):
        async with client.transaction() as tx:
            await client.retry(tx, chains[1])
            gate.open()
            await locks_are_waited_for(client)
        assert await client.wait(operation, timeout=PATIENCE) == BulkResult(2, 1)
        assert await statuses(client) == {"pending": 3}


async def test_a_page_that_waits_too_long_gives_its_locks_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another transaction holds one of its chains for long. Smaller pages change the chains before it."""
    monkeypatch.setattr("queuert.features.bulk.work.LONGEST_STEP", 0.5)
    monkeypatch.setattr(own, "FIRST_DELAY", 0.02)
    async with page_held(tmp_path, 5) as (client, chains, operation, gate):
        async with client.transaction() as tx:
            await client.retry(tx, chains[1])
            gate.open()

            async def others_are_free() -> bool:
                return (await job(client, chains[0])).status == "pending"

            await eventually(others_are_free)
            assert (await job(client, operation)).attempt_number >= 3
            assert "perhaps because of locks" in caplog.text
        assert (await client.wait(operation, timeout=PATIENCE)).changed == 4
        pages = (await client.list_chain_jobs(operation)).items
        assert [page.input["size"] for page in pages][1] == 2


async def locks_are_waited_for(client: Client[Any]) -> None:
    with psycopg.connect(database(), autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

        def waits() -> bool:
            found = connection.execute(query).fetchone()
            return found is not None and found[0] > 0

        await eventually(waits)


async def test_why_it_waits(setting: Setting) -> None:
    async with setting.connect([Step, Other]) as client:
        operation = await begin(client, "cancel", "type:step")
        assert "no worker that is alive has a handler" in str(await client.why(operation))


async def test_a_worker_without_such_work_sends_nothing_for_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll asks for our types, too: that is all."""
    looks: list[Any] = []
    monkeypatch.setattr(own_work, "do_step", lambda *_: looks.append(1))
    client, statements = counted(setting, [Step, Other], monkeypatch)
    async with client:
        worker = Worker(client, handlers_for_other(), poll_interval=HOUR)
        async with worker:
            await patiently(worker.drain())
            before = statements.number
            for _ in range(3):
                await client.submit(Other())
            await asyncio.sleep(0)
            await patiently(worker.drain())
            assert statements.number > before
    assert looks == []


class Behind(EntryJob[int], name="behind"):
    step: Chain[Step]


async def test_chains_can_wait_for_it(setting: Setting) -> None:
    """`wait` and blockers see it end like any other chain."""
    async with setting.connect([Step, Other, Behind]) as client:
        (step,) = await start(client, 1)
        async with client.transaction() as tx:
            behind = await client.start(tx, Behind(step=step))
        async with Worker(client, handlers_for_other(), poll_interval=setting.poll_interval):
            operation = await begin(client, "cancel", "type:step", cascade=True)
            assert await client.wait(operation, timeout=PATIENCE) == BulkResult(1, 0, 1)
        found = await client.get_chain(behind)
        assert found is not None
        assert found.status == "cancelled"


@pytest.mark.soak
async def test_very_many_chains(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers, pages of the usual size, and jobs that run meanwhile: each chain is retried once."""
    monkeypatch.undo()
    number, ran = 5_000 if setting.state == "memory" else 20_000, list[int]()
    handlers = Handlers[Any]()

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        raise ValueError("again")

    async with setting.connect([Step]) as client:
        for _ in range(number // 1000):
            await start(client, 1000)
        workers = [Worker(client, handlers, concurrency=50, poll_interval=0.1) for _ in range(3)]
        for worker in workers:
            await worker.start()
        await eventually_long(lambda: len(ran) == number)
        await patiently(workers[0].drain())
        operation = await begin(client, "retry", "status:failed")
        result = await client.wait(operation, timeout=20 * PATIENCE)
        assert result.changed == number
        await eventually_long(lambda: len(ran) == 2 * number)
        for worker in workers:
            assert await worker.stop()
        assert await statuses(client) == {"failed": number}
        assert (await client.doctor(full=True)).findings == ()


async def eventually_long(condition: Callable[[], bool]) -> None:
    for _ in range(20):
        try:
            return await eventually(condition)
        except AssertionError:
            continue
    raise AssertionError("never")


async def test_ended_operations_go_away(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """As part of retention, although nobody has declared how long they are kept."""
    monkeypatch.setattr(bulk, "KEEP", Keep(completed=0.001))
    async with setting.connect([Step, Other]) as client:
        (chain,) = await start(client, 1)
        operation = await begin(client, "cancel", "type:step")
        await patiently(Worker(client, handlers_for_other()).drain())
        found = await client.get_chain(operation)
        assert found is not None
        assert found.status == "completed"
        async with asyncio.timeout(PATIENCE):
            while await client.get_chain(operation) is not None:
                await client.prune(full=True)
        assert await client.get_chain(chain) is not None
        assert [record.chain_id for record in (await client.list_audit()).items] == [operation.id]
