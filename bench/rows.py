"""The rows of the table: which work, which contenders, how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure import Entry, by_itself, drain, pick_up
from bench.roster import OURS, PLAIN


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    entries: Sequence[Entry]
    figures: Sequence[str] = ("rate",)
    unit: str = "jobs/s"


def rows(*, quick: bool = False, scale: float = 1.0) -> list[Row]:
    """`scale` makes everything smaller: for trying out."""

    def jobs(full: int, shortened: int | None = None) -> int:
        number = shortened if quick and shortened is not None else full
        return max(100, round(number * scale))

    def plain(work: int, clients: int, batch: int) -> Entry:
        options = {"clients": clients, "batch": batch, "stored": work}
        label = f"{PLAIN}, {batch} at a time, {clients} client{'s' * (clients > 1)}"
        return Entry(PLAIN, by_itself, work, options=options, label=label)

    many, some = jobs(100_000, 30_000), jobs(20_000, 5_000)
    return [
        Row(
            "drain-1",
            "drain no-op jobs, one process",
            [
                Entry(OURS, drain, many, settings="concurrency 100"),
                Entry("pgqueuer", drain, many),
                plain(many, 1, 100),
                plain(many, 4, 100),
                plain(some, 16, 1),
            ],
        ),
        Row(
            "drain-2",
            "drain no-op jobs, two processes",
            [
                Entry(OURS, drain, many, processes=2, settings="concurrency 100 each"),
                Entry("pgqueuer", drain, many, processes=2),
            ],
        ),
        Row(
            "start-one",
            "start one at a time, each in its own transaction",
            [Entry(name, by_itself, jobs(5_000, 2_000), work="start-one") for name in (OURS, "pgqueuer")],
        ),
        Row(
            "start-bulk",
            "start in bulk, 1,000 a transaction",
            [
                Entry(name, by_itself, max(1000, jobs(100_000, 30_000)), work="start-bulk")
                for name in (OURS, "pgqueuer", PLAIN)
            ],
        ),
        Row(
            "pick-up",
            "pick-up by an idle worker",
            [
                Entry(name, pick_up, jobs(500, 200), work="pick-up", options={"pause": 0.01})
                for name in (OURS, "pgqueuer")
            ],
            figures=("p50", "p99"),
            unit="ms",
        ),
    ]
