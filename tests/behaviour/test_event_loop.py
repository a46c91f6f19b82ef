"""A handler that blocks the event loop is reported: once, with its type and for how long."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Step, start

from queuert import Attempt, Handlers, SyncAttempt, Worker
from queuert.worker.base import watchdog

BLOCKED = 0.8
"""Seconds. The watchdog must have time to see it on a busy machine."""


@pytest.fixture(autouse=True)
def impatient_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "BLOCKED_AFTER", 0.4)
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.1)


def reports(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "blocked the event loop" in record.getMessage()]


async def test_a_blocking_handler_is_reported_once(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting("memory", "in-process", tmp_path)
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        time.sleep(BLOCKED)  # noqa: ASYNC251
        return 1

    async with setting.connect([Step]) as client:
        await start(client, 2)
        await Worker(client, handlers).drain()
    (report,) = reports(caplog)
    assert report.__dict__["job_type"] == "step"
    assert "'step'" in report.getMessage()
    assert report.__dict__["lag"] > 0.4
    assert report.levelno == logging.WARNING


async def test_a_thread_that_blocks_is_none_of_its_business(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting("memory", "in-process", tmp_path)
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    def step(attempt: SyncAttempt[Step]) -> int:
        time.sleep(BLOCKED)
        return 1

    async with setting.connect([Step]) as client:
        (chain,) = await start(client)
        async with Worker(client, handlers):
            assert await client.wait(chain, timeout=45) == 1
    assert reports(caplog) == []
