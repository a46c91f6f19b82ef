"""docs/observability.md names everything that there is, and nothing else."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path
from typing import Any

from opentelemetry import context as contexts
from tests.observability.otel import Telemetry

from queuert import Observer
from queuert.features.observing.logging import MESSAGES
from queuert.features.observing.otel import attributes as names
from queuert.features.observing.otel.stats import GAUGES, JOBS, LIMITED, OLDEST_READY_AGE, TOOK
from queuert.ports.observer import EVENTS
from queuert.ports.tracer import Blocker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text("utf-8")

ROW = re.compile(r"^\| `([a-z_. ]+)` \| (.*?) \|", re.MULTILINE)


def rows(heading: str) -> dict[str, str]:
    """The tables below a heading: first column → second."""
    _, _, rest = PAGE.partition(f"\n### {heading}\n")
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return dict(ROW.findall(section))


def test_every_event_is_listed_with_its_arguments() -> None:
    listed = {event: re.findall(r"`(\w+)`", arguments) for event, arguments in rows("Events").items()}
    actual = {
        event: [name for name in inspect.signature(getattr(Observer, event)).parameters if name != "self"]
        for event in EVENTS
    }
    assert listed == actual


def test_every_level_of_the_event_log_is_listed() -> None:
    assert rows("Levels of the event log") == {
        event: logging.getLevelName(level) for event, (level, _) in MESSAGES.items()
    }


def attributes_of(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z_.]+)`", cell))


def test_every_metric_is_listed_with_its_attributes(telemetry: Telemetry) -> None:
    """Each event is told once, with all its arguments; what comes out is what the page says."""
    for event in EVENTS:
        arguments = list(inspect.signature(getattr(Observer, event)).parameters)[1:]
        getattr(telemetry.observer, event)(**{name: FACTS.get(name, "x") for name in arguments})
    listed = {metric: attributes_of(cell) for metric, cell in rows("Metrics").items()}
    gauges = {
        JOBS: {names.JOB_TYPE, names.JOB_STATUS},
        LIMITED: {names.JOB_TYPE},
        OLDEST_READY_AGE: {names.JOB_TYPE},
        TOOK: {names.JOB_TYPE, names.QUANTILE},
    }
    assert set(gauges) == set(GAUGES)
    assert listed == {**telemetry.attributes(), **gauges}


FACTS: dict[str, Any] = {
    "duration": 1.0,
    "wait": 1.0,
    "lag": 1.0,
    "job_types": ("x",),
    "concurrency": 1,
    "continued": True,
    "triggered": False,
}


def test_every_attribute_is_listed() -> None:
    defined = {value for name, value in vars(names).items() if name.isupper() and name != "SYSTEM"}
    assert set(rows("Attributes")) == defined


def test_every_span_is_listed_with_its_kind() -> None:
    """Every method of the tracer that makes a span is called: names without types, and kinds."""
    telemetry = Telemetry()
    try:
        tracer: Any = telemetry.observer.tracer
        job: Any = {"job_id": "j", "job_type": "x", "chain_id": "c", "chain_type": "x"}
        creation = tracer.start_creation(
            **job, chain_index=0, chain_trace_context=None, previous_trace_context=None,
            blockers=[Blocker("b", "x", None)],
        )  # fmt: skip
        tracer.end_creation(creation)
        again = tracer.start_creation(
            **job, chain_index=0, chain_trace_context=None, previous_trace_context=None, blockers=[]
        )
        tracer.end_deduplicated(again, chain_id="c", chain_type="x", trace_context=None)
        attempt = tracer.start_attempt(**job, attempt_number=1, worker_id="w", trace_context=None)
        for phase in ("prepare", "complete"):
            tracer.end_phase(tracer.start_phase(phase=phase), error_type=None)
        contexts.detach(attempt.token)
        tracer.end_attempt(attempt, outcome="completed", error_code=None, error_type=None)
        chain: Any = {"chain_id": "c", "chain_type": "x", "trace_context": None}
        tracer.end_chain(**chain, status="completed", error_code=None, worker_id="w")
        tracer.delete_chain(**chain)
        tracer.complete_job(**job, trace_context=None)
        tracer.resolve_blocker(
            job_id="j", job_type="x", blocker_id="b", blocker_type="x", trace_context=None, blocker_trace_context=None
        )
        made = {span.name.removesuffix(" x"): span.kind.name for span in telemetry.spans}
        used = {name for span in telemetry.spans for name in span.attributes or {}}
    finally:
        telemetry.close()
    assert rows("Spans") == made
    assert used <= set(rows("Attributes"))
