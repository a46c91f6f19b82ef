"""What is known about a job that is not running."""

from __future__ import annotations

import msgspec

from queuert.adapters.sql.circumstances import blocking_rows, due_jobs, handled, pause_rows, running_groups
from queuert.adapters.sqlite.operations.rows import COLUMNS, Row, chain_of, moment
from queuert.adapters.sqlite.operations.workers import Workers
from queuert.ports.program import Program
from queuert.records.circumstances import AHEAD, BLOCKERS_READ, BLOCKERS_SHOWN, Circumstances, concerned


class Explaining(Workers):
    def circumstances(self, chain_id: str) -> Program[Circumstances | None]:
        database, now = (yield from self._path()), self.now()
        rows: list[Row] = yield self.statement(
            "explain.circumstances",
            chain=chain_id,
            now=now,
            edges=BLOCKERS_READ,
            shown=BLOCKERS_SHOWN,
            ahead=AHEAD,
        )
        if not rows:
            return None
        chain = chain_of(rows[0][: 2 * len(COLUMNS)])
        blockers, workers, running, due, last_handled, pauses = rows[0][2 * len(COLUMNS) :]
        known: list[Row] = msgspec.json.decode(workers)
        everybody = (self._worker_of(row, database, moment(now), 0) for row in known)
        found, others_alive = concerned(sorted(everybody, key=lambda worker: worker.id), chain.current)
        return Circumstances(
            now=moment(now),
            chain=chain,
            blockers=blocking_rows(blockers),
            workers=found,
            others_alive=others_alive,
            running=running_groups(running),
            due=due_jobs(due),
            last_handled=handled(chain.current.type_name, last_handled),
            pauses=pause_rows(pauses),
        )
