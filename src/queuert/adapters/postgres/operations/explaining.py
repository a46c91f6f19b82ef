"""What is known about a job that is not running."""

from __future__ import annotations

import msgspec

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import WIDTH, Row, chain_of, utc
from queuert.adapters.sql.circumstances import blocking_rows, due_jobs, handled, moment, pause_rows, running_groups
from queuert.base.ids import is_uuid
from queuert.ports.program import Program
from queuert.records.circumstances import AHEAD, BLOCKERS_READ, BLOCKERS_SHOWN, Circumstances
from queuert.records.workers import OVERDUE, SEEN_EVERY, WorkerRow, WorkerState, decode_about

_Worker = tuple[str, int, int, int | None, str | None, str | None, WorkerState]
"""Id, when it registered and was seen, lock, process, what it stores about itself, and state."""
_workers = msgspec.json.Decoder(list[_Worker])


class Explaining(BaseOperations):
    def circumstances(self, chain_id: str) -> Program[Circumstances | None]:
        if not is_uuid(chain_id):
            return None
        rows: list[Row] = yield self.statement(
            "explain.circumstances",
            chain=chain_id,
            seen_every=SEEN_EVERY,
            overdue=OVERDUE,
            edges=BLOCKERS_READ,
            shown=BLOCKERS_SHOWN,
            ahead=AHEAD,
        )
        if not rows:
            return None
        chain = chain_of(rows[0])
        now, blockers, workers, others_alive, running, due, last_handled, pauses = rows[0][2 * WIDTH :]
        found = [_worker_of(each) for each in _workers.decode(workers or "[]")]
        return Circumstances(
            now=utc(now),
            chain=chain,
            blockers=blocking_rows(blockers),
            workers=sorted(found, key=lambda worker: worker.id),
            others_alive=others_alive,
            running=running_groups(running),
            due=due_jobs(due),
            last_handled=handled(chain.current.type_name, last_handled),
            pauses=pause_rows(pauses),
        )


def _worker_of(row: _Worker) -> WorkerRow:
    worker_id, registered_at, seen_at, lock_key, process, about, state = row
    return WorkerRow(
        worker_id,
        moment(registered_at),
        moment(seen_at),
        lock_key=lock_key,
        process=process,
        about=decode_about(about),
        state=state,
    )
