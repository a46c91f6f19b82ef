"""What the charts of the overview show: points of the minute statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add

from queuert.base.own_types import is_own
from queuert.records.history import History


@dataclass(frozen=True)
class Span:
    """How far back the charts go."""

    name: str
    since: timedelta
    text: str


SPANS = (
    Span("1h", timedelta(hours=1), "hour"),
    Span("1d", timedelta(days=1), "day"),
    Span("7d", timedelta(days=7), "week"),
    Span("30d", timedelta(days=30), "30 days"),
)


@dataclass(frozen=True)
class Series:
    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart, and the same as a table for those who cannot see it."""

    title: str
    unit: str
    times: Sequence[datetime]
    series: Sequence[Series]

    @property
    def data(self) -> str:
        """For the script."""
        return json.dumps(
            {
                "unit": self.unit,
                "times": [int(each.timestamp()) for each in self.times],
                "series": [{"name": each.name, "colour": each.colour, "values": each.values} for each in self.series],
            }
        )

    @property
    def rows(self) -> list[tuple[datetime, list[float | None]]]:
        """The latest first, without those in which nothing happened."""
        found = [(at, [each.values[number] for each in self.series]) for number, at in enumerate(self.times)]
        return [row for row in reversed(found) if any(row[1])]


def span_of(name: str) -> Span:
    return next((each for each in SPANS if each.name == name), SPANS[0])


def charts_of(history: History) -> list[Chart]:
    points = history.total()
    times = [point.at for point in points]
    minutes = [history.step.total_seconds() / 60] * len(points)
    # The last step is not over. At its beginning, a few jobs would seem to be very many.
    minutes[-1] = max((history.until - points[-1].at).total_seconds() / 60, minutes[-1] / 4)

    def by_minute(name: str) -> list[float]:
        numbers = [getattr(point, name) for point in points]
        return [round(number / length, 2) for number, length in zip(numbers, minutes, strict=True)]

    return [
        Chart(
            "Jobs a minute",
            "a minute",
            times,
            (
                Series("completed", "good", by_minute("completed")),
                Series("failed", "bad", by_minute("failed")),
                Series("tried again", "warn", by_minute("retried")),
            ),
        ),
        Chart(
            "Waiting and running, in seconds",
            "s",
            times,
            (
                Series("waited (95 %)", "info", [_seconds(point.waited.quantile(0.95)) for point in points]),
                *(
                    Series(f"took ({name} %)", colour, [_seconds(point.took.quantile(part)) for point in points])
                    for name, colour, part in (("50", "good", 0.5), ("95", "warn", 0.95), ("99", "bad", 0.99))
                ),
            ),
        ),
    ]


@dataclass(frozen=True)
class TypeRate:
    """What happened to the jobs of one type."""

    job_type: str
    begun: int
    completed: int
    failed: int
    took: tuple[float | None, float | None, float | None]
    """Seconds that half of the attempts took that have completed their jobs, 95 % and 99 %."""

    @property
    def failed_part(self) -> str:
        ended = self.completed + self.failed
        return f"{100 * self.failed / ended:.1f} %" if ended else "–"


def rate_now(history: History) -> float:
    """Jobs that were completed in a minute, lately: in the step that is not over, and the one
    before it, unless nothing happened then.
    """
    before, last = history.total()[-2:]
    elapsed = max((history.until - last.at).total_seconds(), 1.0)
    if not before.completed:
        return last.completed / elapsed * 60
    return (before.completed + last.completed) / (history.step.total_seconds() + elapsed) * 60


def type_rates(history: History) -> list[TypeRate]:
    """Those with most failures first."""
    found: list[TypeRate] = []
    for name, points in history.types.items():
        whole = reduce(add, points)
        if not is_own(name):
            took = whole.took.quantile
            found.append(
                TypeRate(name, whole.begun, whole.completed, whole.failed, (took(0.5), took(0.95), took(0.99)))
            )
    return sorted(found, key=lambda each: (-each.failed, -each.begun, each.job_type))


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
