"""Recording who did what, in the transaction that does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from queuert.base.arguments import MAX_NAME_LENGTH, MAX_REASON_LENGTH, check_text
from queuert.engine.engine import Engine
from queuert.engine.operations.reading import PageQuery
from queuert.errors import InvalidArgument
from queuert.jobs.chain import Chain
from queuert.ports.program import Program
from queuert.records.audit import AuditRecord, NewAudit, details_of
from queuert.records.listings import Page
from queuert.records.pauses import Pause

T = TypeVar("T")

Who = tuple[str | None, str | None]
"""By whom and why something is done."""

KIND = "audit"
"""In cursors."""


def check_who(by: str | None, reason: str | None, *, reason_alone: bool = False) -> Who:
    """`by` and `reason` as a user gives them, checked."""
    if by is not None:
        check_text(by, "by", MAX_NAME_LENGTH)
    if reason is not None:
        check_text(reason, "reason", MAX_REASON_LENGTH)
        if by is None and not reason_alone:
            raise InvalidArgument("reason= is recorded together with by=: say who does it")
    return by, reason


def audited(
    engine: Engine,
    program: Program[list[Chain[Any]]],
    action: str,
    who: Who,
    **details: Any,
) -> Program[list[Chain[Any]]]:
    """Change chains, and record it if it is known who does it."""
    chains = yield from program
    by, reason = who
    if by is not None:
        yield from engine.state.record_audit(_entries(chains, action, by, reason, details_of(details)))
    return chains


def _entries(
    chains: Sequence[Chain[Any]], action: str, by: str, reason: str | None, details: bytes | None
) -> list[NewAudit]:
    return [
        NewAudit(action=action, target=chain.chain_type, chain_id=chain.id, by=by, reason=reason, details=details)
        for chain in chains
    ]


def audited_pause(engine: Engine, program: Program[T], action: str, who: Who, **details: Any) -> Program[T]:
    """The same for a pause that is made or ended. None: nothing was done."""
    done = yield from program
    by, reason = who
    if by is not None and isinstance(done, Pause):
        entry = NewAudit(action=action, target=str(done.target), by=by, reason=reason, details=details_of(details))
        yield from engine.state.record_audit([entry])
    return done


def audited_schedule(
    engine: Engine, program: Program[T], action: str, name: str, who: Who, **details: Any
) -> Program[T]:
    """The same for a schedule, with the chain that was started, if one was."""
    done = yield from program
    by, reason = who
    nothing_was_deleted = action == "delete" and done is None
    if by is not None and not nothing_was_deleted:
        started: object = done
        chain_id = started.id if isinstance(started, Chain) else None
        entry = NewAudit(
            action=action,
            target=f"schedule {name}",
            chain_id=chain_id,
            by=by,
            reason=reason,
            details=details_of(details),
        )
        yield from engine.state.record_audit([entry])
    return done


def list_audit(engine: Engine, chain_id: str | None, page: PageQuery) -> Program[Page[AuditRecord]]:
    request = page.request(KIND)
    after = None if request.after is None else int(request.after)
    records = yield from engine.state.list_audit(request.limit, after, chain_id)
    return page.build(KIND, records, lambda record: str(record.id), lambda record: record)
