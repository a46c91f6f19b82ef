"""Metrics: a counter for each event, histograms of durations, and the slots of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.metrics import Meter

from queuert.features.observing.otel import attributes as names
from queuert.ports.observer import EVENTS, Observer

SCOPE = "queuert"

COUNTERS: dict[str, str] = {
    event: f"queuert.{event.replace('_', '.', 1)}" for event in EVENTS if event != "attempt_ended"
}
"""Event → counter."""

CHAIN_DURATION = "queuert.chain.duration"
JOB_DURATION = "queuert.job.duration"
ATTEMPT_DURATION = "queuert.attempt.duration"
JOB_WAIT = "queuert.job.wait"
SCHEDULE_LAG = "queuert.schedule.lag"
HISTOGRAMS: dict[str, str] = {
    CHAIN_DURATION: "from the start of a chain to its end",
    JOB_DURATION: "from the creation of a job to its end",
    ATTEMPT_DURATION: "from the start of a handler to its end",
    JOB_WAIT: "from the moment a job was due to the claim of an attempt",
    SCHEDULE_LAG: "from the moment a tick of a schedule was due to its firing",
}

SLOTS_IDLE = "queuert.slots.idle"
SLOTS_BUSY = "queuert.slots.busy"
UP_DOWN_COUNTERS: dict[str, str] = {
    SLOTS_IDLE: "free slots that serve the type; a slot counts for each type that it serves",
    SLOTS_BUSY: "slots in which a handler of the type runs",
}

BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)
"""In seconds. Jobs take milliseconds or hours. OpenTelemetry's default boundaries are for
milliseconds."""

_ATTRIBUTES = {
    "chain_type": names.CHAIN_TYPE,
    "job_type": names.JOB_TYPE,
    "continued": names.JOB_CONTINUED,
    "status": names.CHAIN_STATUS,
    "error_code": names.ERROR_TYPE,
    "operation": names.OPERATION,
    "limit": names.LIMIT,
}
"""Argument of an event → attribute of its counter, if it is not None. Ids and keys are left out, to
keep the number of series small."""


class Metrics(Observer):
    def __init__(self, meter: Meter) -> None:
        self._histograms = {
            name: meter.create_histogram(
                name, unit="s", description=text, explicit_bucket_boundaries_advisory=BOUNDARIES
            )
            for name, text in HISTOGRAMS.items()
        }
        self._idle, self._busy = (
            meter.create_up_down_counter(name, unit="{slot}", description=text)
            for name, text in UP_DOWN_COUNTERS.items()
        )
        self._types: dict[str, tuple[str, ...]] = {}
        """The types that each running worker serves."""
        listeners: dict[str, list[Callable[..., None]]] = {
            "worker_started": [self._worker_started],
            "worker_stopped": [self._worker_stopped],
            "attempt_started": [self._attempt_started],
            "attempt_ended": [self._attempt_ended],
            "schedule_fired": [self._schedule_fired],
        }
        for status in ("completed", "failed", "expired", "cancelled"):
            listeners[f"chain_{status}"] = [self._timing(CHAIN_DURATION, names.CHAIN_STATUS, status)]
            listeners[f"job_{status}"] = [self._timing(JOB_DURATION, names.JOB_STATUS, status)]
        for event, name in COUNTERS.items():
            counter = meter.create_counter(name, unit="1", description=meaning(event))
            listeners.setdefault(event, []).append(_counting(counter.add))
        for event, functions in listeners.items():
            setattr(self, event, _each_of(functions))

    def _timing(self, name: str, attribute: str, status: str) -> Callable[..., None]:
        histogram, what = self._histograms[name], "chain_type" if name == CHAIN_DURATION else "job_type"

        def record(**facts: Any) -> None:
            if facts["duration"] is not None:
                histogram.record(facts["duration"], {_ATTRIBUTES[what]: facts[what], attribute: status})

        return record

    def _schedule_fired(self, *, lag: float, triggered: bool, **_: Any) -> None:
        # What is fired by hand is for a moment of the past: it is not late. Names of schedules are
        # left out, as ids are: each user may have some.
        if not triggered:
            self._histograms[SCHEDULE_LAG].record(lag, {})

    # Slots

    def _worker_started(self, *, worker_id: str, job_types: tuple[str, ...], concurrency: int, **_: Any) -> None:
        self._types[worker_id] = tuple(job_types)
        self._free(worker_id, concurrency)

    def _worker_stopped(self, *, worker_id: str, concurrency: int, **_: Any) -> None:
        self._free(worker_id, -concurrency)
        self._types.pop(worker_id, None)

    def _attempt_started(
        self, *, worker_id: str, job_type: str, wait: float | None, limit: str | None = None, **_: Any
    ) -> None:
        self._busy.add(1, {names.JOB_TYPE: job_type})
        self._free(worker_id, -1)
        if wait is not None:
            named = {} if limit is None else {names.LIMIT: limit}
            self._histograms[JOB_WAIT].record(wait, {names.JOB_TYPE: job_type, **named})

    def _attempt_ended(self, *, worker_id: str, job_type: str, duration: float, **_: Any) -> None:
        self._busy.add(-1, {names.JOB_TYPE: job_type})
        self._free(worker_id, 1)
        self._histograms[ATTEMPT_DURATION].record(duration, {names.JOB_TYPE: job_type})

    def _free(self, worker_id: str, slots: int) -> None:
        for job_type in self._types.get(worker_id, ()):
            self._idle.add(slots, {names.JOB_TYPE: job_type})


def meaning(event: str) -> str:
    """The first sentence about an event. Empty if Python was told to drop docstrings."""
    first = " ".join((getattr(Observer, event).__doc__ or "").split()).partition(". ")[0]
    return first.rstrip(".").replace("`", "")


def _counting(add: Callable[[int, Mapping[str, Any]], None]) -> Callable[..., None]:
    def count(**facts: Any) -> None:
        add(1, {attribute: facts[name] for name, attribute in _ATTRIBUTES.items() if facts.get(name) is not None})

    return count


def _each_of(functions: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def tell(**facts: Any) -> None:
        for function in functions:
            function(**facts)

    return tell
