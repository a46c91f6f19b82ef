"""Deleting what has been kept long enough."""

from __future__ import annotations

from collections import Counter

from queuert.engine.engine import Engine
from queuert.ports.program import Pause, Program, atomically
from queuert.records.audit import NewAudit, details_of
from queuert.records.retention import Pruned, PruneRequest

AT_ONCE = 500
"""Chains that one transaction looks at."""
TRIES, TRY_AGAIN = 200, 0.05
"""How often to ask, and how many seconds apart, while another process is pruning."""
TARGET = "ended chains"
"""In the audit."""


def prune(engine: Engine, who: tuple[str | None, str | None], *, full: bool) -> Program[Pruned]:
    """Delete all that is due now, in small transactions, and merge what was counted. Not inside of
    one.

    With `full`, look at all chains that are kept, in one lap. If it is known who does it, that is
    recorded together with the first step.
    """
    by, reason = who
    entry = NewAudit(action="prune", target=TARGET, by=by, reason=reason, details=details_of({"full": full}))
    recorded = by is None
    chains, jobs, examined, tries = Counter[str](), 0, 0, 0
    restart = full
    while True:
        request = PruneRequest(AT_ONCE, exact=True, lap_every=0.0 if full else None, restart=restart)
        program = engine.state.prune(request)
        step = yield from (program if recorded else atomically(_recorded(engine, program, entry)))
        if step.busy:
            tries += 1
            if tries == TRIES:
                break
            yield Pause(TRY_AGAIN)
            continue
        restart, tries, recorded = False, 0, True
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


def _recorded(engine: Engine, program: Program[Pruned], entry: NewAudit) -> Program[Pruned]:
    """A step, and a record of who asked for it. Nothing is recorded while another process is
    pruning.
    """
    step = yield from program
    if not step.busy:
        yield from engine.state.record_audit([entry])
    return step
