"""How a worker is: for readiness probes and for the `queuert worker` command."""

from __future__ import annotations

from typing import Literal

import msgspec

WorkerState = Literal["stopped", "starting", "running", "stopping"]


class WorkerHealth(msgspec.Struct, frozen=True):
    """How a worker is, as far as it knows itself. No statement is sent for it."""

    worker_id: str
    """The id of the worker."""
    state: WorkerState
    """"starting" means that it has not reached the database yet."""
    ready: bool
    """The main loop turns, the database answers it, and the worker is not stopping."""
    error: str | None
    """What the last turn of the main loop failed with. None if it did not fail."""
    turn_age: float | None
    """Seconds since the main loop last reached the database. None if it never has."""
    running: int
    """How many handlers are running."""
    ended: int
    """How many handlers have ended since the worker started."""
    stops_within: float
    """The longest time that `stop()` takes, in seconds."""
