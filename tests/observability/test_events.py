"""What observers are told of chains, jobs, attempts and workers: every event, in its order, with its facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, die_holding, eventually, patiently, start
from tests.behaviour.working import begin
from tests.observability.recorder import Recorder
from tests.support.jobs import JOBS, After, Charge, Greet, Receipt, Reserve, Send

from queuert import Attempt, Chain, ChainFailed, Client, Handlers, JobError, Reschedule, SyncAttempt, Worker
from queuert.engine import publishing
from queuert.records.model import Settlement, When
from queuert.worker.handlers.registry import registry_of

handlers: Handlers[Any] = Handlers()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet, Any]) -> str:
    return f"Hello {attempt.job.who}"


@handlers.handles(Reserve)
async def reserve(attempt: Attempt[Reserve, Any]) -> Charge:
    async with attempt.complete():
        return Charge(order_id=attempt.job.order_id, amount=1)  # type: ignore[arg-type]


@handlers.handles(Charge)
def charge(attempt: SyncAttempt[Charge, Any]) -> Send:
    with attempt.complete():
        return Send(order_id=attempt.job.order_id, payment_id="p1")


@handlers.handles(Send)
async def send(attempt: Attempt[Send, Any]) -> Receipt:
    return Receipt(attempt.job.payment_id)


@handlers.handles(After)
async def after(attempt: Attempt[After, Any]) -> None:
    return None


NO_LIMIT = {"limit": None, "limit_key": None}


def job_of(facts: dict[str, Any]) -> tuple[str, str]:
    return facts["job_type"], facts["chain_id"]


async def drained(client: Client[Any], registry: Handlers[Any] = handlers) -> str:
    worker = Worker(client, registry, backoff=SOON, poll_interval=0.02)
    await patiently(worker.drain())
    return worker.id


ONE_JOB = ["attempt_started", "attempt_ended", "job_completed", "chain_completed", "attempt_completed"]


async def test_the_life_of_a_chain_of_one_job(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet())
        created = list(recorder.told)
        worker = await drained(client)

    job = {"job_id": chain.id, "job_type": "greet", "chain_id": chain.id, "chain_type": "greet"}
    assert created == [
        ("chain_created", {"chain_id": chain.id, "chain_type": "greet"}),
        ("job_created", {**job, "chain_index": 0, **NO_LIMIT}),
    ]
    assert recorder.names()[2:] == ["worker_started", *ONE_JOB, "worker_stopping", "worker_stopped"]
    facts = dict(recorder.told)
    attempt = {**job, "attempt_number": 1, "worker_id": worker}
    wait, slot, whole = (
        facts["attempt_started"].pop("wait"),
        facts["attempt_ended"].pop("duration"),
        facts["attempt_completed"].pop("duration"),
    )
    assert wait >= 0
    assert 0 <= slot <= whole
    assert facts["attempt_started"] == facts["attempt_ended"] == {**attempt, **NO_LIMIT}
    assert facts["attempt_completed"] == attempt
    assert facts["job_completed"].pop("duration") == facts["chain_completed"].pop("duration") > 0
    assert facts["job_completed"] == {**job, "continued": False, "worker_id": worker}
    assert facts["chain_completed"] == {"chain_id": chain.id, "chain_type": "greet", "worker_id": worker}
    assert facts["worker_started"]["concurrency"] == 1
    assert set(facts["worker_started"]["job_types"]) == set(registry_of(handlers).by_name)
    assert facts["worker_stopped"]["clean"] is True


async def test_a_chain_of_three_jobs_in_tasks_and_in_a_thread(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Reserve(order_id=1))
        await drained(client)

    assert [(facts["job_type"], facts["chain_index"]) for facts in recorder.of("job_created")] == [
        ("reserve", 0),
        ("charge", 1),
        ("send", 2),
    ]
    assert [(facts["job_type"], facts["continued"]) for facts in recorder.of("job_completed")] == [
        ("reserve", True),
        ("charge", True),
        ("send", False),
    ]
    assert {facts["chain_type"] for facts in recorder.of("job_completed")} == {"reserve"}
    assert [facts["job_type"] for facts in recorder.of("attempt_completed")] == ["reserve", "charge", "send"]
    assert recorder.one("chain_created")["chain_id"] == recorder.one("chain_completed")["chain_id"] == chain.id
    last = recorder.of("job_completed")[-1]["duration"]
    assert recorder.one("chain_completed")["duration"] >= last, "a chain lasts from its first job on"


async def test_a_job_that_waits_for_another_chain(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        async with client.transaction() as tx:
            greeting = await client.start(tx, Greet())
            waiting = await client.start(tx, After(greeting=greeting))
        assert recorder.one("job_blocked")["blocker_ids"] == [greeting.id]
        assert job_of(recorder.one("job_blocked")) == ("after", waiting.id)
        await drained(client)

    assert recorder.one("job_unblocked") == {"job_id": waiting.id, "job_type": "after"}
    names = recorder.names()
    assert names.index("chain_completed") < names.index("job_unblocked")
    assert [facts["wait"] is None for facts in recorder.of("attempt_started")] == [False, True]


async def test_attempts_that_fail_until_the_last(setting: Setting, recorder: Recorder) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Greet, max_attempts=2)
    async def fails(attempt: Attempt[Greet, Any]) -> str:
        raise JobError("BAD_GREETING", "no")

    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet())
        async with Worker(client, registry, backoff=SOON, poll_interval=setting.poll_interval):
            with pytest.raises(ChainFailed):
                await client.wait(chain, timeout=PATIENCE)

    first, second = recorder.of("attempt_failed")
    assert (first["attempt_number"], second["attempt_number"]) == (1, 2)
    assert first["error_code"] == second["error_code"] == "BAD_GREETING"
    assert (first["error_type"], first["error_message"]) == ("JobError", "no")
    assert first["retry_in"] == pytest.approx(0.02)
    assert second["retry_in"] is None
    assert recorder.one("job_failed")["error_code"] == recorder.one("chain_failed")["error_code"] == "BAD_GREETING"
    assert "job_completed" not in recorder.names()
    async with setting.connect(JOBS, observers=[recorder]) as client, client.transaction() as tx:
        await client.retry(tx, chain)
    assert job_of(recorder.one("job_retried")) == ("greet", chain.id)


async def test_a_handler_that_asks_for_another_time(setting: Setting, recorder: Recorder) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Greet)
    async def not_yet(attempt: Attempt[Greet, Any]) -> str:
        raise Reschedule(after=timedelta(hours=1))

    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet())
        await drained(client, registry)
        recorder_names = recorder.names("attempt", "job")
        async with client.transaction() as tx:
            await client.trigger(tx, chain)

    assert recorder_names == ["job_created", "attempt_started", "attempt_ended", "attempt_rescheduled"]
    assert job_of(recorder.one("job_triggered")) == ("greet", chain.id)


async def test_a_job_whose_deadline_passed_has_no_attempt(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        await begin(client, Greet(), deadline=0)
        await drained(client)

    assert recorder.names("attempt", "job", "chain") == ["chain_created", "job_created", "job_expired", "chain_expired"]


async def test_what_is_done_from_outside(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        one, two, three = [await begin(client, Greet()) for _ in range(3)]
        recorder.clear()
        async with client.transaction() as tx:
            await client.cancel(tx, one)
            await client.delete(tx, two)
            async with client.take_over(tx, three, Greet) as current:
                await current.settle("Hello")
            assert recorder.told == []

    assert recorder.names() == ["job_cancelled", "chain_cancelled", "chain_deleted", "job_completed", "chain_completed"]
    assert recorder.one("chain_cancelled")["chain_id"] == one.id
    assert recorder.one("chain_deleted") == {"chain_id": two.id, "chain_type": "greet", "status": "pending"}
    assert recorder.one("job_completed")["worker_id"] is None


async def test_a_deduplicated_start_creates_nothing(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        await begin(client, Greet(), dedup="one")
        recorder.clear()
        assert (await begin(client, Greet(), dedup="one")).deduplicated

    assert recorder.told == []


async def test_a_job_whose_worker_died_is_reaped(setting: Setting, recorder: Recorder) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        (chain,) = await start(client)
        assert await die_holding(client) == [chain.id]
        async with Worker(client, registry, poll_interval=0.02) as worker:
            await client.wait(chain, timeout=PATIENCE)

    assert job_of(recorder.one("job_reaped")) == ("step", chain.id)
    assert (recorder.one("job_reaped")["worker_id"], recorder.one("job_reaped")["attempt_number"]) == (worker.id, 1)
    assert recorder.one("attempt_completed")["attempt_number"] == 2


@pytest.mark.parametrize(
    ("how", "event"),
    [
        ("complete", "attempt_already_completed"),
        ("cancel", "attempt_cancelled"),
        ("delete", "attempt_deleted"),
        ("take", "attempt_taken_by_another_worker"),
    ],
)
async def test_an_attempt_that_loses_its_job(setting: Setting, recorder: Recorder, how: str, event: str) -> None:
    gate, registry = Gate(), Handlers[Any]()

    @registry.handles(Step, renew_interval=0.05)
    async def step(attempt: Attempt[Step, Any]) -> int:
        await gate()
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        (chain,) = await start(client)
        worker = Worker(client, registry, poll_interval=3600)
        async with worker:
            await gate.arrival()
            if how == "take":
                await settle(client, chain, status="pending", schedule=When(after=3600.0))
            else:
                await LOSSES[how](client, chain)
            await eventually(lambda: recorder.names("attempt")[-1:] == ["attempt_ended"])

    told = [name for name in recorder.names("attempt") if name != "attempt_lease_renewed"]
    assert told == ["attempt_started", event, "attempt_ended"]


async def settle(client: Client[Any], chain: Chain[Any], **fields: Any) -> None:
    """Settle the job as the owner of its claim would, without telling anybody."""
    (row,) = await client._run((client._engine.state.get_jobs([chain.id]), None))
    assert row is not None
    settlement = Settlement(job_id=chain.id, token=row.token, **fields)
    await client._run((client._engine.state.settle([settlement]), None))


async def _complete(client: Client[Any], chain: Chain[Any]) -> None:
    async with client.transaction() as tx, client.take_over(tx, chain, Step) as current:
        await current.settle(2)


async def _cancel(client: Client[Any], chain: Chain[Any]) -> None:
    async with client.transaction() as tx:
        await client.cancel(tx, chain)


async def _delete(client: Client[Any], chain: Chain[Any]) -> None:
    async with client.transaction() as tx:
        await client.delete(tx, chain)


LOSSES: dict[str, Callable[[Client[Any], Chain[Any]], Awaitable[None]]] = {
    "complete": _complete,
    "cancel": _cancel,
    "delete": _delete,
}


async def test_a_result_that_comes_too_late(setting: Setting, recorder: Recorder) -> None:
    """Nobody told the handler to stop; its result has no effect, and observers hear why."""
    gate, registry = Gate(), Handlers[Any]()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        await gate()
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        (chain,) = await start(client)
        async with Worker(client, registry, poll_interval=3600, cancel_on_abort=False):
            await gate.arrival()
            await settle(client, chain, status="completed", output=b"2")
            gate.open()
            await eventually(lambda: "attempt_already_completed" in recorder.names())

    # A worker that only now begins to listen looks into what it runs, and then finds out before the end.
    assert sorted(recorder.names("attempt")) == ["attempt_already_completed", "attempt_ended", "attempt_started"]


async def test_leases_are_renewed_and_lost(sqlite: Setting, recorder: Recorder) -> None:
    gate, registry = Gate(), Handlers[Any]()

    @registry.handles(Step, lease=5, renew_interval=0.05)
    async def step(attempt: Attempt[Step, Any]) -> int:
        await gate()
        return 1

    async with sqlite.connect([Step], observers=[recorder]) as client:
        (chain,) = await start(client)
        async with Worker(client, registry, poll_interval=3600):
            await gate.arrival()
            await eventually(lambda: "attempt_lease_renewed" in recorder.names())
            assert job_of(recorder.of("attempt_lease_renewed")[0]) == ("step", chain.id)
            failing = client._engine.state.renew

            def renew(leases: Any) -> Any:
                raise OSError("no network")

            client._engine.state.renew = renew  # type: ignore[method-assign]
            await eventually(lambda: "attempt_lease_lost" in recorder.names())
            client._engine.state.renew = failing  # type: ignore[method-assign]

    assert job_of(recorder.one("attempt_lease_lost")) == ("step", chain.id)


async def test_a_stopping_worker_puts_its_jobs_back(setting: Setting, recorder: Recorder) -> None:
    gate, registry = Gate(), Handlers[Any]()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        await gate()
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        await start(client)
        async with Worker(client, registry, shutdown_timeout=0, poll_interval=3600):
            await gate.arrival()

    assert recorder.names("attempt", "worker") == [
        "worker_started", "attempt_started", "worker_stopping", "attempt_ended", "attempt_rescheduled",
        "worker_stopped",
    ]  # fmt: skip
    assert recorder.one("worker_stopped")["clean"] is False


async def test_errors_of_the_adapters_are_told_with_the_operation(sqlite: Setting, recorder: Recorder) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        return 1

    async with sqlite.connect([Step], observers=[recorder]) as client:
        state: Any = client._engine.state
        inner, notify = state._inner, client.sessions.channel._inner.adapter
        fail_once(inner, "claim", OSError("disk full"))
        fail_once(notify, "publish", ConnectionError("no channel"), is_async=True)
        (chain,) = await start(client)
        async with Worker(client, registry, poll_interval=0.02, recovery_backoff=SOON):
            await client.wait(chain, timeout=PATIENCE)

    error = {"error_type": "OSError", "error_message": "disk full"}
    assert recorder.one("state_error") == {"operation": "claim", **error}
    assert recorder.one("worker_error").items() >= error.items()
    assert recorder.one("notify_error") == {
        "operation": "job_scheduled",
        "error_type": "ConnectionError",
        "error_message": "no channel",
    }


async def test_a_channel_that_hangs_is_told_of(
    sqlite: Setting, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "PUBLISH_SECONDS", 0.01)
    async with sqlite.connect([Step], observers=[recorder]) as client:

        async def hang(*_: Any) -> None:
            await asyncio.Event().wait()

        bounded: Any = client.sessions.channel._inner
        bounded.immediate, bounded.adapter.publish = False, hang
        await start(client)

    error = recorder.one("notify_error")
    assert (error["operation"], error["error_type"]) == ("job_scheduled", "NotifyUnavailable")


def fail_once(target: Any, name: str, error: Exception, *, is_async: bool = False) -> None:
    inner, errors = getattr(target, name), [error]

    def program() -> Any:
        if errors:
            raise errors.pop()
        yield

    async def call() -> None:
        raise errors.pop()

    def once(*args: Any, **options: Any) -> Any:
        if errors:
            return call() if is_async else program()
        return inner(*args, **options)

    setattr(target, name, once)


async def test_what_cannot_be_done_is_no_fault_of_the_database(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet())
        with pytest.raises(Exception, match="already exists"):
            await begin(client, Greet(), id=chain.id)

    assert recorder.names() == ["chain_created", "job_created"]


async def test_a_transaction_that_cannot_commit_is_told_of(sqlite: Setting, recorder: Recorder) -> None:
    async with sqlite.connect(JOBS, observers=[recorder]) as client:
        with pytest.raises(Exception, match="inside"):
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                raise ValueError("the body's own error, inside")
        assert recorder.told == []

        class Broken:
            async def __aenter__(self) -> None:
                raise OSError("no database")

        client.sessions.storage.provider._inner.transaction = Broken
        with pytest.raises(OSError, match="no database"):
            async with client.transaction():
                pass

    assert recorder.one("state_error")["operation"] == "transaction"


def test_a_sync_transaction_that_cannot_begin_or_commit_is_told_of(sqlite: Setting, recorder: Recorder) -> None:
    with sqlite.connect_sync(JOBS, observers=[recorder]) as client:
        with pytest.raises(ValueError, match="own"), client.transaction() as tx:
            client.start(tx, Greet())
            raise ValueError("the body's own error")
        assert recorder.told == []

        class Broken:
            def __enter__(self) -> None:
                raise OSError("no database")

        client.sessions.storage.provider._inner.transaction = Broken
        with pytest.raises(OSError, match="no database"), client.transaction():
            pass

    assert recorder.one("state_error")["operation"] == "transaction"
