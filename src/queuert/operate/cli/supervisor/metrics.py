"""What `/metrics` answers: Prometheus' text format.

The figures of the supervisor are always there. The metrics of the worker processes are added if the
application uses prometheus_client, for example through OpenTelemetry's exporter. Each of their
samples gets the label `process`, the number of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, object]
Family = tuple[str, str, str, Iterable[tuple[Labels, float]]]
"""Name, kind, help, and the samples with their labels."""


def text_of_this_process() -> str:
    """What the application has registered with prometheus_client. Empty if it does not use it."""
    prometheus: Any = sys.modules.get("prometheus_client")
    if prometheus is None:
        return ""
    text: bytes = prometheus.generate_latest()
    return text.decode()


def render(families: Iterable[Family]) -> str:
    """Plain figures as text."""
    return "".join(_lines(families))


def _lines(families: Iterable[Family]) -> Iterator[str]:
    for name, kind, help_text, samples in families:
        yield f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
        for labels, value in samples:
            shown = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
            number = str(int(value)) if value == int(value) else repr(value)
            yield f"{name}{{{shown}}} {number}\n" if shown else f"{name} {number}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def merged(texts: Mapping[int, str]) -> str:
    """The metrics of several processes as one text, told apart by the label `process`."""
    given = {number: text for number, text in texts.items() if text}
    if not given:
        return ""
    try:
        # The processes have prometheus_client, so the supervisor has it, too.
        from prometheus_client import CollectorRegistry, Metric, generate_latest
        from prometheus_client.parser import text_string_to_metric_families
        from prometheus_client.samples import Sample
    except ImportError:
        return ""

    families: dict[str, Metric] = {}
    for number, text in given.items():
        for family in text_string_to_metric_families(text):
            metric = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            metric.samples += [
                Sample(sample.name, {**sample.labels, "process": str(number)}, sample.value)
                for sample in family.samples
            ]

    class All:
        def collect(self) -> Iterable[Metric]:
            return families.values()

    registry = CollectorRegistry()
    registry.register(All())
    return generate_latest(registry).decode()
