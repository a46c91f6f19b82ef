"""OpenTelemetry: metrics and traces through its API. Needs the extra `queuert[otel]`.

You set up the SDK yourself.
"""

from queuert.features.observing.otel import OpenTelemetry, StatsGauges

__all__ = ["OpenTelemetry", "StatsGauges"]
