"""Gauges for the stored jobs: `client.stats()`, read at intervals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from queuert.base.arguments import Duration, seconds
from queuert.base.statuses import IN_STATS
from queuert.features.observing.otel import attributes as names
from queuert.records.model import TypeStats

logger = logging.getLogger("queuert.observers")

JOBS = "queuert.jobs"
LIMITED = "queuert.jobs.limited"
OLDEST_READY_AGE = "queuert.jobs.oldest_ready_age"
TOOK = "queuert.jobs.took"
GAUGES: dict[str, tuple[str, str]] = {
    JOBS: ("{job}", "jobs that are blocked, pending, running or failed"),
    LIMITED: ("{job}", "pending jobs that are due and have a limit"),
    OLDEST_READY_AGE: ("s", "how long the oldest ready job has waited"),
    TOOK: ("s", "how long the attempts took that completed jobs in the last hour"),
}
QUANTILES = (0.5, 0.95, 0.99)
TOOK_SINCE = 3600.0


class AsyncStats(Protocol):
    async def stats(self, *, since: float) -> list[TypeStats]: ...


class SyncStats(Protocol):
    def stats(self, *, since: float) -> list[TypeStats]: ...


class StatsGauges:
    """Exports `client.stats()` as gauges while a block runs.

    Use `async with` for an async client: its figures are read every `interval`. Use `with` for a
    sync client: its figures are read at each collection.

    Args:
        client: A `Client` or a `SyncClient`.
        interval: How often to read the figures of an async client, as a timedelta or in seconds
            (default: 15).
        meter_provider: Makes the gauges (default: OpenTelemetry's global provider).
    """

    def __init__(
        self,
        client: AsyncStats | SyncStats,
        *,
        interval: Duration = 15.0,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._client: Any = client
        self._interval = seconds(interval, "interval", minimum=0.001)
        self._read: Callable[[], Sequence[TypeStats]] | None = None
        self._task: asyncio.Task[None] | None = None
        meter = metrics.get_meter("queuert", meter_provider=meter_provider)
        observed = ((JOBS, self._jobs), (LIMITED, self._limited), (OLDEST_READY_AGE, self._ages), (TOOK, self._took))
        for name, observe in observed:
            unit, text = GAUGES[name]
            meter.create_observable_gauge(name, [observe], unit, text)

    def __enter__(self) -> Self:
        self._read = lambda: self._client.stats(since=TOOK_SINCE)
        return self

    def __exit__(self, *exc: object) -> None:
        self._read = None

    async def __aenter__(self) -> Self:
        latest: list[TypeStats] = await self._client.stats(since=TOOK_SINCE)
        self._read = lambda: latest
        self._task = asyncio.create_task(self._refresh(), name="queuert-stats")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._read = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                latest: list[TypeStats] = await self._client.stats(since=TOOK_SINCE)
            except Exception:
                logger.exception("reading the stats failed, trying again in %g s", self._interval)
                self._read = list  # better no figures than old ones
            else:
                self._read = _constant(latest)

    def _jobs(self, _options: CallbackOptions) -> Iterable[Observation]:
        for each in self._stats():
            for status in IN_STATS:
                attributes = {names.JOB_TYPE: each.job_type, names.JOB_STATUS: status}
                yield Observation(getattr(each, status), attributes)

    def _limited(self, _options: CallbackOptions) -> Iterable[Observation]:
        for each in self._stats():
            yield Observation(each.limited, {names.JOB_TYPE: each.job_type})

    def _ages(self, _options: CallbackOptions) -> Iterable[Observation]:
        for each in self._stats():
            yield Observation(each.oldest_ready_age or 0.0, {names.JOB_TYPE: each.job_type})

    def _took(self, _options: CallbackOptions) -> Iterable[Observation]:
        for each in self._stats():
            for part in QUANTILES:
                if (took := each.took.quantile(part)) is not None:
                    yield Observation(took, {names.JOB_TYPE: each.job_type, names.QUANTILE: f"{part:g}"})

    def _stats(self) -> Sequence[TypeStats]:
        return [] if self._read is None else self._read()


def _constant(latest: Sequence[TypeStats]) -> Callable[[], Sequence[TypeStats]]:
    return lambda: latest
