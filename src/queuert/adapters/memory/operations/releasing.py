"""Giving back jobs that a worker does not know of."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from queuert.adapters.memory.command import write
from queuert.adapters.memory.operations.claiming import untouched
from queuert.adapters.memory.tables import Tables
from queuert.records.model import JobRow


class Releasing:
    @write
    def release(self, tables: Tables, worker: str, held: Sequence[str]) -> list[JobRow]:
        known = set(held)
        found = [row for row in tables.jobs.values() if row.leased_by == worker and row.id not in known]
        released = [
            replace(untouched(tables, row), status="pending", leased_by=None, leased_until=None, token=None)
            for row in sorted(found, key=lambda row: row.id)
        ]
        for row in released:
            tables.put(row)
        return released
