"""Spans. A chain's trace contains its creation, its jobs, their first attempts and its end.

Retries have their own trace and link to the chain's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from queuert.features.observing.otel import attributes as names
from queuert.ports.tracer import Blocker, Creation

_PROPAGATOR = TraceContextTextMapPropagator()

Attributes = Mapping[str, str | int | bool]


class CurrentSpan(NamedTuple):
    """A span that was made current, and how to undo that."""

    span: Span
    token: Token[Context]


class OpenTelemetryTracer:
    """Implements the tracer port over OpenTelemetry's API."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    # Creation

    def start_creation(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        chain_index: int,
        chain_trace_context: str | None,
        previous_trace_context: str | None,
        blockers: Sequence[Blocker],
    ) -> Creation:
        spans: list[Span] = []
        if chain_index == 0:
            chain = self._producer(f"create chain {chain_type}", None, _facts("create", chain_type, chain_id, chain_id))
            chain.set_attribute(names.CHAIN_TYPE, chain_type)
            spans.append(chain)
            chain_trace_context = written(chain)
        job = self._producer(
            f"create job {job_type}",
            read(chain_trace_context),
            {
                **_facts("create", job_type, job_id, chain_id),
                names.CHAIN_TYPE: chain_type,
                names.JOB_TYPE: job_type,
                names.JOB_INDEX: chain_index,
            },
            links_to(previous_trace_context),
        )
        spans.append(job)
        waits = [
            self._producer(
                f"await blocker {blocker.chain_type}",
                trace.set_span_in_context(job),
                {
                    **_facts("create", job_type, job_id, chain_id),
                    names.JOB_TYPE: job_type,
                    names.CHAIN_TYPE: blocker.chain_type,
                },
                links_to(blocker.trace_context),
            )
            for blocker in blockers
        ]
        return Creation([*spans, *waits], written(job), chain_trace_context, [written(wait) for wait in waits])

    def end_creation(self, creation: Creation) -> None:
        # Innermost first: a span must not end before the spans inside it.
        for span in reversed(creation.spans):
            span.end()

    def end_deduplicated(
        self, creation: Creation, *, chain_id: str, chain_type: str, trace_context: str | None
    ) -> None:
        # The spans of the job and of its blockers are dropped: nothing of that was stored.
        span: Span = creation.spans[0]
        span.set_attributes({**_facts("create", chain_type, chain_id, chain_id), names.CHAIN_DEDUPLICATED: True})
        for link in links_to(trace_context):
            span.add_link(link.context)
        span.end()

    def _producer(self, name: str, parent: Context | None, attributes: Attributes, links: Sequence[Link] = ()) -> Span:
        return self._tracer.start_span(name, parent, SpanKind.PRODUCER, attributes, links)

    # Attempts

    def start_attempt(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        trace_context: str | None,
    ) -> CurrentSpan:
        first = attempt_number == 1
        span = self._tracer.start_span(
            f"attempt {job_type}",
            read(trace_context) if first else Context(),
            SpanKind.CONSUMER,
            {
                **_facts("process", job_type, job_id, chain_id),
                names.CHAIN_TYPE: chain_type,
                names.JOB_TYPE: job_type,
                names.ATTEMPT: attempt_number,
                names.WORKER: worker_id,
            },
            () if first else links_to(trace_context),
        )
        return _made_current(span)

    def end_attempt(self, span: CurrentSpan, *, outcome: str, error_code: str | None, error_type: str | None) -> None:
        # There is nothing to detach: the span was current only in the handler's task, which has
        # ended.
        span.span.set_attribute(names.ATTEMPT_OUTCOME, outcome)
        if error_code is not None:
            _failed(span.span, error_code if error_type is None else error_type, error_code)
        span.span.end()

    def start_phase(self, *, phase: str) -> CurrentSpan:
        return _made_current(self._tracer.start_span(phase, None, SpanKind.INTERNAL))

    def end_phase(self, span: CurrentSpan, *, error_type: str | None) -> None:
        contexts.detach(span.token)
        if error_type is not None:
            _failed(span.span, error_type, None)
        span.span.end()

    # After the commit

    def complete_job(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, trace_context: str | None
    ) -> None:
        attributes = {
            **_facts("settle", job_type, job_id, chain_id),
            names.CHAIN_TYPE: chain_type,
            names.JOB_TYPE: job_type,
        }
        self._by_hand(f"complete job {job_type}", trace_context, attributes, SpanKind.CONSUMER)

    def end_chain(
        self,
        *,
        chain_id: str,
        chain_type: str,
        status: str,
        error_code: str | None,
        worker_id: str | None,
        trace_context: str | None,
    ) -> None:
        attributes: dict[str, Any] = {
            **_facts("settle", chain_type, chain_id, chain_id),
            names.CHAIN_TYPE: chain_type,
            names.CHAIN_STATUS: status,
        }
        name = f"complete chain {chain_type}"
        if worker_id is None:
            self._by_hand(name, trace_context, attributes, SpanKind.CONSUMER)
            return
        attributes[names.WORKER] = worker_id
        span = self._tracer.start_span(name, read(trace_context), SpanKind.CONSUMER, attributes)
        if error_code is not None:
            _failed(span, error_code, error_code)
        span.end()

    def resolve_blocker(
        self,
        *,
        job_id: str,
        job_type: str,
        blocker_id: str,
        blocker_type: str,
        trace_context: str | None,
        blocker_trace_context: str | None,
    ) -> None:
        attributes = {
            **_facts("settle", job_type, job_id, blocker_id),
            names.JOB_TYPE: job_type,
            names.CHAIN_TYPE: blocker_type,
        }
        span = self._tracer.start_span(
            f"resolve blocker {blocker_type}",
            read(trace_context),
            SpanKind.CONSUMER,
            attributes,
            links_to(blocker_trace_context),
        )
        span.end()

    def delete_chain(self, *, chain_id: str, chain_type: str, trace_context: str | None) -> None:
        attributes = {**_facts("settle", chain_type, chain_id, chain_id), names.CHAIN_TYPE: chain_type}
        self._by_hand(f"delete chain {chain_type}", trace_context, attributes, SpanKind.INTERNAL)

    def _by_hand(self, name: str, parent: str | None, attributes: Attributes, kind: SpanKind) -> None:
        """Record what was done without a worker, in the chain's trace, with a link to the caller's
        span.
        """
        here = trace.get_current_span().get_span_context()
        links = [Link(here)] if here.is_valid else []
        self._tracer.start_span(name, read(parent), kind, attributes, links).end()


def written(span: Span) -> str | None:
    """A span's context in W3C form. None if tracing is off."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return " ".join(carrier[name] for name in ("traceparent", "tracestate") if name in carrier) or None


def read(stored: str | None) -> Context:
    """The context to begin a span in.

    If nothing was stored it is empty: the current span is not the parent.
    """
    if stored is None:
        return Context()
    parent, _, state = stored.partition(" ")
    carrier = {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}
    return _PROPAGATOR.extract(carrier, Context())


def links_to(stored: str | None) -> list[Link]:
    context = trace.get_current_span(read(stored)).get_span_context()
    return [Link(context)] if context.is_valid else []


def _made_current(span: Span) -> CurrentSpan:
    return CurrentSpan(span, contexts.attach(trace.set_span_in_context(span)))


def _failed(span: Span, error_type: str, description: str | None) -> None:
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, description))


def _facts(operation: str, destination: str, message: str, conversation: str) -> dict[str, Any]:
    return {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.MESSAGING_OPERATION: operation,
        names.MESSAGING_DESTINATION: destination,
        names.MESSAGING_MESSAGE_ID: message,
        names.MESSAGING_CONVERSATION_ID: conversation,
    }
