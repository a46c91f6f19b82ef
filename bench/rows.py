"""The rows of the table: which work, which contenders, how many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.growth import at_rest, beside, beside_pruning, churn, under_a_snapshot
from bench.measure import Entry, by_itself, drain, embedded, memory, pick_up
from bench.roster import (
    BARE,
    BEFORE,
    LIMITED,
    LIMITED_MANY_SLOTS,
    MANY_SLOTS,
    OTHER_PYTHONS,
    OURS,
    PLAIN,
    PLAIN_SQLITE,
    PRUNED,
    WITHOUT_A_SNAPSHOT,
)

QUICK = ("pgqueuer",)
PSYCOPG = {"driver": "psycopg"}
INSTEAD = "psycopg instead of asyncpg"
BY_SUBMIT = f"{OURS}, submit"
"""As the others start jobs: in a transaction of its own."""
PEERS = ("pgqueuer", "graphile-worker", "pg-boss", "procrastinate")


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    entries: Sequence[Entry]
    figures: Sequence[str] = ("rate",)
    unit: str = "jobs/s"
    once: bool = False
    """Measured once, not in rounds, because it takes minutes."""


def before_name(name: str) -> str:
    """The name of an entry that another checkout's library runs."""
    return f"{name}, {BEFORE}"


def against(row: Row) -> Row:
    """Only our own entries, each followed by the same for the other checkout
    (`roster.add_checkout`).
    """
    ours = [entry for entry in row.entries if entry.contender == OURS]
    entries = [
        twin for entry in ours for twin in (entry, replace(entry, contender=BEFORE, label=before_name(entry.name)))
    ]
    return replace(row, entries=entries)


