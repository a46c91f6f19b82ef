"""Comparing what must agree, and repairing it. A store in memory has no surroundings."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.records.circumstances import RunningGroup
from queuert.records.examination import Damage, Look, RepairOutcome, Surroundings
from queuert.records.model import JobRow

Found = Iterator[Damage | None]
"""For each row, in their order: what is wrong, or None."""


class Examining:
    parts: tuple[str, ...] = ("pending", "blocked", "keys")
    full_parts: tuple[str, ...] = ("edges", "jobs")

    @read
    def examine(
        self,
        tables: Tables,
        part: str,
        after: tuple[str, ...] | None,
        limit: int,
        seconds: float,  # noqa: ARG002
    ) -> Look:
        """`after` is how many rows were read: rows may be missed if others change meanwhile."""
        begin = 0 if after is None else int(after[0])
        found = list(_PARTS[part](tables))
        seen = found[begin : begin + limit]
        end = begin + len(seen)
        return Look([each for each in seen if each], len(seen), (str(end),) if end < len(found) else None)

    @write
    def repair_damage(self, tables: Tables, damage: Damage) -> RepairOutcome:
        # `examine` finds it again, if it is still there: nothing else can change anything now.
        if damage.kind not in _REPAIRS or damage not in _still(tables, damage):
            return "gone"
        _REPAIRS[damage.kind](tables, damage)
        return "repaired"

    @read
    def surroundings(self, tables: Tables, *, full: bool) -> Surroundings:  # noqa: ARG002
        groups: dict[tuple[str, str, str | None], list[JobRow]] = {}
        for row in tables.jobs.values():
            if row.status == "running" and row.leased_by is not None:
                held = tables.held.get(row.id)
                queue = None if held is None else held.queue
                groups.setdefault((row.type_name, row.leased_by, queue), []).append(row)
        running: list[RunningGroup] = []
        for (type_name, worker, queue), rows in groups.items():
            since, oldest = min((row.last_attempt_at or tables.now, row.id) for row in rows)
            running.append(RunningGroup(type_name, worker, len(rows), oldest, since, queue))
        return Surroundings(running=tuple(running))


def _still(tables: Tables, damage: Damage) -> list[Damage | None]:
    return [each for find in _PARTS.values() for each in find(tables) if each is not None and each.id == damage.id]


def _pending(tables: Tables) -> Found:
    """The entries of the index."""
    for number, (priority, scheduled_at, job_id) in enumerate(tables.pending):
        row = tables.jobs.get(job_id)
        place = (str(priority), scheduled_at.isoformat())
        if row is None or row.status != "pending":
            status = "not stored" if row is None else row.status
            yield Damage("stray", job_id, f"in the queue, although it is {status}", place)
        elif (row.priority, row.scheduled_at) != (priority, scheduled_at):
            yield Damage("misfiled", job_id, "in the queue with another priority or time than its own", place)
        elif number and tables.pending[number - 1] == tables.pending[number]:
            yield Damage("stray", job_id, "in the queue twice", place)
        else:
            yield None


def _blocked(tables: Tables) -> Found:
    for job_id, row in sorted(tables.jobs.items()):
        if row.status != "blocked":
            continue
        chains = [each.chain_id for each in tables.blockers.get(job_id, ())]
        missing = [each for each in chains if tables.chain(each) is None]
        waiting = _waiting(tables, job_id)
        if missing:
            yield Damage("blocker_missing", job_id, f"waits for chain {missing[0]}, which is not stored")
        elif waiting != row.blockers_left and tables.unblocking.keys().isdisjoint(chains):
            yield Damage("miscounted", job_id, f"waits for {waiting} chains, but counts {row.blockers_left}")
        else:
            yield None


def _waiting(tables: Tables, job_id: str) -> int:
    chains = (tables.chain(each.chain_id) for each in tables.blockers.get(job_id, ()))
    return sum(chain is None or chain.current.status != "completed" for chain in chains)


def _keys(tables: Tables) -> Found:
    for (chain_type, key), chain_id in sorted(tables.keys.items()):
        first = tables.jobs.get(chain_id)
        facts = f"key {key!r} of {chain_type}"
        if first is None or first.chain_index:
            yield Damage("stray_key", chain_id, facts, (chain_type, key))
        elif (first.chain_type, first.dedup_key) != (chain_type, key):
            yield Damage("wrong_key", chain_id, facts)
        else:
            yield None


def _edges(tables: Tables) -> Found:
    for job_id, edges in sorted(tables.blockers.items()):
        row = tables.jobs.get(job_id)
        missing = [each.chain_id for each in edges if each.chain_id not in tables.jobs]
        if row is None:
            yield Damage("stray_edge", job_id, f"waits for chain {edges[0].chain_id}")
        elif missing and row.status in ("pending", "running", "failed"):
            yield Damage("blocker_missing", job_id, f"needs the output of chain {missing[0]}, which is not stored")
        else:
            yield None


def _jobs(tables: Tables) -> Found:
    queued = {job_id for _, _, job_id in tables.pending}
    places = {(row.chain_id, row.chain_index): row for row in tables.jobs.values()}
    for job_id, row in sorted(tables.jobs.items()):
        first, before = tables.jobs.get(row.chain_id), places.get((row.chain_id, row.chain_index - 1))
        following = places.get((row.chain_id, row.chain_index + 1))
        if row.status == "pending" and job_id not in queued:
            yield Damage("not_queued", job_id, "pending, but in no queue")
        elif row.status == "running" and (row.token is None or row.leased_by is None or row.leased_until is None):
            yield Damage("unleased", job_id, "running, but its claim has no end or no owner")
        elif (
            first is None
            or first.type_name != row.chain_type
            or (row.chain_index == 0) != (job_id == row.chain_id)
            or (row.chain_index > 0 and (before is None or before.continued_to != job_id))
            or row.continued_to != (None if following is None else following.id)
        ):
            facts = f"number {row.chain_index} of chain {row.chain_id} does not fit to the jobs before and after it"
            yield Damage("broken_chain", job_id, facts)
        else:
            yield None


def _leave_queue(tables: Tables, damage: Damage) -> None:
    position = next(
        number
        for number, (priority, scheduled_at, job_id) in enumerate(tables.pending)
        if (job_id, str(priority), scheduled_at.isoformat()) == (damage.id, *damage.place)
    )
    del tables.pending[position]


def _enter_queue(tables: Tables, damage: Damage) -> None:
    row = tables.jobs[damage.id]
    if all(job_id != row.id for _, _, job_id in tables.pending):
        insort(tables.pending, (row.priority, row.scheduled_at, row.id))


def _file(tables: Tables, damage: Damage) -> None:
    _leave_queue(tables, damage)
    _enter_queue(tables, damage)


def _lease(tables: Tables, damage: Damage) -> None:
    row = tables.jobs[damage.id]
    tables.jobs[row.id] = replace(
        row,
        token=0 if row.token is None else row.token,
        leased_by=row.leased_by or "unknown",
        leased_until=row.leased_until or tables.after(60),
    )


def _count(tables: Tables, damage: Damage) -> None:
    row, left = tables.jobs[damage.id], _waiting(tables, damage.id)
    row = replace(row, blockers_left=left)
    tables.put(row if left else replace(row, status="pending", scheduled_at=max(tables.now, row.scheduled_at)))


def _drop_edge(tables: Tables, damage: Damage) -> None:
    del tables.blockers[damage.id]


def _drop_key(tables: Tables, damage: Damage) -> None:
    chain_type, key = damage.place
    del tables.keys[chain_type, key]


_PARTS: dict[str, Callable[[Tables], Found]] = {
    "pending": _pending,
    "blocked": _blocked,
    "keys": _keys,
    "edges": _edges,
    "jobs": _jobs,
}

_REPAIRS: dict[str, Callable[[Tables, Damage], None]] = {
    "stray": _leave_queue,
    "misfiled": _file,
    "not_queued": _enter_queue,
    "unleased": _lease,
    "miscounted": _count,
    "stray_edge": _drop_edge,
    "stray_key": _drop_key,
}
