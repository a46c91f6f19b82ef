"""What is remembered of attempts that failed or were lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Step, eventually
from tests.behaviour.working import begin, output, working

from queuert import Attempt, Client, Handlers, JobError
from queuert.records.model import ClaimRequest, QueueLimit, TypeLimit

TOLD = "it broke\nin two lines"


def failing(times: int) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.number <= times:
            raise JobError("BROKE", TOLD)
        return attempt.number

    return handlers


@pytest.mark.drivers
async def test_attempts_that_failed_before_one_succeeded(setting: Setting) -> None:
    async with working(setting, [Step], failing(2)) as client:
        chain = await begin(client, Step())
        assert await output(client, chain) == 3
        attempts = await client.attempts(chain.id)
    assert [(each.number, each.outcome, each.code, each.message) for each in attempts] == [
        (1, "failed", "BROKE", TOLD),
        (2, "failed", "BROKE", TOLD),
    ]
    assert all(each.begun_at is not None and each.begun_at <= each.ended_at for each in attempts)
    assert all((each.worker_id or "").startswith("worker-") for each in attempts)


async def test_a_job_that_succeeds_at_once_has_none(setting: Setting) -> None:
    async with working(setting, [Step], failing(0)) as client:
        chain = await begin(client, Step())
        assert await output(client, chain) == 1
        (job,) = (await client.list_chain_jobs(chain)).items
        assert await client.attempts(job) == []


async def test_an_attempt_whose_worker_is_gone(setting: Setting) -> None:
    """It did not renew its lease. Another worker takes the job back, and runs it."""
    async with setting.connect([Step]) as client:
        chain = await begin(client, Step())
        await _claim_and_die(client)
        async with working(setting, [Step], failing(0), poll_interval=0.02) as other:
            assert await output(other, chain) == 2
            (lost,) = await other.attempts(chain.id)
    assert (lost.number, lost.outcome, lost.worker_id, lost.code) == (1, "lost", "gone", "LEASE_EXPIRED")


async def _claim_and_die(client: Client[Any]) -> None:
    sessions = client.sessions
    request = ClaimRequest("gone", 1, (QueueLimit("q", 0, (TypeLimit("step", 1, 0.01),)),))
    claimed: list[Any] = []

    async def claim() -> bool:
        claimed.extend((await sessions.run(sessions.engine.state.claim(request))).jobs)
        return bool(claimed)

    await eventually(claim)
