"""What a bulk operation would do: bounded counts, a sample, and notes on what would not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from queuert.base.own_types import is_own
from queuert.engine.engine import Engine
from queuert.engine.operations import cascades
from queuert.errors import InvalidArgument
from queuert.features.bulk import pages as bulk
from queuert.features.bulk.jobs import BulkAction
from queuert.features.bulk.plan import BulkPlan, PlanNote
from queuert.jobs.filter import Filter
from queuert.ports.program import Program
from queuert.records.listings import ChainFilter, PageRequest
from queuert.records.model import ChainRow
from queuert.records.pauses import Pause

COUNTED = 1000
"""Chains that are counted."""
READ = 10
"""Pages of the listing that are read, at most."""
SHOWN = 10
"""Chains of the sample."""
LOOKED_AT = 50
"""Chains whose dependents, or blockers, are read."""
NEEDED = frozenset(("blocked", "pending", "running", "failed"))
"""A job with one of these statuses needs the chains that it waited for."""


def plan(engine: Engine, action: BulkAction, given: Filter | str, *, cascade: bool) -> Program[BulkPlan]:
    parsed, where = bulk.filter_for(engine, action, given)
    if cascade and action not in ("cancel", "delete"):
        raise InvalidArgument(f"cascade is for cancel and delete, not for {action}")
    found, more = yield from _found(engine, where, descending=action == "delete")
    near = [chain.first.id for chain in found[:LOOKED_AT]]
    others: list[ChainRow] = []
    if cascade:
        reach = cascades.waiting_above if action == "cancel" else cascades.blockers_below
        others = yield from reach(engine, near)
    types = Counter(chain.current.type_name for chain in found)
    return BulkPlan(
        action=action,
        filter=str(parsed),
        number=len(found),
        more=more,
        types=dict(types.most_common()),
        sample=tuple(engine.jobs.chain_from_row(chain) for chain in found[:SHOWN]),
        cascaded=tuple(engine.jobs.chain_from_row(chain) for chain in others),
        notes=tuple(
            (yield from _notes(engine, action, found, [*near, *(chain.first.id for chain in others)], cascade))
        ),
    )


def _found(engine: Engine, where: ChainFilter, *, descending: bool) -> Program[tuple[list[ChainRow], bool]]:
    """The chains that match, and whether there may be more."""
    found: list[ChainRow] = []
    cursor: str | None = None
    for _ in range(READ):
        request = PageRequest(COUNTED + 1 - len(found), cursor, "desc" if descending else "asc")
        listed = yield from engine.state.list_chains(where, request)
        found += [chain for chain in listed.rows if not is_own(chain.first.type_name)]
        cursor = listed.stopped_at
        if cursor is None and len(listed.rows) == request.limit:
            last = listed.rows[-1]
            cursor = last.current.id if where.by_current else last.first.id
        if cursor is None or len(found) > COUNTED:
            break
    return found[:COUNTED], cursor is not None or len(found) > COUNTED


def _notes(
    engine: Engine, action: BulkAction, found: Sequence[ChainRow], near: Sequence[str], cascade: bool
) -> Program[list[PlanNote]]:
    if action in ("retry", "trigger"):
        return (yield from _not_running(engine, found))
    if action == "delete":
        return (yield from _still_needed(engine, found, near))
    if action == "cancel" and not cascade:
        return (yield from _left_waiting(engine, found, near))
    return []


def _not_running(engine: Engine, found: Sequence[ChainRow]) -> Program[list[PlanNote]]:
    """Types that no worker would take now."""
    types = sorted({chain.current.type_name for chain in found})
    if not types:
        return []
    notes: list[PlanNote] = []
    pauses = yield from engine.state.list_pauses()
    for name in types:
        notes += [PlanNote(f"{name} is paused ({_of(each)}): its jobs wait") for each in _pausing(engine, pauses, name)]
    handled = yield from engine.state.handled_types(types)
    notes += [
        PlanNote(f"no worker that is alive has a handler for {name}: its jobs wait")
        for name in types
        if name not in handled
    ]
    return notes


def _pausing(engine: Engine, pauses: Iterable[Pause], name: str) -> list[Pause]:
    known = engine.jobs.by_name(name)
    return [each for each in pauses if each.target.covers(name, None if known is None else known.queue)]


def _of(pause: Pause) -> str:
    words = [str(pause.target)]
    if pause.by is not None:
        words.append(f"by {pause.by}")
    if pause.until is not None:
        words.append(f"until {pause.until.isoformat(timespec='seconds')}")
    if pause.reason is not None:
        words.append(pause.reason)
    return ", ".join(words)


def _still_needed(engine: Engine, found: Sequence[ChainRow], near: Sequence[str]) -> Program[list[PlanNote]]:
    going = {chain.first.id for chain in found}.union(near)
    needed = yield from _with_dependents(engine, near, going, NEEDED)
    if not needed:
        return []
    return [PlanNote(f"{_some(needed, near, found)} still needed by jobs that may run: they stay", tuple(needed))]


def _left_waiting(engine: Engine, found: Sequence[ChainRow], near: Sequence[str]) -> Program[list[PlanNote]]:
    going = {chain.first.id for chain in found}
    awaited = yield from _with_dependents(engine, near, going, frozenset(("blocked",)))
    if not awaited:
        return []
    text = "awaited by other chains, which would stay blocked for ever: cascade cancels those, too"
    return [PlanNote(f"{_some(awaited, near, found)} {text}", tuple(awaited))]


def _with_dependents(
    engine: Engine, ids: Sequence[str], going: set[str], statuses: frozenset[str]
) -> Program[list[str]]:
    """Those of the chains that jobs of other chains with these statuses have as a blocker."""
    held: list[str] = []
    for chain_id in islice(ids, 2 * LOOKED_AT):
        jobs = yield from engine.state.list_blocked_jobs(chain_id, PageRequest(LOOKED_AT))
        if any(job.status in statuses and job.chain_id not in going for job in jobs):
            held.append(chain_id)
    return held


def _some(chosen: Sequence[str], near: Sequence[str], found: Sequence[ChainRow]) -> str:
    looked_at = f" of the {len(near):,} that were looked at" if len(found) > LOOKED_AT else ""
    return f"{len(chosen):,} chain{'s' * (len(chosen) != 1)}{looked_at} {'is' if len(chosen) == 1 else 'are'}"
