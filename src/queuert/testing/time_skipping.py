"""When the next thing happens by itself, and moving virtual time there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from queuert.base.arguments import Duration, seconds
from queuert.base.statuses import Status
from queuert.client.base import BaseClient
from queuert.errors import InvalidArgument
from queuert.ports.clock import Clock
from queuert.records.limits import split_lane
from queuert.records.listings import JobFilter, PageRequest
from queuert.records.model import JobRow
from queuert.records.pauses import Pause, is_paused
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
        """When a pending job is due, a pause ends, a limit lets a job begin, or the lease of a job
        ends that no worker of ours has. With `schedules`, also when one of them is due. None:
        nothing will happen.

        Call it only while nothing runs.
        """
        clock, state = self.clock, self._sessions.engine.state
        available = await self._sessions.run(state.next_available_in(self._types, self._queues))
        moments = [row.leased_until for row in await self._jobs("running") if row.leased_until is not None]
        if available.next_in == 0:
            moments += await self._moments_of_pending(available.paused)
        elif available.next_in is not None:
            moments.append(clock.now() + timedelta(seconds=available.next_in))
        if schedules:
            due = await self._sessions.run(state.due_schedules(1, self._functions))
            moments += [row.due_at for row in due.rows if row.due_at is not None]
            if due.next_in is not None:
                moments.append(clock.now() + timedelta(seconds=due.next_in))
        return min(moments, default=None)

    async def _moments_of_pending(self, paused: Sequence[Pause]) -> list[datetime]:
        """When each pending job may begin: now, unless its limit or a pause holds it back."""
        now, state = self.clock.now(), self._sessions.engine.state
        queue_of = dict(zip(self._types, self._queues, strict=True))
        moments = [pause.until for pause in paused if pause.until is not None]
        lanes: set[str] = set()
        for row in await self._jobs("pending"):
            if is_paused(paused, row.type_name, queue_of[row.type_name]):
                continue
            if row.scheduled_at <= now and row.lane is not None:
                lanes.add(row.lane)
            else:
                moments.append(max(row.scheduled_at, now))
        for lane in lanes:
            limit = await self._sessions.run(state.get_limit(*split_lane(lane)))
            if limit.opens_at is not None:
                moments.append(limit.opens_at)
        return moments

    async def _jobs(self, status: Status) -> list[JobRow]:
        where = JobFilter(types=tuple(self._types), statuses=(status,))
        found: list[JobRow] = []
        after: str | None = None
        while True:
            page = PageRequest(limit=1000, after=after)
            listed = await self._sessions.run(self._sessions.engine.state.list_jobs(where, page))
            found += listed.rows
            after = listed.stopped_at or (listed.rows[-1].id if len(listed.rows) == page.limit else None)
            if after is None:
                return found

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
