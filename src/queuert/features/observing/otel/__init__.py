"""OpenTelemetry: metrics and traces through its API. Needs the extra `queuert[otel]`.

You set up the SDK yourself.
"""

from __future__ import annotations

from queuert.errors import DriverMissing

try:
    from opentelemetry.metrics import MeterProvider, get_meter
    from opentelemetry.trace import TracerProvider, get_tracer
except ImportError as error:
    raise DriverMissing("OpenTelemetry", ["otel"], error) from error

from queuert.features.observing.otel.metrics import SCOPE, Metrics
from queuert.features.observing.otel.stats import StatsGauges
from queuert.features.observing.otel.tracing import OpenTelemetryTracer

__all__ = ["OpenTelemetry", "StatsGauges"]


class OpenTelemetry(Metrics):
    """An observer that records metrics and traces: `connect(…, observers=[OpenTelemetry()])`.

    Args:
        meter_provider: Makes the metrics (default: OpenTelemetry's global provider).
        tracer_provider: Makes the spans (default: OpenTelemetry's global provider).
    """

    def __init__(
        self, *, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
    ) -> None:
        super().__init__(get_meter(SCOPE, meter_provider=meter_provider))
        self.tracer = OpenTelemetryTracer(get_tracer(SCOPE, tracer_provider=tracer_provider))
