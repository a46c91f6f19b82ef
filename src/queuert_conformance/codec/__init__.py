"""The cases for codecs, and their runner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from queuert_conformance.codec import values
from queuert_conformance.codec.harness import CODEC, CodecHarness, open_harness
from queuert_conformance.report import Report
from queuert_conformance.runner import DEFAULT_TIMEOUT, Factory, run_suite

_ = (values,)


async def run_codec_conformance(
    harness_factory: Factory[CodecHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a codec. Read the report, or call `report.raise_if_failed()`.

    Args:
        harness_factory: Makes a harness for each case: the class, or a function.
        only: Run only some cases, chosen by module, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return await run_suite(CODEC, harness_factory, open_harness, only, timeout)


def run_codec_conformance_sync(
    harness_factory: Factory[CodecHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a codec, in a program without an event loop.

    Args:
        harness_factory: Makes a harness for each case: the class, or a function.
        only: Run only some cases, chosen by module, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return asyncio.run(run_codec_conformance(harness_factory, only=only, timeout=timeout))
