"""The workers that the database knows, as users see them."""

from __future__ import annotations

from queuert.base.own_types import is_own
from queuert.engine.engine import Engine
from queuert.ports.program import Program
from queuert.records.workers import UNTOLD, KnownBy, WorkerInfo, WorkerRow


def list_workers(engine: Engine) -> Program[list[WorkerInfo]]:
    rows = yield from engine.state.list_workers()
    return [worker_info(row) for row in rows]


def worker_info(row: WorkerRow) -> WorkerInfo:
    about = row.about or UNTOLD
    return WorkerInfo(
        id=row.id,
        state=row.state,
        known_by=_known_by(row),
        host=about.host,
        pid=about.pid,
        version=about.version,
        release=about.release,
        queues=tuple(queue for queue in about.queues if not all(is_own(each.name) for each in queue.types)),
        slots=about.slots,
        busy=row.held if about.slots is None else min(row.held, about.slots),
        held=row.held,
        cluster_cap=about.cluster_cap,
        started_at=row.registered_at,
        seen_at=row.seen_at,
    )


def _known_by(row: WorkerRow) -> KnownBy:
    if row.lock_key is not None:
        return "lock"
    return "registration" if row.process is None else "process"
