"""Every attempt that began has exactly one outcome event, however it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, job, patiently, start
from tests.observability.otel import Telemetry
from tests.observability.recorder import Recorder

from queuert import Attempt, Client, Handlers, JobError, Reschedule, StorageError, StorageRejected, SyncAttempt, Worker
from queuert.ports.program import Program
from queuert.records.model import Settlement

NOT_OUTCOMES = {"attempt_started", "attempt_ended", "attempt_lease_renewed", "attempt_lease_lost"}


def outcomes(recorder: Recorder) -> list[tuple[str, int]]:
    """The outcome events, and the numbers of their attempts."""
    return [
        (event, facts["attempt_number"])
        for event, facts in recorder.told
        if event.startswith("attempt_") and event not in NOT_OUTCOMES
    ]


def refuse(client: Client[Any], wanted: Callable[[Settlement], bool], error: Exception, times: int) -> None:
    """The first settlements of this kind meet this error."""
    state: Any = client._engine.state
    settle, left = state.settle, [error] * times

    def refusing(settlements: Sequence[Settlement]) -> Program[Any]:
        if left and any(wanted(each) for each in settlements):
            raise left.pop()
        return (yield from settle(settlements))

    state.settle = refusing


def puts_back(settlement: Settlement) -> bool:
    return settlement.status == "pending"


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (JobError("BAD_STEP", "no"), "BAD_STEP", ("JobError", "no")),
        (Reschedule(after=0), "UNHANDLED_ERROR", ("StorageRejected", "cannot be put back")),
    ],
)
async def test_a_job_that_cannot_be_put_back(
    setting: Setting,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    raised: Exception,
    code: str,
    told: tuple[str, str],
) -> None:
    """For a reason of its own: the attempt has failed, and nothing claims that another worker has the job."""
    caplog.set_level(logging.INFO, "queuert")
    registry: Handlers[Any] = Handlers()

    @registry.handles(Step, lease=1.0)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.number == 1:
            raise raised
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        refuse(client, puts_back, StorageRejected("cannot be put back"), 2)  # the second time, a shorter error
        (chain,) = await start(client)
        async with Worker(client, registry, poll_interval=0.02, backoff=SOON):
            assert await client.wait(chain, timeout=PATIENCE) == 1

    assert outcomes(recorder) == [("attempt_failed", 1), ("attempt_completed", 2)]
    failed = recorder.one("attempt_failed")
    assert (failed["error_code"], (failed["error_type"], failed["error_message"])) == (code, told)
    assert 0 <= failed["retry_in"] <= 1.0, "when its lease ends"
    texts = [record.getMessage() for record in caplog.records]
    assert f"job {chain.id} cannot be settled; it runs again when its lease expires" in texts
    assert not [text for text in texts if "no longer ours" in text]


async def test_a_result_that_is_not_settled_when_the_worker_stops(
    setting: Setting, recorder: Recorder, telemetry: Telemetry
) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        return 1

    async with setting.connect([Step], observers=[recorder, telemetry.observer]) as client:
        refuse(client, lambda _: True, StorageError("no database"), 10_000)
        (chain,) = await start(client)
        worker = Worker(client, registry, shutdown_timeout=0, recovery_backoff=SOON)
        await worker.start()
        await eventually(lambda: "attempt_ended" in recorder.names())
        assert await patiently(worker.stop()) is False
        assert (await job(client, chain)).status == "running"

    assert outcomes(recorder) == [("attempt_failed", 1)]
    assert recorder.one("attempt_failed")["error_code"] == "LEASE_EXPIRED"
    (span,) = [span for span in telemetry.spans if span.name == "attempt step"]
    assert span.attributes is not None
    assert span.attributes["queuert.attempt.outcome"] == "failed"


@pytest.mark.parametrize("commits", [False, True])
async def test_a_thread_that_ends_after_its_worker(setting: Setting, recorder: Recorder, *, commits: bool) -> None:
    """It is told of when it ends. What it commits in its own transaction counts."""
    began, may_end, registry = threading.Event(), threading.Event(), Handlers[Any]()

    @registry.handles(Step)
    def step(attempt: SyncAttempt[Step, Any]) -> int:
        began.set()
        may_end.wait(PATIENCE)
        if commits:
            with attempt.complete():
                return 1
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        (chain,) = await start(client)
        worker = Worker(client, registry, shutdown_timeout=0)
        await worker.start()
        await eventually(began.is_set)
        assert await patiently(worker.stop()) is False
        assert outcomes(recorder) == []
        may_end.set()
        await eventually(lambda: outcomes(recorder))
        await eventually(lambda: "attempt_ended" in recorder.names())
        assert (await job(client, chain)).status == ("completed" if commits else "running")

    assert outcomes(recorder) == [("attempt_completed" if commits else "attempt_failed", 1)]


async def test_a_lost_attempt_whose_job_cannot_be_read(setting: Setting, recorder: Recorder) -> None:
    """Then it is not known why the result had no effect, only that it had none."""
    gate, registry = Gate(), Handlers[Any]()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        await gate()
        return 1

    async with setting.connect([Step], observers=[recorder]) as client:
        (chain,) = await start(client)
        state: Any = client._engine.state
        async with Worker(client, registry, poll_interval=3600, cancel_on_abort=False):
            await gate.arrival()
            (row,) = await client._run((state.get_jobs([chain.id]), None))
            lost = Settlement(job_id=chain.id, token=row.token, status="completed", output=b"2")
            await client._run((state.settle([lost]), None))
            read = state.get_jobs

            def unreadable(ids: Sequence[str]) -> Any:
                raise StorageError("no database")

            state.get_jobs = unreadable
            gate.open()
            await eventually(lambda: outcomes(recorder))
            state.get_jobs = read

    assert len(outcomes(recorder)) == 1
