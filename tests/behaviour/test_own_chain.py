"""A handler that ends or deletes its own chain in its transaction gets that, once."""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest
from tests.behaviour.conftest import Entry, Setting, ledger, write
from tests.behaviour.steps import PATIENCE, eventually, job, running
from tests.behaviour.working import begin, output, working

from queuert import (
    Attempt,
    Chain,
    ChainCancelled,
    ChainNotFound,
    Client,
    EntryJob,
    Handlers,
    Observer,
    SyncAttempt,
    Worker,
)

How = Literal["cancel", "delete"]


class Own(EntryJob[str, "Own"], name="own"):
    number: int = 0


RESULTS: list[Any] = [
    "an output",
    Own(number=-1),  # a continuation
    7,  # cannot be stored: it is ignored all the same
]


async def end_own_chain(attempt: Attempt[Own], how: How, tx: Any) -> None:
    if how == "cancel":
        await attempt.client.cancel(tx, attempt.chain_id)
    else:
        await attempt.client.delete(tx, attempt.chain_id)


async def assert_ended(client: Client[Any], chain: Chain[Own], how: How) -> None:
    with pytest.raises(ChainCancelled if how == "cancel" else ChainNotFound):
        await client.wait(chain, timeout=PATIENCE)
    await eventually(lambda: _nothing_runs(client))
    assert [each.status for each in (await client.list_jobs(Own)).items] == (["cancelled"] if how == "cancel" else [])


async def _nothing_runs(client: Client[Any]) -> bool:
    return not await running(client)


@pytest.mark.drivers
@pytest.mark.parametrize("result", range(len(RESULTS)), ids=["output", "continuation", "unfit"])
@pytest.mark.parametrize("phase", ["complete", "prepare"])
@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_an_async_handler_ends_its_own_chain(
    setting: Setting, how: How, phase: str, result: int, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Own)
    async def handler(attempt: Attempt[Own]) -> Any:
        ran.append(attempt.number)
        async with attempt.complete() if phase == "complete" else attempt.prepare("atomic") as tx:
            await write(attempt.client, tx, "before")
            await end_own_chain(attempt, how, tx)
            await write(attempt.client, tx, "after")
        return RESULTS[result]

    with caplog.at_level(logging.INFO, "queuert.worker"):
        async with working(setting, [Own], handlers, lease=60, renew_interval=0.2, poll_interval=0.05) as client:
            chain = await begin(client, Own())
            await assert_ended(client, chain, how)
            # Another job, so that the worker has gone on.
            other = await begin(client, Own(number=1))
            await assert_other(client, other, how)
            assert await ledger(client) == ["before", "after"] * 2
    assert ran == [1, 1]
    said = [record for record in caplog.records if "ended by its own handler" in record.getMessage()]
    assert [record.job_id for record in said] == [chain.id, other.id]  # type: ignore[attr-defined]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def assert_other(client: Client[Any], chain: Chain[Own], how: How) -> None:
    with pytest.raises(ChainCancelled if how == "cancel" else ChainNotFound):
        await client.wait(chain, timeout=PATIENCE)
    await eventually(lambda: _nothing_runs(client))


@pytest.mark.parametrize("result", range(len(RESULTS)), ids=["output", "continuation", "unfit"])
@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_plain_handler_ends_its_own_chain(
    setting: Setting, how: How, result: int, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Own)
    def handler(attempt: SyncAttempt[Own]) -> Any:
        ran.append(attempt.number)
        with attempt.complete() as tx:
            attempt.client.start(tx, Entry(text="before"))
            if how == "cancel":
                attempt.client.cancel(tx, attempt.chain_id)
            else:
                attempt.client.delete(tx, attempt.chain_id)
        return RESULTS[result]

    with caplog.at_level(logging.INFO, "queuert.worker"):
        async with working(setting, [Own], handlers, lease=60, renew_interval=0.2, poll_interval=0.05) as client:
            await assert_ended(client, await begin(client, Own()), how)
            assert await ledger(client) == ["before"]
    assert ran == [1]
    assert "ended by its own handler" in caplog.text


async def test_an_error_afterwards_undoes_it(setting: Setting) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Own)
    async def handler(attempt: Attempt[Own]) -> str:
        ran.append(attempt.number)
        async with attempt.complete() as tx:
            if attempt.number == 1:
                await attempt.client.cancel(tx, attempt.chain_id)
                raise RuntimeError("on second thoughts")
        return "done"

    async with working(setting, [Own], handlers) as client:
        assert await output(client, await begin(client, Own())) == "done"
        assert ran == [1, 2]


async def test_a_handler_that_cancels_its_chain_with_its_dependents(setting: Setting) -> None:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Own)
    async def handler(attempt: Attempt[Own]) -> str:
        ran.append(attempt.number)
        async with attempt.complete() as tx:
            await attempt.client.cancel(tx, attempt.chain_id, cascade=True)
            await write(attempt.client, tx, "with it")
        return "ignored"

    async with working(setting, [Own], handlers, lease=60, renew_interval=0.2, poll_interval=0.05) as client:
        chain = await begin(client, Own())
        await assert_ended(client, chain, "cancel")
        record = await job(client, chain)
        assert (record.status, record.attempt_number) == ("cancelled", 1)
        assert await ledger(client) == ["with it"]
    assert ran == [1]


async def test_observers_are_told_that_it_was_cancelled(setting: Setting) -> None:
    handlers, told = Handlers[Any](), list[str]()

    class Ears(Observer):
        def attempt_completed(self, **facts: Any) -> None:
            told.append("completed")

        def attempt_cancelled(self, **facts: Any) -> None:
            told.append("cancelled")

        def chain_cancelled(self, **facts: Any) -> None:
            told.append("chain cancelled")

    @handlers.handles(Own)
    async def handler(attempt: Attempt[Own]) -> str:
        async with attempt.complete() as tx:
            await attempt.client.cancel(tx, attempt.chain_id)
        return "ignored"

    worker_options: dict[str, Any] = {"poll_interval": setting.poll_interval}
    async with setting.connect([Own], observers=[Ears()]) as client, Worker(client, handlers, **worker_options):
        await assert_ended(client, await begin(client, Own()), "cancel")
        await eventually(lambda: len(told) == 2)
    assert sorted(told) == ["cancelled", "chain cancelled"]
