"""The signal by which a handler learns that it should stop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from queuert.worker.base.abort import Abort, lost_reason


async def test_the_first_reason_stays() -> None:
    signal = Abort()
    assert (signal.aborted, signal.reason) == (False, None)
    signal.abort("timeout")
    signal.abort("shutdown")
    assert (signal.aborted, signal.reason) == (True, "timeout")
    assert await signal.wait() == "timeout"
    assert signal.wait_in_thread(0) == "timeout"


async def test_all_waiters_are_woken_in_tasks_and_in_threads() -> None:
    signal = Abort()
    tasks = [asyncio.create_task(signal.wait()) for _ in range(3)]
    threads = [asyncio.create_task(asyncio.to_thread(signal.wait_in_thread, 30)) for _ in range(2)]
    await asyncio.sleep(0)
    threading.Thread(target=signal.abort, args=("cancelled",)).start()
    assert await asyncio.wait_for(asyncio.gather(*tasks, *threads), 45) == ["cancelled"] * 5


async def test_a_waiter_that_gives_up_leaves_nothing_behind() -> None:
    signal = Abort()
    task = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert signal.wait_in_thread(0.001) is None
    assert signal._waiting == []
    signal.abort("lease_lost")


def row(status: str, token: int | None = None) -> Any:
    """As much of a stored job as the question is about."""
    return SimpleNamespace(status=status, token=token)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "not_found"),
        (row(status="running", token=7), None),
        (row(status="running", token=8), "taken_by_another_worker"),
        (row(status="pending"), "taken_by_another_worker"),
        (row(status="blocked"), "taken_by_another_worker"),
        (row(status="cancelled"), "cancelled"),
        (row(status="completed"), "already_completed"),
        (row(status="failed"), "already_completed"),
        (row(status="expired"), "already_completed"),
    ],
)
def test_why_a_claim_is_over(found: Any, reason: str | None) -> None:
    assert lost_reason(found, 7) == reason
