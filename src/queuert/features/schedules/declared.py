"""Schedules that a program declares: `Schedules`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias, cast, overload

from typing_extensions import TypeVar, Unpack

from queuert.base.arguments import Duration, seconds
from queuert.errors import InvalidArgument
from queuert.features.schedules.options import ScheduleOptions, check_name, check_options
from queuert.features.schedules.times import NONE, After, Cron, Every, Tick, Times
from queuert.jobs.job import EntryJob, Job, name_of

Jobs: TypeAlias = EntryJob[Any, Any] | Sequence[EntryJob[Any, Any]] | None
"""What a schedule's function returns: a job, a list of jobs, or None to skip the tick."""
MakeJobs: TypeAlias = Callable[[Tick], Jobs] | Callable[[Tick], Awaitable[Jobs]]
F = TypeVar("F", bound=MakeJobs)

FUNCTION_TIMEOUT = 30.0


@dataclass(frozen=True)
class Declaration:
    """A schedule of the program, with a job or with a function that makes its jobs."""

    name: str
    times: Times
    job: Job[Any, Any] | None
    function: MakeJobs | None
    timeout: float
    options: ScheduleOptions = field(default_factory=ScheduleOptions)


class Schedules:
    """The schedules that a program declares. Pass it to its workers: `Worker(…, schedules=[…])`.

        schedules = Schedules()
        schedules.every(timedelta(minutes=5), PollMailbox(box="in"))

        @schedules.cron("0 3 * * mon-fri", tz="Europe/Berlin")
        def nightly(tick: Tick) -> NightlyReport | None:
            return NightlyReport(day=tick.local.date())

    A function gets the tick, and returns a job, a list of jobs, or None to skip it. It may be
    `async def` or plain `def`, which runs in a thread. It is called outside of any transaction, and
    may be called twice for one tick: its jobs are started once.
    """

    def __init__(self) -> None:
        self._declarations: dict[str, Declaration] = {}

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self._declarations.values())

    def __len__(self) -> int:
        return len(self._declarations)

    @overload
    def cron(
        self,
        expression: str,
        job: EntryJob[Any, Any],
        *,
        tz: str = "UTC",
        name: str | None = None,
        jitter: timedelta = NONE,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None: ...
    @overload
    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        jitter: timedelta = NONE,
        start: datetime | None = None,
        end: datetime | None = None,
        timeout: Duration = FUNCTION_TIMEOUT,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]: ...
    def cron(
        self,
        expression: str,
        job: EntryJob[Any, Any] | None = None,
        *,
        tz: str = "UTC",
        name: str | None = None,
        jitter: timedelta = NONE,
        start: datetime | None = None,
        end: datetime | None = None,
        timeout: Duration = FUNCTION_TIMEOUT,
        **options: Unpack[ScheduleOptions],
    ) -> Any:
        """Declare a schedule by a cron expression. Without a job, it decorates a function.

        Args:
            expression: Five fields, or a name such as `@daily`: see `Cron`.
            job: The job that each tick starts. It may have a priority, and a deadline that is
                counted from the firing, by `job.set(…)`.
            tz: The name of the time zone (default: "UTC").
            name: The name of the schedule (default: that of the function, or of the job's type).
            jitter: At most how long after its moment each tick fires (default: none).
            start: The moment before which there are no ticks (default: none).
            end: The moment from which there are no ticks (default: none).
            timeout: How long the function may take (default: 30 s).
            overlap: What happens at a tick while a chain of an earlier one has not ended: "allow"
                starts another one (the default), "skip" leaves the tick out, "queue" lets one tick
                wait for the end, "cancel" starts another one and cancels the earlier one.
            catch_up: Which of the ticks that passed without a worker still fire: "last" (the
                default), "none" (a tick may be a minute late), or "all".
            catch_up_max: With "all": how many of them at most, the latest ones (default: 100).
            within: Only those that passed at most this long ago (default: no limit).
        """
        times = Cron(expression, tz=tz, jitter=jitter, start=start, end=end)
        return self._declare(times, job, name, timeout, options)

    @overload
    def every(
        self,
        interval: timedelta,
        job: EntryJob[Any, Any],
        *,
        tz: str = "UTC",
        name: str | None = None,
        jitter: timedelta = NONE,
        start: datetime | None = None,
        end: datetime | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None: ...
    @overload
    def every(
        self,
        interval: timedelta,
        *,
        tz: str = "UTC",
        name: str | None = None,
        jitter: timedelta = NONE,
        start: datetime | None = None,
        end: datetime | None = None,
        timeout: Duration = FUNCTION_TIMEOUT,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]: ...
    def every(
        self,
        interval: timedelta,
        job: EntryJob[Any, Any] | None = None,
        *,
        tz: str = "UTC",
        name: str | None = None,
        jitter: timedelta = NONE,
        start: datetime | None = None,
        end: datetime | None = None,
        timeout: Duration = FUNCTION_TIMEOUT,
        **options: Unpack[ScheduleOptions],
    ) -> Any:
        """Declare a schedule with a fixed interval: the same ticks on every host. Without a job, it
        decorates a function.

        Args:
            interval: The time from one tick to the next.
            job: The job that each tick starts. It may have a priority, and a deadline that is
                counted from the firing, by `job.set(…)`.
            tz: The name of the time zone of `tick.local` (default: "UTC").
            name: The name of the schedule (default: that of the function, or of the job's type).
            jitter: At most how long after its moment each tick fires (default: none).
            start: The first tick (default: ticks are counted from 1970).
            end: The moment from which there are no ticks (default: none).
            timeout: How long the function may take (default: 30 s).
            overlap: What happens at a tick while a chain of an earlier one has not ended: "allow"
                starts another one (the default), "skip" leaves the tick out, "queue" lets one tick
                wait for the end, "cancel" starts another one and cancels the earlier one.
            catch_up: Which of the ticks that passed without a worker still fire: "last" (the
                default), "none" (a tick may be a minute late), or "all".
            catch_up_max: With "all": how many of them at most, the latest ones (default: 100).
            within: Only those that passed at most this long ago (default: no limit).
        """
        times = Every(interval, tz=tz, jitter=jitter, start=start, end=end)
        return self._declare(times, job, name, timeout, options)

    @overload
    def after(
        self,
        delay: timedelta,
        job: EntryJob[Any, Any],
        *,
        name: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> None: ...
    @overload
    def after(
        self,
        delay: timedelta,
        *,
        name: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        timeout: Duration = FUNCTION_TIMEOUT,
    ) -> Callable[[F], F]: ...
    def after(
        self,
        delay: timedelta,
        job: EntryJob[Any, Any] | None = None,
        *,
        name: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        timeout: Duration = FUNCTION_TIMEOUT,
    ) -> Any:
        """Declare a schedule that runs again some time after its last run has ended, however it
        ended. Without a job, it decorates a function.

        Args:
            delay: The time from the end of a run to the start of the next.
            job: The job that it starts. It may have a priority, and a deadline that is counted from
                the firing, by `job.set(…)`.
            name: The name of the schedule (default: that of the function, or of the job's type).
            start: The moment before which it does not run (default: none).
            end: The moment from which it does not run (default: none).
            timeout: How long the function may take (default: 30 s).
        """
        return self._declare(After(delay, start=start, end=end), job, name, timeout, {})

    def _declare(self, times: Times, job: object, name: str | None, timeout: Duration, options: ScheduleOptions) -> Any:
        limit = seconds(timeout, "timeout", minimum=0.001)
        check_options(options)
        if job is not None:
            if not isinstance(job, Job):
                raise InvalidArgument(f"a schedule takes a job, or decorates a function, got {job!r}")
            given: Job[Any, Any] = job  # pyright: ignore[reportUnknownVariableType]
            own_name = name_of(type(given)) if name is None else name
            self._add(Declaration(own_name, times, given, None, limit, options))
            return None

        def decorate(function: F) -> F:
            if not callable(function):
                raise InvalidArgument(f"a schedule decorates a function, got {function!r}")
            own_name = str(getattr(function, "__name__", "")) if name is None else name
            self._add(Declaration(own_name, times, None, function, limit, options))
            return function

        return decorate

    def _add(self, declaration: Declaration) -> None:
        check_name(declaration.name)
        if declaration.name in self._declarations:
            raise InvalidArgument(
                f"two schedules have the name {declaration.name!r}: give one of them another one with name="
            )
        self._declarations[declaration.name] = declaration


def declarations_of(schedules: object) -> dict[str, Declaration]:
    """All declarations of a worker, by name."""
    groups = [schedules] if isinstance(schedules, Schedules) else schedules
    found: dict[str, Declaration] = {}
    if isinstance(groups, str) or not isinstance(groups, Sequence):
        raise InvalidArgument(f"schedules takes a list of Schedules, got {schedules!r}")
    for group in cast("Sequence[object]", groups):
        if not isinstance(group, Schedules):
            raise InvalidArgument(f"schedules takes a list of Schedules, got {group!r}")
        for declaration in group:
            if declaration.name in found:
                raise InvalidArgument(f"two schedules have the name {declaration.name!r}: rename one of them")
            found[declaration.name] = declaration
    return found
