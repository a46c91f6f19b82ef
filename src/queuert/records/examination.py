"""What `doctor` compares, and what the storage knows about its surroundings: records of the state
port.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from queuert.records.circumstances import RunningGroup

DamageKind = Literal[
    "stray", "misfiled", "not_queued", "unleased", "miscounted", "forgotten", "unread", "mislabelled",
    "blocker_missing", "broken_chain", "stray_edge", "stray_key", "wrong_key",
    "miscounted_lane",
]  # fmt: skip
"""What is wrong:

- `stray`: listed among the jobs to run, or the running ones, where it does not belong.
- `misfiled`: listed there with values that are not those of the job.
- `not_queued`: pending, but listed nowhere, so that no worker finds it.
- `unleased`: running, with a claim that has no end or no owner.
- `miscounted`: a blocked job has a wrong count of the chains that it waits for.
- `forgotten`: a chain's current job does not count all the jobs that wait for the chain.
- `unread`: a job does not count all its blockers.
- `mislabelled`: an index of statuses has the job with a wrong status.
- `blocker_missing`: a job needs a chain that does not exist.
- `broken_chain`: the jobs of a chain do not follow each other.
- `stray_edge`, `stray_key`: of a job or a chain that does not exist.
- `wrong_key`: a key leads to a chain with another key.
- `miscounted_lane`: a key of a limit has a wrong count of its running jobs.
  """

RepairOutcome = Literal["repaired", "gone", "busy"]
"""Repaired; or nothing was wrong any more; or other transactions use these rows."""

_places = msgspec.json.Decoder(list[str | int])


class Damage(msgspec.Struct, frozen=True):
    """Something that does not agree."""

    kind: DamageKind
    id: str
    """The job; for keys the chain."""
    detail: str
    """The facts, in words."""
    place: tuple[str, ...] = ()
    """Where `repair_damage` finds it. Only the adapter knows what it means."""


class Look(msgspec.Struct, frozen=True):
    """What one call of `examine` has seen."""

    damages: list[Damage]
    rows: int
    """How many rows were compared."""
    after: tuple[str, ...] | None
    """Where the next call goes on. None: this was the end."""


class OldSnapshot(msgspec.Struct, frozen=True):
    """The transaction that began first, of those that keep dead rows from being removed."""

    holder: str
    state: str
    seconds: float


class TableState(msgspec.Struct, frozen=True):
    """What the server knows of a table."""

    name: str
    live: int
    dead: int
    normal: float
    """The server vacuums the table when it has this many dead rows."""
    since_vacuum: float
    """Seconds since the last vacuum."""
    unlogged: bool
    autovacuum: bool
    size: int = 0
    """Bytes, with its indexes."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is not in our tables, but matters for them. What does not exist here is left out."""

    server_clock: datetime | None = None
    """None: there is no server with a clock of its own."""
    schema_version: int = 0
    known_version: int = 0
    """The version of this library."""
    functions_installed: bool = True
    read_only: str | None = None
    """Why nothing can be written."""
    settings_off: tuple[str, ...] = ()
    """Settings of the server that are off, but should be on."""
    snapshot: OldSnapshot | None = None
    tables: tuple[TableState, ...] = ()
    journal_mode: str | None = None
    file_size: int | None = None
    """Bytes. None: the database is not a file."""
    file_free: int | None = None
    """How many of them are free."""
    corrupt: tuple[str, ...] = ()
    """What the database reports about its own file."""
    running: tuple[RunningGroup, ...] = ()

    @property
    def up_to_date(self) -> bool:
        return self.functions_installed and self.schema_version >= self.known_version


def place_of(text: str | None) -> tuple[str, ...]:
    """A place that was sent as a JSON array."""
    return () if text is None else tuple(map(str, _places.decode(text)))
