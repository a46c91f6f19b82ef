"""The target ratios, computed within one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.results import Run
from bench.roster import BARE, LIMITED, LIMITED_MANY_SLOTS, MANY_SLOTS, OURS, PLAIN, PLAIN_SQLITE, PRUNED
from bench.rows import BY_SUBMIT

Value = Callable[[Run], float | None]

ONE_CLIENT = f"{PLAIN}, 100 at a time, 1 client"
FOUR_CLIENTS = f"{PLAIN}, 100 at a time, 4 clients"
SIXTEEN_CLIENTS = f"{PLAIN}, 1 at a time, 16 clients"


@dataclass(frozen=True)
class Target:
    row: str
    text: str
    ours: Value
    theirs: Value
    wanted: float
    at_most: bool = False
    """True if the ratio must not be larger. Otherwise it must not be smaller."""


@dataclass(frozen=True)
class Verdict:
    target: Target
    ratio: float | None
    """None if a figure that it needs was not measured."""

    @property
    def reached(self) -> bool | None:
        if self.ratio is None:
            return None
        return self.ratio <= self.target.wanted if self.target.at_most else self.ratio >= self.target.wanted

    def __str__(self) -> str:
        sign = "≤" if self.target.at_most else "≥"
        wanted = f"{sign} {self.target.wanted:g} × {self.target.text}"
        if self.ratio is None:
            return f"{wanted}: not measured"
        return f"{wanted}: {self.ratio:.2f}, {'reached' if self.reached else 'not reached'}"


def of(key: str, name: str, figure: str | None = None) -> Value:
    return lambda run: run.median(key, name, figure)


def best_peer(key: str, figure: str) -> Value:
    """The smallest figure of the other libraries."""

    def find(run: Run) -> float | None:
        row = run.row(key)
        found = [result.median(figure) for result in row.results if not result.name.startswith(OURS)] if row else []
        return min((value for value in found if value is not None), default=None)

    return find


def our_best(key: str) -> Value:
    """The best of the settings that were tried."""

    def find(run: Run) -> float | None:
        row = run.row(key)
        found = [result.median(row.figures[0]) for result in row.results] if row else []
        return max((value for value in found if value is not None), default=None)

    return find


def _noop(run: Run) -> float | None:
    return run.median("drain-1", OURS)


TARGETS = [
    Target("drain-1", "pgqueuer", _noop, of("drain-1", "pgqueuer"), 2),
    Target("drain-1", "graphile-worker", _noop, of("drain-1", "graphile-worker"), 1.5),
    Target("drain-1", ONE_CLIENT, _noop, of("drain-1", ONE_CLIENT), 0.95),
    Target("drain-1", FOUR_CLIENTS, _noop, of("drain-1", FOUR_CLIENTS), 0.7),
    Target("drain-1", "our asyncpg", of("drain-1", f"{OURS}, psycopg"), _noop, 0.6),
    Target("drain-2", "our one process", of("drain-2", OURS), _noop, 1.4),
    Target("complete", SIXTEEN_CLIENTS, our_best("complete"), of("drain-1", SIXTEEN_CLIENTS), 0.65),
    Target("staged", SIXTEEN_CLIENTS, our_best("staged"), of("drain-1", SIXTEEN_CLIENTS), 0.42),
    Target("chain", "our no-op drain", of("chain", OURS), _noop, 0.3),
    # Linear: the rate per blocker stays the same. A quadratic cost would make it a tenth.
    Target(
        "fan-in", "100 blockers", of("fan-in", f"{OURS}, 1000 blockers"), of("fan-in", f"{OURS}, 100 blockers"), 0.8
    ),
    Target("limits", "without a limit", of("limits", LIMITED), of("limits", OURS), 0.5),
    Target(
        "limits",
        "without a limit, concurrency 1,000",
        of("limits", LIMITED_MANY_SLOTS),
        of("limits", MANY_SLOTS),
        0.5,
    ),
    Target("pruning", "without pruning", of("pruning", PRUNED), of("pruning", OURS), 0.85),
    Target("start-one", "pgqueuer", of("start-one", OURS), of("start-one", "pgqueuer"), 1),
    Target("start-one", "the three bare messages", of("start-one", OURS), of("start-one", BARE), 0.9),
    Target(
        "start-one",
        "the three bare messages, psycopg",
        of("start-one", f"{OURS}, psycopg"),
        of("start-one", f"{BARE}, psycopg"),
        0.9,
    ),
    Target("submit-100", "the bare gathered statement", of("submit-100", OURS), of("submit-100", BARE), 0.8),
    Target("submit", "pgqueuer", of("submit", OURS), of("submit", "pgqueuer"), 1.1),
    Target("submit-16", "pgqueuer", of("submit-16", OURS), of("submit-16", "pgqueuer"), 5),
    Target("submit-16", "procrastinate", of("submit-16", OURS), of("submit-16", "procrastinate"), 5),
    Target("start-bulk", "graphile-worker", of("start-bulk", OURS), of("start-bulk", "graphile-worker"), 1.2),
    Target("start-bulk", "pgqueuer", of("start-bulk", OURS), of("start-bulk", "pgqueuer"), 1),
    Target("pick-up", "the best peer, p50", of("pick-up", OURS, "p50"), best_peer("pick-up", "p50"), 1, at_most=True),
    *(
        Target(
            "pick-up",
            f"the best peer, {figure}, by submit",
            of("pick-up", BY_SUBMIT, figure),
            best_peer("pick-up", figure),
            1,
            at_most=True,
        )
        for figure in ("p50", "p99")
    ),
    Target("pick-up", "the best peer, p99", of("pick-up", OURS, "p99"), best_peer("pick-up", "p99"), 1, at_most=True),
    Target("sqlite", "plain batches", of("sqlite", OURS), of("sqlite", f"{PLAIN_SQLITE}, 100 at a time"), 0.4),
    *(
        Target(
            "memory", f"pgqueuer, {when}", of("memory", OURS, when), of("memory", "pgqueuer", when), 1.3, at_most=True
        )
        for when in ("idle", "draining")
    ),
    Target("snapshot", "the first 30 s", of("snapshot", OURS, "last 30 s"), of("snapshot", OURS, "first 30 s"), 0.85),
]


def verdicts(run: Run) -> list[Verdict]:
    """The targets of the rows that were run."""
    wanted = [target for target in TARGETS if run.row(target.row) is not None]
    return [Verdict(target, _ratio(run, target)) for target in [*wanted, *_beside_other_jobs(run)]]


def _beside_other_jobs(run: Run) -> list[Target]:
    """The first entry of that row is the drain of an empty table.

    Each other entry is compared with it.
    """
    row = run.row("growth")
    if row is None:
        return []
    empty, *scenes = (result.name for result in row.results)
    return [
        Target("growth", f"{empty}, with {scene}", of("growth", scene), of("growth", empty), 0.85) for scene in scenes
    ]


def _ratio(run: Run, target: Target) -> float | None:
    ours, theirs = target.ours(run), target.theirs(run)
    return ours / theirs if ours is not None and theirs else None
