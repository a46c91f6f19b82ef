"""When the next thing happens by itself, and moving virtual time there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from queuert.base.arguments import Duration, seconds
from queuert.client.base import BaseClient
from queuert.errors import InvalidArgument
from queuert.ports.clock import Clock
from queuert.records.listings import JobFilter, PageRequest
from queuert.worker.handlers.registry import HandlerPlan

MOST_JUMPS = 10_000
"""How often one call moves the time. More than that is a job that never ends."""


class TimeSkipping:
    """Moves the virtual time of a client's database from one moment to the next at which one of its
    jobs can go on.
    """

    def __init__(
        self, client: BaseClient[Any], plans: Mapping[str, HandlerPlan], functions: Sequence[str] = ()
    ) -> None:
        self._sessions = client.sessions
        self._clock: Clock | None = client.sessions.storage.clock
        self._types = list(plans)
        self._queues = [plan.queue for plan in plans.values()]
        self._functions = functions
        """The schedules whose functions the worker has."""
        self._jumps = 0

    @property
    def clock(self) -> Clock:
        if self._clock is None:
            raise InvalidArgument(
                "time can only be moved if it is virtual: connect(…, clock=testing.Clock()) with tables of its own"
            )
        return self._clock

    def begin(self) -> None:
        _ = self.clock
        self._jumps = 0

    async def next_moment(self, *, schedules: bool = False) -> datetime | None:
        """When a pending job is due, a pause ends, or the lease of a job ends that no worker of
        ours has. With `schedules`, also when one of them is due. None: nothing will happen.

        Call it only while nothing runs.
        """
        clock, state = self.clock, self._sessions.engine.state
        available = await self._sessions.run(state.next_available_in(self._types, self._queues))
        where = JobFilter(types=tuple(self._types), statuses=("running",))
        running = await self._sessions.run(state.list_jobs(where, PageRequest(limit=1000)))
        moments = [row.leased_until for row in running.rows if row.leased_until is not None]
        if available.next_in is not None:
            moments.append(clock.now() + timedelta(seconds=available.next_in))
        if schedules:
            due = await self._sessions.run(state.due_schedules(1, self._functions))
            moments += [row.due_at for row in due.rows if row.due_at is not None]
            if due.next_in is not None:
                moments.append(clock.now() + timedelta(seconds=due.next_in))
        return min(moments, default=None)

    def jump(self, moment: datetime) -> None:
        self._jumps += 1
        if self._jumps > MOST_JUMPS:
            raise AssertionError(
                f"the time was moved {MOST_JUMPS} times, to {self.clock.now()}, and jobs still wait for more: "
                "does one retry for ever? Give its handler max_attempts, or use advance()"
            )
        self.clock.move_to(max(moment, self.clock.now()))

    def after(self, by: Duration) -> datetime:
        return self.clock.now() + timedelta(seconds=seconds(by, "by"))
