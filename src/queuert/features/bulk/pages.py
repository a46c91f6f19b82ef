"""Bulk operations: what to do with all chains that match a filter, a page at a time.

A page is a job of one of the library's own types (see `own`). What it changes is committed together
with its continuation, the next page. So each chain is changed once, whatever happens in between.

Only what matched at the start is changed: the chain was created before it, and, if it has ended,
ended before it, by the database's clock. The chains of a page are locked, and looked at again. No
chain is changed twice: it has only one job that was its current one at the start, and the pages go
through the current jobs in the order of their ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from queuert.base.own_types import is_own
from queuert.base.statuses import Status
from queuert.engine.engine import Engine
from queuert.engine.events.observations import Observations
from queuert.engine.operations import chains, filtering
from queuert.engine.operations.starting import announce_created
from queuert.engine.transaction import Hooks
from queuert.errors import ChainInUse, InvalidArgument
from queuert.features.bulk.jobs import BULK_CLASSES, CHANGEABLE, TOTAL, BulkAction, BulkInput, BulkJob, BulkResult
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter
from queuert.jobs.job import name_of
from queuert.ports.program import Program
from queuert.records.audit import KEPT, NewAudit, details_of
from queuert.records.listings import ChainFilter, Listed, PageRequest, row_matches
from queuert.records.model import ChainRow, JobRow, NewJob
from queuert.records.retention import Keep, policy_of

PAGE = 500
"""Chains of a page: about this many rows are locked at a time."""
ALL = 2**31 - 1
"""Rows that may be read where the ids are given."""
KEEP = Keep(completed=KEPT, failed=KEPT, cancelled=KEPT, expired=KEPT)
"""How long operations are kept after their end."""
SLOWEST = 0.001
"""Chains per second, at least."""
SCANS = 10
"""How many pages of a listing are read for one page, while nothing matches."""


class Done(NamedTuple):
    """What a page has changed: the chains that it named, and others."""

    changed: int
    cascaded: int = 0


def action_of(name: str) -> BulkAction:
    return next(action for action, cls in BULK_CLASSES.items() if name_of(cls) == name)


# Starting


def filter_for(engine: Engine, action: BulkAction, given: Filter | str) -> tuple[Filter, ChainFilter]:
    """A filter as a user gives it, checked, and what it means now: with the statuses that the
    action can change.
    """
    if action not in CHANGEABLE:
        raise InvalidArgument(f"a bulk operation is one of {', '.join(CHANGEABLE)}, not {action!r}")
    parsed = filtering.filter_of(given)
    if not str(parsed):
        raise InvalidArgument(f"{action} needs a filter, like status:failed: an empty one would mean all chains")
    where = filtering.chain_filter(
        engine.jobs,
        None,
        {"where": parsed, "status": None, "ids": None, "created_after": None, "created_before": None},
        root_only=False,
    )
    if any(map(is_own, (*(where.types or ()), *(where.chain_types or ())))):
        raise InvalidArgument("a bulk operation leaves out the library's own job types: name chains of other types")
    allowed = CHANGEABLE[action]
    if allowed is not None:
        statuses: tuple[Status, ...] = tuple(each for each in where.statuses or sorted(allowed) if each in allowed)
        if not statuses:
            raise InvalidArgument(
                f"{action} changes chains that are {' or '.join(sorted(allowed))}, and the filter has only "
                f"status:{','.join(where.statuses or ())}"
            )
        where = replace(where, statuses=statuses)
    return parsed, where


def start(
    engine: Engine,
    hooks: Hooks,
    action: BulkAction,
    given: Filter | str,
    who: tuple[str | None, str | None],
    **options: Any,
) -> Program[Chain[Any]]:
    """Store the first page, and who wants it. `options` are fields of `BulkInput`."""
    parsed, where = filter_for(engine, action, given)
    by, reason = who
    job: BulkJob = BULK_CLASSES[action](filter=str(parsed), where=where, by=by, reason=reason, **options)
    job_type = engine.jobs.of(job)
    job_id = engine.new_id()
    new = NewJob(
        id=job_id,
        type_name=job_type.name,
        chain_id=job_id,
        chain_type=job_type.name,
        chain_index=0,
        input=job_type.encode_input(job),
    )
    created = yield from engine.state.create_jobs([new])
    announce_created(engine, hooks, [new], created)
    entry = NewAudit(
        action=f"bulk-{action.replace('_', '-')}",
        target=str(parsed),
        chain_id=job_id,
        by=by,
        reason=reason,
        details=details_of(options),
    )
    yield from engine.state.record_audit([entry])
    return engine.jobs.new_chain(job_id, job_type.name, created[0].status, new.input)


# A page


def page(engine: Engine, hooks: Hooks, row: JobRow) -> Program[BulkJob | BulkResult]:
    """Do a page: returns the next one, or the result."""
    job: Any = engine.jobs.require(row.type_name).decode_input(row.input)
    action = action_of(row.type_name)
    started: datetime = job.started or row.created_at
    if job.started is None:
        # Done here and not at the start, which is in the user's transaction and may be long.
        yield from engine.state.store_policies([policy_of(KEEP, row.type_name)])
    size = _size(job, row.attempt)
    total = job.total
    if job.started is None:
        total = yield from _count(engine, job.where)
    found, cursor = yield from _next_chains(engine, job, action, size)
    matching = yield from _locked(engine, job.where, found)
    fit = [
        chain for chain in matching if _matched_before(action, chain, started) and _differs(action, job, chain, started)
    ]
    done = (yield from _CHANGES[action](engine, hooks, job, fit)) if fit else Done(0)
    counts = BulkResult(
        job.changed + done.changed,
        job.unchanged + len(found) - done.changed,
        job.cascaded + done.cascaded,
    )
    if cursor is None:
        return counts
    following: Any = dataclasses.replace(
        job,
        started=started,
        total=total,
        cursor=cursor,
        size=2 * size if 2 * size < PAGE else None,
        changed=counts.changed,
        unchanged=counts.unchanged,
        cascaded=counts.cascaded,
    )
    if job.per_second is None or not done.changed:
        return following  # type: ignore[no-any-return]
    return following.set(after=(done.changed + done.cascaded) / job.per_second)  # type: ignore[no-any-return]


def _count(engine: Engine, where: ChainFilter) -> Program[int]:
    """How many chains match, for those who watch the operation. Up to one more than `TOTAL`."""
    number, cursor = 0, None
    for _ in range(2 * TOTAL // PAGE):
        listed = yield from engine.state.list_chains(where, PageRequest(PAGE, cursor))
        number += sum(not is_own(row.first.type_name) for row in listed.rows)
        cursor = _cursor_after(where, listed, PAGE)
        if cursor is None:
            return number
        if number > TOTAL:
            break
    return TOTAL + 1


def _cursor_after(where: ChainFilter, listed: Listed[ChainRow], size: int) -> str | None:
    """Where the next page begins. None: there is none."""
    if listed.stopped_at is None and len(listed.rows) == size:
        last = listed.rows[-1]
        return last.current.id if where.by_current else last.first.id
    return listed.stopped_at


def _size(job: BulkInput, attempt: int) -> int:
    """Smaller after each failure: perhaps it took too long, or met a deadlock."""
    rate = PAGE if job.per_second is None else max(1, int(job.per_second))
    return max(1, min(PAGE, rate, job.size or PAGE) >> min(attempt - 1, PAGE.bit_length()))


def _next_chains(
    engine: Engine, job: BulkInput, action: BulkAction, size: int
) -> Program[tuple[list[str], str | None]]:
    """The ids of the next chains that match, and where the page after them begins. None: this is
    the last page.

    Chains to be deleted come latest first: mostly, a chain is younger than those that it waits for.
    """
    cursor = job.cursor
    for _ in range(SCANS):
        request = PageRequest(size, cursor, "desc" if action == "delete" else "asc")
        listed = yield from engine.state.list_chains(job.where, request)
        found = [row.first.id for row in listed.rows if not is_own(row.first.type_name)]
        cursor = _cursor_after(job.where, listed, size)
        if found or cursor is None:
            return found, cursor
    return [], cursor


def _locked(engine: Engine, where: ChainFilter, ids: Sequence[str]) -> Program[list[ChainRow]]:
    """Those of the chains that still match under their locks."""
    if not ids:
        return []
    rows = yield from engine.state.get_chains(ids, lock=True)
    if where.keys is not None:
        # Only the database knows whether these chains still have them.
        request = PageRequest(len(ids), examine=ALL)
        listed = yield from engine.state.list_chains(replace(where, chain_ids=tuple(ids)), request)
        return listed.rows
    return [row for row in rows if row is not None and row_matches(where, row.first, row.current)]


def _matched_before(action: BulkAction, chain: ChainRow, started: datetime) -> bool:
    """A chain that is cancelled or deleted does not come again, so it may have moved on to another
    job meanwhile.
    """
    first, current = chain.first, chain.current
    made = first if action in ("cancel", "delete") else current
    return made.created_at <= started and (current.completed_at is None or current.completed_at <= started)


def _differs(action: BulkAction, job: BulkInput, chain: ChainRow, started: datetime) -> bool:
    """Whether the change makes a difference: a job may be due already, or have the priority."""
    if action == "trigger":
        return chain.current.scheduled_at > started
    return action != "set_priority" or chain.current.priority != job.priority


Change = Callable[[Engine, Hooks, BulkInput, Sequence[ChainRow]], Program[Done]]


def _retry(engine: Engine, hooks: Hooks, _: BulkInput, fit: Sequence[ChainRow]) -> Program[Done]:
    jobs = yield from engine.state.retry([chain.current.id for chain in fit])
    chains.announce_revived(engine, hooks, jobs, Observations.retried)
    return _counted(jobs)


def _trigger(engine: Engine, hooks: Hooks, _: BulkInput, fit: Sequence[ChainRow]) -> Program[Done]:
    jobs = yield from engine.state.trigger([chain.current.id for chain in fit])
    chains.announce_revived(engine, hooks, jobs, Observations.triggered)
    return _counted(jobs)


def _set_priority(engine: Engine, _: Hooks, job: BulkInput, fit: Sequence[ChainRow]) -> Program[Done]:
    priority = job.priority
    assert priority is not None
    return _counted((yield from engine.state.set_priority([chain.current.id for chain in fit], priority)))


def _counted(jobs: Sequence[JobRow | None]) -> Done:
    return Done(sum(job is not None for job in jobs))


def _cancel(engine: Engine, hooks: Hooks, job: BulkInput, fit: Sequence[ChainRow]) -> Program[Done]:
    ids = {chain.first.id for chain in fit}
    cancelled = yield from chains.cancel(engine, hooks, list(ids), cascade=job.cascade)
    return _parted(cancelled, ids)


def _delete(engine: Engine, hooks: Hooks, job: BulkInput, fit: Sequence[ChainRow]) -> Program[Done]:
    """All of them, without those that jobs outside of the page still need."""
    wanted = [chain.first.id for chain in fit]
    if job.cascade:
        return (yield from _delete_each(engine, hooks, wanted))
    while wanted:
        try:
            deleted = yield from chains.delete(engine, hooks, wanted, cascade=False)
        except ChainInUse as error:
            # Without them, others may be needed: by these.
            wanted = [chain_id for chain_id in wanted if chain_id not in error.waiting]
        else:
            return Done(len(deleted))
    return Done(0)


def _delete_each(engine: Engine, hooks: Hooks, wanted: Sequence[str]) -> Program[Done]:
    """With all that they wait for: together if that is possible, or else one by one."""
    ids = set(wanted)
    try:
        return _parted((yield from chains.delete(engine, hooks, wanted, cascade=True)), ids)
    except ChainInUse:
        changed = cascaded = 0
    for chain_id in wanted:
        try:
            deleted = yield from chains.delete(engine, hooks, [chain_id], cascade=True)
        except ChainInUse:
            continue
        done = _parted(deleted, ids)
        changed, cascaded = changed + done.changed, cascaded + done.cascaded
    return Done(changed, cascaded)


def _parted(changed: Sequence[Chain[Any]], named: set[str]) -> Done:
    number = sum(chain.id in named for chain in changed)
    return Done(number, len(changed) - number)


_CHANGES: dict[BulkAction, Change] = {
    "retry": _retry,
    "cancel": _cancel,
    "delete": _delete,
    "trigger": _trigger,
    "set_priority": _set_priority,
}
