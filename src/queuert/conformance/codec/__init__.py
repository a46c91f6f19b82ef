"""The cases for codecs, and their runner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from queuert.conformance.codec import values
from queuert.conformance.codec.harness import CODEC, CodecHarness, open_harness
from queuert.conformance.report import Report
from queuert.conformance.runner import DEFAULT_TIMEOUT, Factory, run_suite

_ = (values,)


async def run_codec_conformance(
    harness_factory: Factory[CodecHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """Check a codec. `only` chooses cases by name or pattern; `timeout` is for each case."""
    return await run_suite(CODEC, harness_factory, open_harness, only, timeout)


def run_codec_conformance_sync(
    harness_factory: Factory[CodecHarness],
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Report:
    """`run_codec_conformance` for programs without an event loop."""
    return asyncio.run(run_codec_conformance(harness_factory, only=only, timeout=timeout))