class Plan:
    """How many jobs there are, and which contenders.

    `scale` makes everything smaller, for trials.
    """

    def __init__(self, *, quick: bool = False, scale: float = 1.0) -> None:
        self.quick = quick
        self.scale = scale
        self.peers = QUICK if quick else PEERS

    def jobs(self, full: int, quick: int) -> int:
        return max(50, round((quick if self.quick else full) * self.scale))

    def thousands(self, full: int, quick: int) -> int:
        return max(1, self.jobs(full, quick) // 1000) * 1000

    def rows(self) -> list[Row]:
        compared = [self.drain_1(), self.drain_2(), self.start_one(), *self.starts(), self.pick_up()]
        if self.quick:
            return compared
        ours = [*self.phases(), self.chain(), self.fan_in(), *self.limits(), self.sqlite(), self.memory_drain()]
        return [
            *compared,
            self.memory(),
            self.space(),
            *ours,
            self.growth(),
            self.pruning(),
            self.snapshot(),
            self.churn(),
        ]

    def drain_1(self) -> Row:
        entries = self._drains(1)
        if not self.quick:
            more = 300
            label = f"{OURS}, concurrency {more}"
            entries.append(Entry(OURS, drain, entries[0].jobs, options={"concurrency": more}, label=label))
            label = f"{OURS}, psycopg"
            entries.append(Entry(OURS, drain, entries[0].jobs, options=dict(PSYCOPG), label=label, settings=INSTEAD))
            entries += [Entry(name, drain, entries[0].jobs, settings="concurrency 100") for name in OTHER_PYTHONS]
        return Row("drain-1", "drain no-op jobs, one process", [*entries, *self._plain()])

    def drain_2(self) -> Row:
        return Row("drain-2", "drain no-op jobs, two processes", self._drains(2))

    def _drains(self, processes: int) -> list[Entry]:
        many = self.jobs(100_000, 20_000)
        slow = {"procrastinate": self.jobs(5_000, 1_000)}
        return [
            Entry(OURS, drain, many, processes=processes, settings="concurrency 100"),
            *(Entry(name, drain, slow.get(name, many), processes=processes) for name in self.peers),
        ]

    def _plain(self) -> list[Entry]:
        """The upper limit: jobs at once, and clients."""
        many, some = self.jobs(100_000, 20_000), self.jobs(20_000, 5_000)
        found: list[Entry] = []
        for jobs, batch, clients in ((many, 100, 1), (many, 100, 4), (some, 1, 16)):
            label = f"{PLAIN}, {batch} at a time, {clients} client{'s' * (clients > 1)}"
            options = {"clients": clients, "batch": batch, "stored": jobs}
            found.append(Entry(PLAIN, by_itself, jobs, options=options, label=label))
        return found

    def starts(self) -> list[Row]:
        return [self.start_here(), self.start_at_once(16), self.start_at_once(100), self.start_bulk()]

    def start_one(self) -> Row:
        jobs = self.jobs(5_000, 2_000)
        entries = [Entry(name, by_itself, jobs, work="start-one") for name in (OURS, *self.peers)]
        if not self.quick:
            entries.insert(1, Entry(OURS, by_itself, jobs, "start-one", options=PSYCOPG, label=f"{OURS}, psycopg"))
            entries.append(Entry(BARE, by_itself, jobs, "start-one", settings="asyncpg"))
            entries.append(Entry(BARE, by_itself, jobs, "start-one", options=PSYCOPG, label=f"{BARE}, psycopg"))
        return Row("start-one", "start one at a time, each in its own transaction", entries)

    def start_here(self) -> Row:
        """`submit`: in a transaction of its own, without others."""
        jobs = self.jobs(5_000, 2_000)
        entries = [
            Entry(OURS, by_itself, jobs, work="submit", options={"tasks": 1}),
            *(Entry(name, by_itself, jobs, work="start-one") for name in self.peers),
        ]
        return Row("submit", "start one at a time, by itself", entries)

    def start_at_once(self, tasks: int) -> Row:
        """Many tasks of one process. The contenders in Node are left out."""
        jobs = self.jobs(20_000, 5_000)
        peers = [name for name in ("pgqueuer", "procrastinate") if name in self.peers]
        names = (OURS, *peers) if self.quick else (OURS, *peers, BARE)
        entries = [Entry(name, by_itself, jobs, work="submit", options={"tasks": tasks}) for name in names]
        return Row(f"submit-{tasks}", f"start one at a time, by itself, {tasks} tasks at once", entries)

    def start_bulk(self) -> Row:
        jobs = self.thousands(100_000, 20_000)
        entries = [Entry(name, by_itself, jobs, work="start-bulk") for name in (OURS, *self.peers, PLAIN)]
        return Row("start-bulk", "start in bulk, 1,000 a transaction", entries)

    def pick_up(self) -> Row:
        """There is a pause between two jobs, so that the worker becomes idle."""
        jobs = self.jobs(300, 60)
        entries = [
            Entry(name, pick_up, jobs, work="pick-up", options={"pause": 0.03})
            for name in (OURS, *self.peers)
            if name != "pg-boss"
        ]
        entries.insert(
            1, Entry(OURS, pick_up, jobs, "pick-up", options={"pause": 0.03, "by": "submit"}, label=BY_SUBMIT)
        )
        if "pg-boss" in self.peers:
            few, pause = max(5, jobs // 10), {"pause": 0.7}
            entries.append(Entry("pg-boss", pick_up, few, "pick-up", options=pause, settings="polls every 0.5 s"))
        return Row("pick-up", "pick-up by an idle worker", entries, ("p50", "p99"), "ms")

    def memory(self) -> Row:
        jobs = {"procrastinate": self.jobs(5_000, 5_000)}
        entries = [Entry(name, memory, jobs.get(name, self.jobs(100_000, 100_000))) for name in (OURS, *self.peers)]
        return Row("memory", "memory of a worker", entries, ("idle", "draining"), "MB")

    def space(self) -> Row:
        jobs = {"procrastinate": self.jobs(5_000, 5_000)}
        entries = [Entry(name, at_rest, jobs.get(name, self.jobs(50_000, 50_000))) for name in (OURS, *self.peers)]
        return Row("space", "space of a completed job", entries, ("tables", "indexes", "TOAST"), "bytes")

    def phases(self) -> list[Row]:
        """Several settings: the best of them counts."""
        found: list[Row] = []
        for work, title in (
            ("complete", "handlers that write in complete(): one UPDATE of a user table"),
            ("staged", "staged handlers: prepare and complete"),
        ):
            entries: list[Entry] = []
            for concurrency, connections in ((10, 10), (16, 20), (32, 40)):
                label = f"{OURS}, concurrency {concurrency}"
                options = {"concurrency": concurrency, "connect": {"pool_size": connections}}
                said = f"{connections} connections"
                entries.append(
                    Entry(OURS, drain, self.jobs(5_000, 1_000), work, options=options, label=label, settings=said)
                )
            options = {"concurrency": 16, "connect": {"pool_size": 20}, **PSYCOPG}
            label, said = f"{OURS}, psycopg, concurrency 16", f"20 connections, {INSTEAD}"
            entries.append(
                Entry(OURS, drain, self.jobs(5_000, 1_000), work, options=options, label=label, settings=said)
            )
            found.append(Row(work, title, entries))
        return found

    def chain(self) -> Row:
        entry = Entry(OURS, drain, self.jobs(30_000, 5_000), "chain", settings="concurrency 100")
        return Row("chain", "chains of three steps", [entry], unit="chains/s")

    def fan_in(self) -> Row:
        jobs = self.thousands(20_000, 5_000)
        entries = [
            Entry(OURS, drain, jobs, "fan-in", options={"blockers": number}, label=f"{OURS}, {number} blockers")
            for number in (100, 1000)
        ]
        return Row("fan-in", "fan-in: one job over many blockers", entries, unit="blockers/s")

    def limits(self) -> list[Row]:
        """A limit by key that is never reached, over 1,000 keys. Jobs with a limit are never claimed ahead of
        slots, so the number of slots is the size of a claim.
        """
        many, some = self.jobs(100_000, 20_000), self.jobs(20_000, 5_000)
        slots = {"concurrency": 1000}
        return [
            Row(
                key,
                f"drain {where}, with a limit by key",
                [
                    Entry(OURS, how, jobs),
                    Entry(OURS, how, jobs, "limited", label=LIMITED),
                    Entry(OURS, how, jobs, options=slots, label=MANY_SLOTS),
                    Entry(OURS, how, jobs, "limited", options=slots, label=LIMITED_MANY_SLOTS),
                ],
            )
            for key, where, how, jobs in (
                ("limits", "no-op jobs, one process", drain, many),
                ("limits-sqlite", "on SQLite", embedded, some),
            )
        ]

    def sqlite(self) -> Row:
        jobs = self.jobs(20_000, 5_000)
        plain = [
            Entry(PLAIN_SQLITE, embedded, jobs, options={"batch": batch}, label=f"{PLAIN_SQLITE}, {batch} at a time")
            for batch in (100, 1)
        ]
        return Row("sqlite", "drain on SQLite, one process", [Entry(OURS, embedded, jobs), *plain])

    def memory_drain(self) -> Row:
        entry = Entry(OURS, embedded, self.jobs(50_000, 5_000), options={"url": "memory://"})
        return Row("in-memory", "drain of the memory adapter", [entry])

    def growth(self) -> Row:
        million, jobs = self.jobs(1_000_000, 100_000), self.jobs(20_000, 5_000)
        scenes = {
            "pending": (million, f"{million:,} pending of the same type"),
            "completed": (million, f"{million:,} completed"),
            "scheduled": (million, f"{million:,} scheduled for next week, more urgent"),
            "blocked": (million // 5, f"{million // 5:,} blocked"),
            "other types": (million, f"{million:,} pending of 50 other types"),
        }
        entries = [Entry(OURS, beside, jobs, label="an empty table")]
        for scene, (number, label) in scenes.items():
            entries.append(Entry(OURS, beside, jobs, options={"scene": {"scene": scene, "jobs": number}}, label=label))
        return Row("growth", "drain beside other jobs", entries)

    def pruning(self) -> Row:
        jobs = self.jobs(100_000, 20_000)
        scene = {"scene": {"scene": "completed", "jobs": 2 * jobs}}
        entries = [
            Entry(OURS, beside_pruning, jobs, options=scene),
            Entry(OURS, beside_pruning, jobs, options={**scene, "keep_seconds": 0.001}, label=PRUNED),
        ]
        return Row("pruning", "drain beside pruning", entries)

    def snapshot(self) -> Row:
        seconds = {"seconds": 180 * self.scale}
        entries = [
            Entry(OURS, under_a_snapshot, options=seconds),
            Entry(OURS, under_a_snapshot, options={**seconds, "snapshot": False}, label=WITHOUT_A_SNAPSHOT),
        ]
        title = "three minutes of continuous load under an old snapshot"
        return Row("snapshot", title, entries, ("first 30 s", "last 30 s"), once=True)

    def churn(self) -> Row:
        entry = Entry(OURS, churn, work="churn", options={"seconds": 600 * self.scale})
        title = "ten minutes of insert, drain, delete: size of all tables and indexes"
        return Row("churn", title, [entry], ("early", "most", "end"), "MB", once=True)
