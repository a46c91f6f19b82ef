"""OpenTelemetry: metrics and traces through its API. Needs the extra `queuert[otel]`.

You set up the SDK yourself.
"""

from __future__ import annotations

from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.trace import TracerProvider, get_tracer

from queuert.observability.otel.metrics import SCOPE, Metrics
from queuert.observability.otel.stats import StatsGauges
from queuert.observability.otel.tracing import OpenTelemetryTracer

__all__ = ["OpenTelemetry", "StatsGauges"]


class OpenTelemetry(Metrics):
    """An observer that records metrics and traces. Without arguments it uses the global providers.

    connect(…, observers=[OpenTelemetry()])
    """

    def __init__(
        self, *, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
    ) -> None:
        super().__init__(get_meter(SCOPE, meter_provider=meter_provider))
        self.tracer = OpenTelemetryTracer(get_tracer(SCOPE, tracer_provider=tracer_provider))
