"""Freeing the dependents that a completion has left for later."""

from __future__ import annotations

from queuert.engine.engine import Engine
from queuert.engine.transaction import Hooks
from queuert.ports.program import Program
from queuert.records.model import Freed


def continue_unblocking(engine: Engine, hooks: Hooks, limit: int) -> Program[Freed]:
    """Free the next dependents of a completed chain, and collect their notifications."""
    freed = yield from engine.state.continue_unblocking(limit)
    notifications = engine.notifications(hooks)
    for unblocked in freed.unblocked:
        notifications.add("job_scheduled", unblocked.type_name)
    if engine.observers is not None and freed.unblocked:
        yield from engine.observations(hooks).unblocked(freed)
    return freed
