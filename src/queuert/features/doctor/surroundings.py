"""What is wrong with the surroundings of the tables: the server or the file, the clock, the
channel, and the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from queuert.features.doctor.diagnosis import Finding
from queuert.records.circumstances import RunningGroup
from queuert.records.examination import Surroundings, TableState
from queuert.records.workers import WorkerRow

OLD_SNAPSHOT = 300.0
"""Seconds."""
MANY_DEAD = 100_000
"""Dead rows that are noticed in a claim or another query."""
LATE_VACUUM = 600.0
"""Seconds without a vacuum, of a table that needs one."""
CLOCK_DIFFERENCE = 2.0
"""Seconds."""


def around(facts: Surroundings) -> Iterator[Finding]:
    """The database itself."""
    if not facts.up_to_date:
        old = f"the tables are of version {facts.schema_version}, this library needs version {facts.known_version}."
        if facts.schema_version == 0:
            old = "there are no tables."
        yield Finding(
            "schema-old",
            "error",
            old if facts.schema_version < facts.known_version else "functions are missing.",
            "run client.migrate() (queuert migrate); the jobs were not examined",
        )
    if facts.read_only is not None:
        yield Finding(
            "read-only",
            "error",
            f"the database cannot be written: {facts.read_only}. No job can start or run.",
            "connect to the primary server, or make it writable",
        )
    for name in facts.settings_off:
        yield Finding(
            "setting-off",
            "warning",
            f"the server's setting {name} is off. Dead rows stay, and claims become slower and slower.",
            f"set {name} = on",
        )
    snapshot = facts.snapshot
    if snapshot is not None and snapshot.seconds > OLD_SNAPSHOT:
        yield Finding(
            "old-snapshot",
            "warning",
            f"a transaction of {snapshot.holder} is open for {snapshot.seconds:.0f} s ({snapshot.state}). While it "
            "is, dead rows stay, and claims become slower.",
            "end it, and set idle_in_transaction_session_timeout",
            snapshot.holder,
        )
    for table in facts.tables:
        yield from _of_table(table)
    if facts.journal_mode not in (None, "wal", "memory"):
        yield Finding(
            "journal-mode",
            "warning",
            f"the journal mode of the database is {facts.journal_mode!r}. Readers and writers block each other.",
            "run PRAGMA journal_mode = wal once, when nothing else uses the file",
        )
    for text in facts.corrupt:
        yield Finding(
            "corrupt",
            "error",
            f"the database file is damaged: {text}.",
            "stop all programs, copy the file, and try REINDEX, or restore a backup",
        )


def _of_table(table: TableState) -> Iterator[Finding]:
    if table.unlogged:
        yield Finding(
            "unlogged",
            "warning",
            f"table {table.name} is unlogged. All of it is lost if the server crashes.",
            f"ALTER TABLE {table.name} SET LOGGED",
            table.name,
        )
    if not table.autovacuum:
        yield Finding(
            "autovacuum-off",
            "warning",
            f"autovacuum is off for table {table.name}. Dead rows stay, and queries become slower and slower.",
            f"ALTER TABLE {table.name} RESET (autovacuum_enabled)",
            table.name,
        )
    if table.dead > max(MANY_DEAD, 10 * table.normal) and table.since_vacuum > LATE_VACUUM:
        yield Finding(
            "dead-rows",
            "warning",
            f"table {table.name} has {table.dead} dead rows beside {table.live}, and the last vacuum was "
            f"{table.since_vacuum:.0f} s ago. Queries read over them.",
            f"end old transactions, then VACUUM {table.name}, or client.vacuum() for all tables",
            table.name,
        )


def of_clock(facts: Surroundings, before: float, after: float) -> Iterator[Finding]:
    """The server's clock was read between these two times of this host."""
    if facts.server_clock is None:
        return
    clock = facts.server_clock.timestamp()
    difference = clock - after if clock > after else min(0.0, clock - before)
    if abs(difference) > CLOCK_DIFFERENCE:
        yield Finding(
            "clock",
            "warning",
            f"the clocks differ: the server's is {abs(difference):.1f} s {'ahead of' if difference > 0 else 'behind'} "
            "that of this host. Times that you compute here mean something else there.",
            "synchronize both clocks (NTP)",
        )


def of_channel(heard: bool | None) -> Iterator[Finding]:
    if heard is False:
        yield Finding(
            "not-heard",
            "warning",
            "a message to ourselves did not arrive by the notification channel. Workers and waiters notice changes "
            "only by polling.",
            "if LISTEN goes through a pooler (PgBouncer in transaction mode), give listen_url=; otherwise check the "
            "broker",
        )


def of_workers(facts: Surroundings, workers: Sequence[WorkerRow]) -> Iterator[Finding]:
    alive = [row for row in workers if row.state == "alive"]
    versions = sorted({"an older version" if row.about is None else row.about.version or "?" for row in alive})
    if len(versions) > 1:
        yield Finding(
            "versions",
            "warning",
            f"the workers that run have different versions of queuert: {', '.join(versions)}.",
            "finish the deployment; `queuert workers` shows which worker has which",
        )
    told = [(row, row.about) for row in workers if row.about is not None]
    caps: dict[str, list[int | None]] = {}
    for _, about in told:
        for queue in about.queues:
            caps.setdefault(queue.name, []).append(queue.max_concurrency)
    for name, numbers in sorted(caps.items()):
        held = [group for group in facts.running if group.queue == name]
        yield from _over(f"queue {name}", numbers, held, workers)
    everybody = [None if row.about is None else row.about.cluster_cap for row in workers]
    yield from _over("the whole database", everybody, facts.running, workers)


def _over(
    what: str, caps: Sequence[int | None], running: Iterable[RunningGroup], workers: Sequence[WorkerRow]
) -> Iterator[Finding]:
    """More running jobs than any worker's cap allows.

    That is normal if a cap was lowered. So it counts only if each of the jobs was claimed after all
    workers had begun, and by one of them.
    """
    groups = list(running)
    known = [cap for cap in caps if cap is not None]
    if not groups or not known or len(known) < len(caps):
        return
    number, cap = sum(group.number for group in groups), max(known)
    begun = max(row.registered_at for row in workers)
    ids = {row.id for row in workers}
    if number > cap and all(group.worker in ids and group.oldest_at > begun for group in groups):
        yield Finding(
            "cap-exceeded",
            "warning",
            f"{number} jobs of {what} are running, but at most {cap} may.",
            "they end by themselves; please report it, with `queuert workers --json`",
            what,
        )
