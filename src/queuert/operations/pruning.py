"""Deleting what has been kept long enough."""

from __future__ import annotations

from collections import Counter

from queuert.operations.engine import Engine
from queuert.ports.program import Pause, Program
from queuert.retention import Pruned, PruneRequest

AT_ONCE = 500
"""Chains that one transaction looks at."""
TRIES, TRY_AGAIN = 200, 0.05
"""How often to ask, and how many seconds later, while another process is at it."""


def prune(engine: Engine, *, full: bool) -> Program[Pruned]:
    """Delete all that is due now, in small transactions, and merge what was counted. Not inside of
    one.

    With `full`, look at all chains that are kept, in one lap.
    """
    chains, jobs, examined, tries = Counter[str](), 0, 0, 0
    restart = full
    while True:
        request = PruneRequest(AT_ONCE, exact=True, lap_every=0.0 if full else None, restart=restart)
        step = yield from engine.state.prune(request)
        if step.busy:
            tries += 1
            if tries == TRIES:
                break
            yield Pause(TRY_AGAIN)
            continue
        restart, tries = False, 0
        chains.update(step.chains)
        jobs += step.jobs
        examined += step.examined
        full = full and step.lap
        if not (step.more or full):
            break
        yield Pause(0)  # others may use the event loop, and the database
    while engine.state.statistics and (yield from engine.state.roll_up(AT_ONCE)):
        yield Pause(0)
    return Pruned(dict(sorted(chains.items())), jobs, examined, busy=tries > 0)
