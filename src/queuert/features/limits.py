"""Limits by key, at run time."""

from __future__ import annotations

from typing import Any

from queuert.base.arguments import MAX_KEY_LENGTH, check_text
from queuert.engine.engine import Engine
from queuert.engine.operations.reading import PageQuery
from queuert.engine.transaction import Hooks
from queuert.errors import InvalidArgument, InvalidCursor
from queuert.features.audit import Who
from queuert.jobs.job import Job, is_job_class
from queuert.jobs.limits import Limit, Rate, check_concurrency, check_limit_name, check_rate, check_weight, key_text
from queuert.ports.program import Program
from queuert.records.audit import NewAudit, details_of
from queuert.records.limits import Change, LimitRow, lane_of, split_lane
from queuert.records.listings import Page

KIND = "limits"
"""In cursors."""


class Unset:
    """The type of `UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
"""In place of an argument that is not given, where None means something."""


def limit_name(limit: str | Limit | type[Job[Any, Any]]) -> str:
    """The name of a limit, as a user gives it."""
    if isinstance(limit, Limit):
        if limit.name is None:
            raise InvalidArgument("this Limit has no name of its own: pass the job class that has it")
        return limit.name
    if isinstance(limit, str):
        return check_limit_name(limit)
    if is_job_class(limit):
        declared = limit.__queuert_limit__
        if declared is None:
            raise InvalidArgument(f"the job class {limit.__qualname__} has no limit")
        return declared.name or limit.__queuert_name__
    raise InvalidArgument(f"expected the name of a limit, a Limit or a job class, got {limit!r}")


def limit_key(key: object) -> str | None:
    """A key as it is stored. The empty string is that of a limit without `by`."""
    if key is None:
        return None
    text = key_text(key)
    return check_text(text, "the key of a limit", MAX_KEY_LENGTH) if text else text


def lane_named(limit: str | Limit | type[Job[Any, Any]], key: object) -> str:
    text = limit_key(key)
    if text is None:
        raise InvalidArgument("a LimitKey needs a key")
    return lane_of(limit_name(limit), text)


def change_of(concurrency: int | Unset | None, rate: Rate | Unset | None, weight: float | Unset) -> Change:
    """What `set_limit` was given."""
    change: dict[str, Any] = {}
    if not isinstance(concurrency, Unset):
        check_concurrency(concurrency)
        change["concurrency"] = concurrency
    if not isinstance(rate, Unset):
        check_rate(rate)
        change["rate"] = None if rate is None else rate.rule
    if not isinstance(weight, Unset):
        check_weight(weight)
        change["weight"] = float(weight)
    if not change:
        raise InvalidArgument("set_limit needs a concurrency, a rate or a weight")
    return change


def set_limit(engine: Engine, hooks: Hooks, name: str, key: str | None, change: Change, who: Who) -> Program[LimitRow]:
    row = yield from engine.state.set_limit(name, key, change)
    # A limit that is taken away is recorded, too.
    told = {field: "none" if value is None else value for field, value in change.items()}
    yield from _told(engine, hooks, "set_limit", name, key, who, told)
    return row


def clear_limit(engine: Engine, hooks: Hooks, name: str, key: str | None, who: Who) -> Program[bool]:
    cleared = yield from engine.state.clear_limit(name, key)
    if cleared:
        yield from _told(engine, hooks, "clear_limit", name, key, who, {})
    return cleared


def _told(
    engine: Engine, hooks: Hooks, action: str, name: str, key: str | None, who: Who, details: dict[str, Any]
) -> Program[None]:
    """Wake the workers, and record it if it is known who does it."""
    engine.notifications(hooks).add("pause_changed", f"limit {name}")
    by, reason = who
    if by is not None:
        target = f"limit {name}" if key is None else f"limit {name}, key {key}"
        entry = NewAudit(action=action, target=target[:200], by=by, reason=reason, details=details_of(details))
        yield from engine.state.record_audit([entry])


def stops_key(engine: Engine, chain_id: str) -> Program[bool]:
    """Whether the current job of a chain has failed and holds the key of an ordered limit."""
    (chain,) = yield from engine.state.get_chains([chain_id])
    if chain is None or chain.current.status != "failed" or chain.current.lane is None:
        return False
    row = yield from engine.state.get_limit(*split_lane(chain.current.lane))
    return row.holder == chain.current.id


def list_limits(engine: Engine, page: PageQuery) -> Program[Page[LimitRow]]:
    request = page.request(KIND)
    rows = yield from engine.state.list_limits(request.limit, _position(request.after))
    return page.build(KIND, rows, lambda row: _cursor(row), lambda row: row)


def _cursor(row: LimitRow) -> str:
    return row.name if row.key is None else lane_of(row.name, row.key)


def _position(after: str | None) -> tuple[str, str | None] | None:
    if after is None:
        return None
    name, separator, key = after.partition("\x1f")
    if not name:
        raise InvalidCursor(f"{after!r} is not a limit")
    return name, key if separator else None
