"""What happened to jobs, in steps of time."""

from __future__ import annotations

from datetime import datetime, timedelta

from queuert.base.arguments import Duration, aware, seconds
from queuert.base.own_types import is_own
from queuert.engine.engine import Engine
from queuert.errors import InvalidArgument
from queuert.ports.program import Program
from queuert.records.history import History, check_reach, check_step, floor, history_of, step_for


def history(
    engine: Engine, type_name: str | None, since: datetime | Duration, step: Duration | None
) -> Program[History]:
    """Without the library's own types."""
    moment: datetime | float
    if isinstance(since, datetime):
        moment = aware(since, "since")
        age = max(0.0, (datetime.now(moment.tzinfo) - moment).total_seconds())
    else:
        moment = age = seconds(since, "since")
    width = step_for(age) if step is None else check_step(seconds(step, "step"))
    if not isinstance(moment, datetime):
        check_reach(width, age)
    look = yield from engine.state.history(width, moment, type_name)
    first = moment if isinstance(moment, datetime) else look.now - timedelta(seconds=moment)
    if first > look.now:
        raise InvalidArgument(f"since must be in the past, got {since!r}")
    if isinstance(moment, datetime):
        check_reach(width, (look.now - first).total_seconds())
    look.tallies[:] = [each for each in look.tallies if not is_own(each.type_name)]
    return history_of(look, floor(first.timestamp(), width), width)
