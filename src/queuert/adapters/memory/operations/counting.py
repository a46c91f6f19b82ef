"""What happened to jobs, minute by minute. Other operations count it as part of what they do."""

from __future__ import annotations

from datetime import datetime, timedelta

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.records.history import DAY, KEPT, ROLLED_UP, HistoryLook, Tally, What, floor


class Counting:
    statistics = True

    @read
    def history(self, tables: Tables, step: int, since: datetime | float, type_name: str | None = None) -> HistoryLook:
        first = floor(
            (since if isinstance(since, datetime) else tables.now - timedelta(seconds=since)).timestamp(), step
        )
        found: dict[tuple[str, int, What, int], tuple[int, float]] = {}
        for (_, at, name, what, bucket), (number, seconds) in tables.tallies.items():
            if at >= first and type_name in (None, name):
                key = name, floor(at, step), what, bucket
                known = found.get(key, (0, 0.0))
                found[key] = known[0] + number, known[1] + seconds
        return HistoryLook(tables.now, [Tally(*key, *sums) for key, sums in sorted(found.items()) if sums[0]])

    @write
    def roll_up(self, tables: Tables, limit: int) -> bool:  # noqa: ARG002
        """All at once."""
        now = tables.now.timestamp()
        for fine, coarse, kept in ROLLED_UP:
            oldest = floor(now - kept, coarse)
            for key, sums in list(tables.tallies.items()):
                if key[0] == fine and key[1] < oldest:
                    del tables.tallies[key]
                    tables.add_tally((coarse, floor(key[1], coarse), *key[2:]), *sums)
        for key in list(tables.tallies):
            if key[1] < floor(now - KEPT, DAY):
                del tables.tallies[key]
        return False
