"""The cases of the notify port, and their runner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from queuert_conformance.notify import closing, hints, publish, sync
from queuert_conformance.notify.channel import NOTIFY, open_channel
from queuert_conformance.notify.harness import NotifyHarness
from queuert_conformance.report import Report
from queuert_conformance.runner import DEFAULT_TIMEOUT, Factory, run_suite

_ = (publish, hints, closing, sync)


async def run_notify_conformance(
    harness_factory: Factory[NotifyHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a notify adapter. Read the report, or call `report.raise_if_failed()`.

    Args:
        harness_factory: Makes a harness for each case: the class, or a function.
        only: Run only some cases, chosen by module, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return await run_suite(NOTIFY, harness_factory, open_channel, only, timeout)


def run_notify_conformance_sync(
    harness_factory: Factory[NotifyHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a notify adapter, in a program without an event loop.

    Args:
        harness_factory: Makes a harness for each case: the class, or a function.
        only: Run only some cases, chosen by module, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return asyncio.run(run_notify_conformance(harness_factory, only=only, timeout=timeout))
