"""`worker.run()` in a process of its own: signals, and the exit code."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Step, job, start

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def file(tmp_path: Path) -> Setting:
    return Setting("sqlite", None, tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
async def test_an_idle_worker_ends_with_0(file: Setting, number: signal.Signals) -> None:
    async with child("run_worker", file.url, "idle") as worker:
        assert await worker.says() == "at work"
        worker.send(number)
        assert await worker.says() == "stopping"
        assert await worker.says() == "stopped: 0"
        assert await worker.exit_code() == 0


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_running_job_is_finished_first(file: Setting, number: signal.Signals) -> None:
    async with file.connect([Step]) as client, child("run_worker", file.url, "working") as worker:
        chains = await start(client, 2)
        assert await worker.says() == "at work"
        worker.send(number)
        assert await worker.says() == "stopping"
        worker.tell()
        assert await worker.says() == "stopped: 0"
        assert await worker.exit_code() == 0
        records = [await job(client, chain) for chain in chains]
        assert [(record.status, record.attempt_number) for record in records] == [("completed", 1), ("pending", 0)]


@pytest.mark.parametrize("second", SIGNALS)
async def test_a_second_signal_aborts_at_once(file: Setting, second: signal.Signals) -> None:
    """The shutdown timeout is a minute."""
    async with file.connect([Step]) as client, child("run_worker", file.url, "stubborn") as worker:
        (chain,) = await start(client)
        assert await worker.says() == "at work"
        worker.send(signal.SIGTERM)
        assert await worker.says() == "stopping"
        worker.send(second)
        assert await worker.says() == "aborted: shutdown"
        assert await worker.says() == "stopped: 1"
        assert await worker.exit_code() == 1
        record = await job(client, chain)
        assert (record.status, record.attempt_number, record.leased_by) == ("pending", 0, None)


async def test_a_handler_that_will_not_stop_cannot_keep_the_worker(file: Setting) -> None:
    async with file.connect([Step]) as client, child("run_worker", file.url, "deaf") as worker:
        (chain,) = await start(client)
        assert await worker.says() == "at work"
        worker.send(signal.SIGTERM)
        assert await worker.says() == "stopping"
        assert await worker.says() == "not listening"
        assert await worker.says() == "stopped: 1"
        record = await job(client, chain)
        assert record.status == "running", "it may be at work still: nobody else gets the job before its lease ends"
