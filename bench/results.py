"""The results of a run, as stored in bench/results/*.json."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


@dataclass
class Result:
    """One contender in one row: the figures of every round, or why there are none."""

    name: str
    settings: str
    jobs: int
    rounds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    error: str | None = None

    def median(self, figure: str) -> float | None:
        """The median of the rounds. None if a round failed."""
        values = [found[figure] for found in self.rounds if figure in found]
        return statistics.median(values) if values and self.error is None else None


@dataclass
class RowResult:
    key: str
    title: str
    unit: str
    figures: list[str]
    results: list[Result]

    def median(self, name: str, figure: str | None = None) -> float | None:
        for result in self.results:
            if result.name == name:
                return result.median(figure or self.figures[0])
        return None


@dataclass
class Run:
    date: str
    machine: dict[str, str]
    server: dict[str, str]
    rounds: int
    rows: list[RowResult]

    def row(self, key: str) -> RowResult | None:
        return next((row for row in self.rows if row.key == key), None)

    def median(self, key: str, name: str, figure: str | None = None) -> float | None:
        row = self.row(key)
        return None if row is None else row.median(name, figure)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def load(cls, path: Path) -> Run:
        return msgspec.json.decode(path.read_bytes(), type=cls)
