"""OpenTelemetry's SDK with its in-memory exporters, and span trees that can be compared as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from queuert.otel import OpenTelemetry


class Telemetry:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.observer = OpenTelemetry(meter_provider=self.meters, tracer_provider=self.tracers)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> str:
        """All spans: kind, name, then what they link to; children indented, in the order of their starts."""
        by_id = {span.context.span_id: span for span in self.spans if span.context is not None}
        children: dict[int | None, list[ReadableSpan]] = {}
        for span in self.spans:
            parent = span.parent
            if parent is not None:
                assert parent.span_id in by_id, f"{span.name} has a parent that was never exported"
            children.setdefault(None if parent is None else parent.span_id, []).append(span)
        lines: list[str] = []

        def show(span: ReadableSpan, depth: int) -> None:
            links = [by_id[link.context.span_id].name for link in span.links]
            failed = " !" + str(span.attributes["error.type"]) if not span.status.is_ok and span.attributes else ""
            lines.append(
                "  " * depth + f"{span.kind.name} {span.name}" + failed + (f" → {', '.join(links)}" if links else "")
            )
            assert span.context is not None
            for child in _in_order(children.get(span.context.span_id, [])):
                show(child, depth + 1)

        for root in _in_order(children.get(None, [])):
            show(root, 0)
        return "\n".join(lines)

    def points(self, name: str, value: Callable[[Any], Any] = lambda point: point.value) -> dict[tuple[Any, ...], Any]:
        """A metric's points: the values of the attributes → the value."""
        data = self.reader.get_metrics_data()
        found: dict[tuple[Any, ...], Any] = {}
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        found |= {
                            tuple((point.attributes or {}).values()): value(point) for point in metric.data.data_points
                        }
        return found

    def metric_names(self) -> set[str]:
        return set(self.attributes())

    def attributes(self) -> dict[str, set[str]]:
        """Metric → the names of the attributes that its points have."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: {name for point in metric.data.data_points for name in point.attributes or {}}
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


def _in_order(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return sorted(spans, key=lambda span: (span.start_time or 0, span.name))
