"""Registries of handlers, and the settings of each handler."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from queuert.base.arguments import MAX_NAME_LENGTH, Duration, check_text, seconds
from queuert.base.backoff import JOB_BACKOFF, Backoff, check_backoff
from queuert.errors import InvalidArgument
from queuert.jobs.job import Job, is_job_class, name_of
from queuert.jobs.job_type import JobType
from queuert.jobs.registry import Registry
from queuert.jobs.scope import signature
from queuert.worker.handlers.annotations import check_annotation
from queuert.worker.handlers.attempt import Attempt, SyncAttempt
from queuert.worker.handlers.giving_up import ErrorKind, GiveUpOn, check_give_up_on
from queuert.worker.handlers.middleware import Middleware, MiddlewareStack, lacking

Conn = TypeVar("Conn", default=Any)
J = TypeVar("J", bound=Job[Any, Any])
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)
R = TypeVar("R")
N = TypeVar("N")

DEFAULT_LEASE = 60.0
DEFAULT_GRACE = 10.0
DEFAULT_LOSSES = 3
LOSSES_TOLD = 10
"""The pauses after so many losses are computed; later ones are as long as the last of these."""


@dataclass(frozen=True)
class SharedSettings:
    """What a handler, its registry and the worker can set; None where the next level decides."""

    lease: Duration | None = None
    renew_interval: Duration | None = None
    backoff: Backoff | None = None
    max_attempts: int | None = None
    timeout_grace: Duration | None = None
    max_losses: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.max_attempts, "max_attempts")
        check_positive(self.max_losses, "max_losses")


@dataclass(frozen=True)
class Handler:
    """One handler as it was registered."""

    job_class: type[Job[Any, Any]]
    function: Callable[[Any], Any]
    is_async: bool
    queue: str | None
    settings: SharedSettings
    give_up_on: GiveUpOn
    timeout: float | None
    concurrency: int | None


@dataclass(frozen=True)
class HandlerRegistry:
    """What `Handlers` has registered."""

    middleware: MiddlewareStack
    settings: SharedSettings
    by_name: dict[str, Handler] = field(default_factory=dict[str, Handler])


class Handlers(Generic[Conn]):
    """A registry of handlers. A worker takes one or several.

        handlers = Handlers()

        @handlers.handles(Greet)
        async def greet(attempt: Attempt[Greet]) -> str:
            return f"Hello, {attempt.job.who}"

    A handler's own setting overrides that of its registry, which overrides the worker's.

    Args:
        middleware: Code to run around every attempt; the first one is the outermost (default:
            none).
        lease: How long a worker owns a job without renewing its lease, as a timedelta or in seconds
            (default: the worker's).
        renew_interval: How often the lease is renewed, as a timedelta or in seconds (default: half
            of the lease).
        backoff: How long to wait after a failed attempt (default: the worker's).
        max_attempts: The number of attempts after which a job fails (default: the worker's).
        max_losses: How often a job may be lost with its worker: then it fails (default: the
            worker's).
        timeout_grace: How long a handler may go on after its `timeout`, as a timedelta or in
            seconds (default: the worker's).
    """

    def __init__(
        self,
        *,
        middleware: Sequence[Middleware] = (),
        lease: Duration | None = None,
        renew_interval: Duration | None = None,
        backoff: Backoff | None = None,
        max_attempts: int | None = None,
        max_losses: int | None = None,
        timeout_grace: Duration | None = None,
    ) -> None:
        settings = SharedSettings(lease, renew_interval, backoff, max_attempts, timeout_grace, max_losses)
        self._registry = HandlerRegistry(MiddlewareStack(middleware), settings)

    def handles(
        self,
        job_type: type[J],
        *,
        queue: str | None = None,
        lease: Duration | None = None,
        renew_interval: Duration | None = None,
        backoff: Backoff | None = None,
        max_attempts: int | None = None,
        max_losses: int | None = None,
        give_up_on: Sequence[ErrorKind] | None = (),
        timeout: Duration | None = None,
        timeout_grace: Duration | None = None,
        concurrency: int | None = None,
    ) -> _Handles[J, Conn]:
        """Register the decorated function as the handler of a job type.

        An `async def` function takes an `Attempt`. A plain `def` function takes a `SyncAttempt` and
        runs in a thread. It returns a value to end the chain, or another job to continue it.

        Args:
            job_type: The job class.
            queue: The queue that the type belongs to (default: the one that the class declares).
            lease: How long a worker owns a job without renewing its lease, as a timedelta or in
                seconds (default: that of the registry, then of the worker: 60).
            renew_interval: How often the lease is renewed, as a timedelta or in seconds (default:
                half of the lease).
            backoff: How long to wait after a failed attempt (default: that of the registry, then of
                the worker: 10 s, doubled each time, up to 300 s).
            max_attempts: The number of attempts after which the job fails (default: that of the
                registry, then of the worker: no limit). Attempts that are lost with their worker
                do not count.
            max_losses: How often the job may be lost with its worker: then it fails (default: that
                of the registry, then of the worker: 3).
            give_up_on: Errors after which the job fails at once: a tuple of exception classes and
                error codes, for example `(HTTPNotFound, "CARD_DECLINED")`. The codes of the library
                are allowed too. "INVALID_OUTPUT" is always one of them, unless you give None: then
                every error is retried (default: no others).
            timeout: How long one attempt may take, as a timedelta or in seconds (default: no
                limit). Then the handler is told to stop, and the job is retried.
            timeout_grace: How long the handler may go on after that, as a timedelta or in seconds
                (default: that of the registry, then of the worker: 10). Then the job is retried
                without it: its result has no effect, and its slot stays busy until it ends.
            concurrency: How many jobs of this type one worker runs at once (default: no limit but
                the worker's).
        """
        if not is_job_class(job_type):
            raise InvalidArgument(f"handles() takes a job class, got {job_type!r}")
        if queue is not None:
            check_text(queue, "queue", MAX_NAME_LENGTH)

        def register(function: Callable[[Any], Any]) -> None:
            is_async = _check_function(name_of(job_type), function)
            check_annotation(job_type, function)
            self._register(
                Handler(
                    job_class=job_type,
                    function=function,
                    is_async=is_async,
                    queue=queue,
                    settings=SharedSettings(lease, renew_interval, backoff, max_attempts, timeout_grace, max_losses),
                    give_up_on=check_give_up_on(give_up_on, name_of(job_type)),
                    timeout=None if timeout is None else seconds(timeout, "timeout", minimum=0.001),
                    concurrency=check_positive(concurrency, "concurrency"),
                )
            )

        return _Handles(register)

    def _register(self, handler: Handler) -> None:
        name = name_of(handler.job_class)
        known = self._registry.by_name
        if name in known:
            raise InvalidArgument(f"job type {name!r} already has a handler: {known[name].function!r}")
        known[name] = handler


def registry_of(handlers: Handlers[Any]) -> HandlerRegistry:
    return handlers._registry  # pyright: ignore[reportPrivateUsage]


def with_middleware(handlers: Handlers[Conn], outermost: Middleware) -> Handlers[Conn]:
    """The same handlers, with one more layer around all middleware of theirs."""
    registry, copy = registry_of(handlers), Handlers[Conn]()
    copy._registry = HandlerRegistry(  # pyright: ignore[reportPrivateUsage]
        MiddlewareStack([outermost, *registry.middleware.all]), registry.settings, registry.by_name
    )
    return copy


class _Handles(Generic[J_co, Conn]):
    """The decorator that `handles` returns. It hands the function back unchanged."""

    def __init__(self, register: Callable[[Callable[[Any], Any]], None]) -> None:
        self._register = register

    @overload
    def __call__(
        self: _Handles[Job[R, N], Conn], handler: Callable[[Attempt[J_co, Conn]], Awaitable[R | N]]
    ) -> Callable[[Attempt[J_co, Conn]], Awaitable[R | N]]: ...
    @overload
    def __call__(
        self: _Handles[Job[R, N], Conn], handler: Callable[[SyncAttempt[J_co, Any]], R | N]
    ) -> Callable[[SyncAttempt[J_co, Any]], R | N]: ...
    # The first one again: pyright explains a mistake by the last overload, and mypy by the first.
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self: _Handles[Job[R, N], Conn], handler: Callable[[Attempt[J_co, Conn]], Awaitable[R | N]]
    ) -> Callable[[Attempt[J_co, Conn]], Awaitable[R | N]]: ...
    def __call__(self, handler: Any) -> Any:
        self._register(handler)
        return handler


@dataclass(frozen=True, eq=False)
class HandlerPlan:
    """A handler with all its settings resolved: handler, then registry, then worker, then
    library.
    """

    name: str
    """The name that the jobs are stored with."""
    job_type: JobType
    function: Callable[[Any], Any]
    is_async: bool
    queue: str
    lease: float
    renew_interval: float
    backoff: Backoff
    max_attempts: int | None
    max_losses: int
    give_up_on: GiveUpOn
    timeout: float | None
    timeout_grace: float
    concurrency: int | None
    middleware: MiddlewareStack

    def delays_after_losses(self) -> tuple[float, ...]:
        """Seconds until a job may run again after its first loss, its second one, and so on: none
        after the first one, which may be an accident, and none after the last one, which ends it.
        """
        most = 1 if self.give_up_on.lost_workers else self.max_losses
        pauses = [self.backoff.delay(number) for number in range(1, min(most - 1, LOSSES_TOLD))]
        return (0.0, *pauses, 0.0) if most <= LOSSES_TOLD else (0.0, *pauses)


def resolve(
    registries: Sequence[Handlers[Any]],
    jobs: Registry,
    defaults: SharedSettings,
    required_middleware: Sequence[Middleware] = (),
) -> dict[str, HandlerPlan]:
    """Every handler of a worker by type name; errors name the type and the problem."""
    for handlers in registries:
        if not isinstance(handlers, Handlers):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a worker takes Handlers, got {handlers!r}")
    _check_middleware(required_middleware, [registry_of(handlers) for handlers in registries])
    plans: dict[str, HandlerPlan] = {}
    for handlers in registries:
        registry = registry_of(handlers)
        for name, handler in registry.by_name.items():
            plan = _plan(handler, registry, jobs, defaults)
            if plan.name in plans:
                raise InvalidArgument(f"job type {name!r} has two handlers; keep one")
            # Older versions, and earlier names of the type, have plans of their own.
            for stored in plan.job_type.names:
                plans[stored] = replace(plan, name=stored, job_type=jobs.require(stored))
    return plans


def _check_middleware(required: Sequence[Middleware], registries: Sequence[HandlerRegistry]) -> None:
    """Every registry must have the required middleware. The error names all that do not."""
    problems = [
        f"the handlers of {', '.join(sorted(registry.by_name)) or 'an empty registry'} lack the required middleware "
        f"{', '.join(missing)}, or have it in another order"
        for registry in registries
        if (missing := lacking(required, registry.middleware.all))
    ]
    if problems:
        raise InvalidArgument("; ".join(problems))


def _plan(handler: Handler, registry: HandlerRegistry, jobs: Registry, defaults: SharedSettings) -> HandlerPlan:
    job_type = jobs.require(handler.job_class)
    levels = (handler.settings, registry.settings, defaults)
    lease = seconds(
        next((level.lease for level in levels if level.lease is not None), DEFAULT_LEASE), "lease", minimum=0.001
    )
    given_interval = next((level.renew_interval for level in levels if level.renew_interval is not None), None)
    renew_interval = lease / 2 if given_interval is None else seconds(given_interval, "renew_interval", minimum=0.001)
    if renew_interval >= lease:
        raise InvalidArgument(
            f"job type {job_type.name!r}: a lease of {lease:g} s cannot be renewed every {renew_interval:g} s: "
            "use a renew_interval of at most half of the lease"
        )
    backoff = next((level.backoff for level in levels if level.backoff is not None), JOB_BACKOFF)
    check_backoff(backoff, f"the backoff of job type {job_type.name!r}")
    return HandlerPlan(
        name=job_type.name,
        job_type=job_type,
        function=handler.function,
        is_async=handler.is_async,
        queue=handler.queue or job_type.queue,
        lease=lease,
        renew_interval=renew_interval,
        backoff=backoff,
        max_attempts=next((level.max_attempts for level in levels if level.max_attempts is not None), None),
        max_losses=next((level.max_losses for level in levels if level.max_losses is not None), DEFAULT_LOSSES),
        give_up_on=handler.give_up_on,
        timeout=handler.timeout,
        timeout_grace=seconds(
            next((level.timeout_grace for level in levels if level.timeout_grace is not None), DEFAULT_GRACE),
            "timeout_grace",
        ),
        concurrency=handler.concurrency,
        middleware=registry.middleware,
    )


def check_positive(number: int | None, what: str) -> int | None:
    if number is not None and (type(number) is not int or number < 1):
        raise InvalidArgument(f"{what} must be a number of 1 or more, got {number!r}")
    return number


def _check_function(type_name: str, function: Any) -> bool:
    """Whether the handler is async.

    It must take the attempt, and nothing else that has no default.
    """
    if not callable(function):
        raise InvalidArgument(f"the handler of {type_name!r} must be a function, got {function!r}")
    try:
        signature(function).bind(object())
    except TypeError as error:
        raise InvalidArgument(
            f"the handler of {type_name!r} is called with one argument, the attempt: {error}"
        ) from None
    except ValueError:
        pass  # some callables written in C have no signature
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(f"the handler of {type_name!r} is a generator: it must return its result, not yield")
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
